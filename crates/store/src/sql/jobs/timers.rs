//! Timers of the queue: jobs become due, and children of failed jobs are cancelled.

use std::time::Duration;

use domain::{JobId, TenantId};

use super::finish::finish_one;
use super::release::lock_key;
use super::{JobEnd, PARENT_FAILED};
use crate::failpoint::Effect;
use crate::{Dialect, StoreError, SystemStore, Unit, params};

/// As many as fit well into one commit.
const TIMER_BATCH_JOBS: u64 = 1000;

impl SystemStore {
    /// Makes due jobs ready. Returns `true` if there may be more.
    pub async fn promote_due_jobs(&self) -> Result<bool, StoreError> {
        let due = "from jobs where state in ('scheduled', 'retry') and run_at <= (select mailroom_now())
                   order by run_at limit $1";
        let sql = match self.store.dialect() {
            Dialect::Postgres => format!(
                "update jobs set state = 'ready', position = mailroom_micros()
                 where ctid = any(array(select ctid {due} for update skip locked))"
            ),
            Dialect::Sqlite => {
                format!("update jobs set state = 'ready', position = mailroom_micros() where id in (select id {due})")
            }
        };
        // Checked first: most of the time there is none, and that should cost no commit.
        if self.time_until_next_due().await? != Some(Duration::ZERO) {
            return Ok(false);
        }
        let mut unit = Unit::default();
        let ready = unit.op(sql, params![TIMER_BATCH_JOBS]);
        let committed = self.commit_at(Effect::ReadyJobs, unit).await?;
        if committed.changed(ready) > 0 {
            self.store.notifications.notify_local();
        }
        Ok(committed.changed(ready) >= TIMER_BATCH_JOBS)
    }

    /// Returns how long until the next job is due, by the database's clock; zero if one is.
    pub async fn time_until_next_due(&self) -> Result<Option<Duration>, StoreError> {
        let left = match self.store.dialect() {
            Dialect::Postgres => "cast(extract(epoch from run_at - mailroom_now()) * 1000 as bigint)",
            Dialect::Sqlite => "cast((julianday(run_at) - julianday(mailroom_now())) * 86400000 as integer)",
        };
        let sql = format!("select {left} from jobs where state in ('scheduled', 'retry') order by run_at limit 1");
        let row = self.query_one(sql, vec![]).await?;
        row.map(|row| Ok(Duration::from_millis(row.get::<i64>(0)?.max(0).unsigned_abs()))).transpose()
    }

    /// Cancels jobs whose parents failed, and those that were cancelled while they ran; returns how many. Their own children
    /// are next.
    pub async fn cancel_doomed_jobs(&self) -> Result<u64, StoreError> {
        let sql =
            "select tenant_id, id, order_key, cancel_reason from jobs where state = 'doomed' order by id limit $1";
        let mut cancelled = 0;
        for row in self.query(sql, params![TIMER_BATCH_JOBS]).await? {
            let (tenant, id, order_key): (TenantId, JobId, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let mut unit = Unit::default();
            let reason: Option<String> = row.get(3)?;
            let end = JobEnd::Cancelled { reason: reason.as_deref().unwrap_or(PARENT_FAILED) };
            let dialect = self.store.dialect();
            if let Some(key) = &order_key {
                lock_key(&mut unit, tenant, key);
            }
            let job = (tenant, id, order_key.as_deref());
            let moved = finish_one(&mut unit, dialect, job, end, "state = 'doomed'", None);
            cancelled += self.commit_at(Effect::CancelDoomed, unit).await?.changed(moved);
        }
        if cancelled > 0 {
            self.store.notifications.notify_local();
        }
        Ok(cancelled)
    }
}
