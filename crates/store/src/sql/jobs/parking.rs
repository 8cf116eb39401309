//! Parked jobs: blocked by something that is no job, such as a mailbox that is paused, until whatever ends that wakes them.
//!
//! No wake-up is lost: the unit that parks checks in its preconditions that what it waits for still lasts, under the lock of
//! the row that says so; and the unit that changes this row wakes what is parked by then.

use super::{ClaimedJob, unless_cancelled};
use crate::sql::mailboxes::IS_SYNC_ENABLED;
use crate::{Dialect, Precondition, StoreError, SystemStore, TenantUnit, Unit, params};

/// How a parked job becomes ready.
const WAKE: &str = "update jobs set state = 'ready', parked_on = null, wait_reason = null, run_at = mailroom_now(),
    position = mailroom_micros()";

impl TenantUnit {
    /// Parks a running job with this unit, or, if it is not held any more, refuses the unit. It spends no attempt.
    pub fn park(&mut self, job: &ClaimedJob, on: &str, reason: &str) {
        self.unit.op_exactly(
            1,
            Precondition::JobNotHeld,
            format!(
                "update jobs set {}, parked_on = $4, wait_reason = $5, worker = null, is_marked = false, suspected = 0
                 where tenant_id = $1 and id = $2 and token = $3 and state = 'running'",
                unless_cancelled("blocked")
            ),
            params![job.tenant, job.id, job.token, on, reason],
        );
    }

    /// Wakes the jobs that are parked on this.
    pub(in crate::sql) fn wake_parked_jobs(&mut self, on: &str) {
        self.unit.op(
            format!("{WAKE} where tenant_id = $1 and parked_on = $2 and state = 'blocked'"),
            params![self.tenant, on],
        );
        self.enqueues = true;
    }
}

impl SystemStore {
    /// Wakes jobs that are parked on a mailbox which is synced or gone; returns how many. There are none, unless an older
    /// version of this program, which wakes none, has changed the mailbox.
    pub async fn wake_stranded_jobs(&self) -> Result<u64, StoreError> {
        let id = match self.store.dialect() {
            Dialect::Postgres => "m.id::text",
            Dialect::Sqlite => "m.id",
        };
        let mut unit = Unit::default();
        let woken = unit.op(
            format!(
                "{WAKE} where parked_on is not null and state = 'blocked' and not exists (
                     select 1 from mailboxes m where m.tenant_id = jobs.tenant_id and {id} = jobs.parked_on
                     and not ({IS_SYNC_ENABLED}) and m.state <> 'disconnected')"
            ),
            vec![],
        );
        let woken = self.commit(unit).await?.changed(woken);
        if woken > 0 {
            self.store.notifications.notify_local();
        }
        Ok(woken)
    }
}
