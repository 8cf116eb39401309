//! Dead letters of sync jobs: mailboxes whose sync was given up, and messages that could not be stored.

use std::time::Duration;

use domain::{JobId, MailboxId, TenantId};

use super::millis;
use crate::sql::jobs::{ReplayOptions, later};
use crate::{StoreError, SystemStore, TenantStore, TenantUnit, params};

/// Dead letters of fetches, but for those that took their process down, which only a person replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadFetches {
    OfMailbox(MailboxId),
    /// Those that storage was to blame for, and that ended so long ago.
    OfStorage {
        age: Duration,
    },
}

/// Storage was to blame for them.
const OF_STORAGE: &str = "error_class = 'storage'";

/// As many as fit well into one commit.
const REPLAY_BATCH_JOBS: u64 = 1000;

/// The sync dead letters of a mailbox `$2` of a tenant `$1`. There is an index for this very text.
const SYNC_DEAD_LETTERS: &str = "tenant_id = $1 and kind = 'sync_mailbox' and unique_key = $2 and state = 'dead'";

impl TenantStore {
    /// Returns whether the mailbox has a sync dead letter, and no successful sync since. One that was replayed is a live job and
    /// does not count.
    pub async fn has_sync_dead_letter(&self, mailbox: MailboxId) -> Result<bool, StoreError> {
        let sql = format!(
            "select 1 from finished_jobs where {SYNC_DEAD_LETTERS}
               and not exists (select 1 from sync_states s where s.tenant_id = $1 and s.mailbox_id = $3
                               and s.last_sync_at >= finished_jobs.ended_at)
             limit 1"
        );
        Ok(self.query_one(sql, params![self.id, mailbox.to_string(), mailbox]).await?.is_some())
    }
}

impl SystemStore {
    /// Lists active tenants with emails that lack bytes, or with messages for whose failure storage was to blame.
    pub async fn list_tenants_with_missing_bytes(&self) -> Result<Vec<TenantId>, StoreError> {
        let sql = format!(
            "select t.id from tenants t where t.is_active and (
                 exists (select 1 from emails e where e.tenant_id = t.id and e.processing_status = 'failed')
                 or exists (select 1 from ledger l where l.tenant_id = t.id and l.state = 'failed' and l.email_id is not null)
                 or exists (select 1 from finished_jobs f where f.tenant_id = t.id and f.kind = 'fetch_emails'
                            and f.state = 'dead' and {OF_STORAGE}))"
        );
        self.query(sql, params![]).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Replays dead letters of fetches; returns how many.
    pub async fn replay_dead_fetches(&self, tenant: TenantId, which: DeadFetches) -> Result<u64, StoreError> {
        let condition = match which {
            DeadFetches::OfMailbox(mailbox) => format!("payload ->> 'mailbox' = '{mailbox}'"),
            DeadFetches::OfStorage { age } => {
                let then = later(self.store.dialect(), &format!("(-{})", millis(age)));
                format!("{OF_STORAGE} and ended_at <= {then}")
            }
        };
        let sql = format!(
            "select id from finished_jobs where tenant_id = $1 and kind = 'fetch_emails' and state = 'dead' and id > $2
               and coalesce(error_class, '') <> 'poison' and {condition} order by id limit $3"
        );
        let (mut replayed, mut after) = (0, JobId(uuid::Uuid::nil()));
        loop {
            let params = params![tenant, after, REPLAY_BATCH_JOBS];
            let rows = self.query(sql.clone(), params).await?;
            let batch = rows.iter().map(|row| Ok((tenant, row.get(0)?))).collect::<Result<Vec<_>, StoreError>>()?;
            let Some((_, last)) = batch.last() else { return Ok(replayed) };
            after = *last;
            replayed += self.replay_batch(&batch, 0, &ReplayOptions::default()).await?;
        }
    }
}

impl TenantUnit {
    /// Deletes the dead letters of fetches of a mailbox that is disconnected: its messages are not wanted any more.
    pub(super) fn discard_fetch_dead_letters(&mut self, mailbox: MailboxId) {
        let dead = "tenant_id = $1 and kind = 'fetch_emails' and state = 'dead' and payload ->> 'mailbox' = $2";
        let params = params![self.tenant, mailbox.to_string()];
        self.unit.op(
            format!(
                "delete from job_attempts where tenant_id = $1
                 and job_id in (select id from finished_jobs where {dead})"
            ),
            params.clone(),
        );
        self.unit.op(format!("delete from finished_jobs where {dead}"), params);
    }

    /// Deletes the sync dead letters of a mailbox, which are outdated.
    pub fn discard_sync_dead_letters(&mut self, mailbox: MailboxId) {
        let key = mailbox.to_string();
        self.unit.op(
            format!(
                "delete from job_attempts where tenant_id = $1
                 and job_id in (select id from finished_jobs where {SYNC_DEAD_LETTERS})"
            ),
            params![self.tenant, &key],
        );
        self.unit.op(format!("delete from finished_jobs where {SYNC_DEAD_LETTERS}"), params![self.tenant, &key]);
    }
}
