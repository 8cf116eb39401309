//! Mailboxes that were given up: what became of the job that looked at them stands among the dead letters.

use domain::MailboxId;

use crate::{StoreError, TenantStore, TenantUnit, params};

/// The dead letters of a mailbox `$2` of a tenant `$1`. There is an index for this very text.
const LETTERS: &str = "tenant_id = $1 and kind = 'sync_mailbox' and unique_key = $2 and state = 'dead'";

impl TenantStore {
    /// Whether there is a dead letter of it, and it has not worked since. Not one that was replayed: that is a job like any
    /// other.
    pub async fn is_given_up(&self, mailbox: MailboxId) -> Result<bool, StoreError> {
        let sql = format!(
            "select 1 from finished_jobs where {LETTERS}
               and not exists (select 1 from sync_states s where s.tenant_id = $1 and s.mailbox_id = $3
                               and s.last_sync_at >= finished_jobs.ended_at)
             limit 1"
        );
        Ok(self.query_one(sql, params![self.id, mailbox.to_string(), mailbox]).await?.is_some())
    }
}

impl TenantUnit {
    /// What they say is over, or is said by a new one.
    pub fn discard_letters(&mut self, mailbox: MailboxId) {
        let key = mailbox.to_string();
        self.unit.op(
            format!(
                "delete from job_attempts where tenant_id = $1
                 and job_id in (select id from finished_jobs where {LETTERS})"
            ),
            params![self.tenant, &key],
        );
        self.unit.op(format!("delete from finished_jobs where {LETTERS}"), params![self.tenant, &key]);
    }
}
