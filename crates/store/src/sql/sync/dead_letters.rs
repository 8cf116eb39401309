//! Dead letters of sync jobs: mailboxes whose sync was given up.

use domain::MailboxId;

use crate::{StoreError, TenantStore, TenantUnit, params};

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

impl TenantUnit {
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
