//! Pauses of syncs while a provider must not be called, for display only: people see why nothing comes. What enforces a
//! provider's `Retry-After` is `outbound` and the delay of the job.

use std::collections::HashMap;
use std::time::Duration;

use domain::MailboxId;
use jiff::Timestamp;
use serde::Serialize;

use super::millis;
use crate::sql::jobs::later;
use crate::{Row, StoreError, TenantStore, TenantUnit, params};

/// A pause that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SyncPause {
    pub until: Timestamp,
    pub reason: String,
}

/// Calls that are refused together get delays that differ by seconds: that is no new pause.
const PAUSE_TOLERANCE: Duration = Duration::from_secs(10);

pub(super) fn pause(row: &Row, column: usize) -> Result<Option<SyncPause>, StoreError> {
    let (until, reason): (Option<Timestamp>, Option<String>) = (row.get(column)?, row.get(column + 1)?);
    Ok(until.map(|until| SyncPause { until, reason: reason.unwrap_or_default() }))
}

impl TenantStore {
    pub async fn list_pauses(&self) -> Result<HashMap<MailboxId, SyncPause>, StoreError> {
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
    /// Records a pause, unless it is known already.
    pub fn record_pause(&mut self, mailbox: MailboxId, wait: Duration, reason: &str) {
        let dialect = self.store.dialect();
        self.unit.op(
            format!(
                "update sync_states set paused_until = {}, paused_reason = $3
                 where tenant_id = $1 and mailbox_id = $2 and (paused_until is null or paused_until < {})",
                later(dialect, "$4"),
                later(dialect, "$5")
            ),
            params![self.tenant, mailbox, reason, millis(wait), millis(wait.saturating_sub(PAUSE_TOLERANCE))],
        );
    }

    /// Ends a pause early, because the provider was called successfully. A newer pause stays.
    pub fn end_pause(&mut self, mailbox: MailboxId, pause: &SyncPause) {
        // PostgreSQL stores times with more digits than are read.
        let until = pause.until.checked_add(Duration::from_secs(1)).unwrap_or(pause.until);
        self.unit.op(
            "update sync_states set paused_until = null, paused_reason = null
             where tenant_id = $1 and mailbox_id = $2 and paused_until <= $3",
            params![self.tenant, mailbox, until],
        );
    }
}
