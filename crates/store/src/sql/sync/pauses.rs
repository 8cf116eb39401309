//! Mailboxes whose provider is left alone for a while, for people who wonder why nothing comes.

use std::collections::HashMap;
use std::time::Duration;

use domain::MailboxId;
use jiff::Timestamp;
use serde::Serialize;

use super::millis;
use crate::sql::jobs::later;
use crate::{Row, StoreError, TenantStore, TenantUnit, params};

/// One that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pause {
    pub until: Timestamp,
    pub reason: String,
}

/// Those who are refused together are sent away for a few seconds more or less: that is nothing new.
const AS_GOOD_AS_SAME: Duration = Duration::from_secs(10);

pub(super) fn pause(row: &Row, column: usize) -> Result<Option<Pause>, StoreError> {
    let (until, reason): (Option<Timestamp>, Option<String>) = (row.get(column)?, row.get(column + 1)?);
    Ok(until.map(|until| Pause { until, reason: reason.unwrap_or_default() }))
}

impl TenantStore {
    pub async fn list_pauses(&self) -> Result<HashMap<MailboxId, Pause>, StoreError> {
        let sql = "select mailbox_id, paused_until, paused_reason from sync_states
                   where tenant_id = $1 and paused_until > (select mailroom_now())";
        let mut pauses = HashMap::new();
        for row in self.query(sql, params![self.id]).await? {
            if let Some(pause) = pause(&row, 1)? {
                pauses.insert(row.get(0)?, pause);
            }
        }
        Ok(pauses)
    }
}

impl TenantUnit {
    /// Nothing is written of a pause that is known already.
    pub fn pause_sync(&mut self, mailbox: MailboxId, wait: Duration, reason: &str) {
        let dialect = self.store.dialect();
        self.unit.op(
            format!(
                "update sync_states set paused_until = {}, paused_reason = $3
                 where tenant_id = $1 and mailbox_id = $2 and (paused_until is null or paused_until < {})",
                later(dialect, "$4"),
                later(dialect, "$5")
            ),
            params![self.tenant, mailbox, reason, millis(wait), millis(wait.saturating_sub(AS_GOOD_AS_SAME))],
        );
    }

    /// The provider was called all the same: it is over sooner. One that is new by now stays.
    pub fn end_pause(&mut self, mailbox: MailboxId, pause: &Pause) {
        // PostgreSQL keeps a time finer than we say it.
        let until = pause.until.checked_add(Duration::from_secs(1)).unwrap_or(pause.until);
        self.unit.op(
            "update sync_states set paused_until = null, paused_reason = null
             where tenant_id = $1 and mailbox_id = $2 and paused_until <= $3",
            params![self.tenant, mailbox, until],
        );
    }
}
