//! The end of a job: done, dead or cancelled. It moves to `finished_jobs`, and the jobs that waited for it go on.

use std::collections::HashSet;

use domain::{JobId, JobState, TenantId};
use futures_util::{StreamExt, TryStreamExt};

use super::release::{lock_key, mark_children_for_cancellation, release_children, release_key};
use super::{ClaimedJob, NewJob, for_update};
use crate::failpoint::{self, Effect, Guard};
use crate::value::Value;
use crate::{Dialect, Precondition, StoreError, SystemStore, TenantUnit, Unit, params};

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd<'a> {
    Done,
    Dead { reason: &'a str, error_class: &'a str, fingerprint: &'a str },
    Cancelled { reason: &'a str },
}

impl JobEnd<'_> {
    fn state(self) -> JobState {
        match self {
            Self::Done => JobState::Done,
            Self::Dead { .. } => JobState::Dead,
            Self::Cancelled { .. } => JobState::Cancelled,
        }
    }

    fn details(self) -> (Option<String>, Option<String>, Option<String>) {
        match self {
            Self::Done => (None, None, None),
            Self::Dead { reason, error_class, fingerprint } => {
                (Some(reason.into()), Some(error_class.into()), Some(fingerprint.into()))
            }
            Self::Cancelled { reason } => (Some(reason.into()), None, None),
        }
    }
}

/// Concurrent commits: enough for a group on SQLite, and few enough for the pool of PostgreSQL.
pub(super) const MAX_CONCURRENT_COMMITS: usize = 32;

/// The result of cancelling a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    Cancelled,
    /// It runs, and its worker will stop it.
    Requested,
    /// There is no such job, or it had ended.
    NotLive,
}

impl TenantUnit {
    /// Refuses the unit if the job is not held any more. The job goes on after it.
    pub fn guard_job(&mut self, job: &ClaimedJob) {
        if failpoint::is_off(Guard::JobToken) {
            return;
        }
        let lock = if self.store.dialect() == Dialect::Postgres { " for share" } else { "" };
        self.unit.op_returning_exactly(
            1,
            Precondition::JobNotHeld,
            format!("select 1 from jobs where tenant_id = $1 and id = $2 and token = $3 and state = 'running'{lock}"),
            params![job.tenant, job.id, job.token],
        );
    }

    /// Enqueues the job that goes on where this running one ends, under the same unique key. Refuses the unit if the
    /// running job is to be cancelled: to be enqueued again would drop that.
    pub fn enqueue_continuation(&mut self, job: &ClaimedJob, next: NewJob) {
        self.enqueue(vec![next]);
        // The row is locked by now, so no cancellation comes in between.
        self.unit.op_returning_exactly(
            0,
            Precondition::JobCancelled,
            "select 1 from jobs where tenant_id = $1 and id = $2 and cancel_reason is not null",
            params![job.tenant, job.id],
        );
    }

    /// Ends the job with this unit, or, if it is not held any more, refuses the unit. `successor` becomes the id of the job that
    /// follows if it was enqueued again meanwhile.
    pub fn finish(&mut self, job: &ClaimedJob, end: JobEnd<'_>, successor: JobId) {
        finish_held(&mut self.unit, self.store.dialect(), job, end, successor);
        self.enqueues = true;
    }
}

impl SystemStore {
    /// Ends many jobs at once that are done and wrote nothing; returns those that were still held.
    pub async fn finish_done(
        &self,
        jobs: &[ClaimedJob],
        successor: impl Fn() -> JobId,
    ) -> Result<Vec<JobId>, StoreError> {
        let dialect = self.store.dialect();
        let (free, mut dependent): (Vec<&ClaimedJob>, Vec<&ClaimedJob>) =
            jobs.iter().partition(|job| job.order_key.is_none());
        let mut finished = Vec::with_capacity(jobs.len());
        if !free.is_empty() {
            let mut unit = Unit::default();
            let moved = match dialect {
                Dialect::Postgres => move_many_postgres(&mut unit, &free),
                Dialect::Sqlite => move_many_sqlite(&mut unit, &free),
            };
            let ended: Vec<(TenantId, JobId)> = free.iter().map(|job| (job.tenant, job.id)).collect();
            let released = release_children(&mut unit, dialect, &ended);
            let committed = self.commit_at(Effect::FinishJobs, unit).await?;
            if committed.changed(released) > 0 {
                self.store.notifications.notify_local();
            }
            for row in committed.returned(moved) {
                finished.push(row.get(0)?);
            }
            // Enqueued again while they ran, or not held any more.
            let ended: HashSet<JobId> = finished.iter().copied().collect();
            dependent.extend(free.into_iter().filter(|job| job.is_unique && !ended.contains(&job.id)));
        }
        finished.extend(self.finish_dependent(dependent, successor).await?);
        Ok(finished)
    }

    /// Ends jobs that have keys, each in a unit of its own, concurrently.
    async fn finish_dependent(
        &self,
        jobs: Vec<&ClaimedJob>,
        successor: impl Fn() -> JobId,
    ) -> Result<Vec<JobId>, StoreError> {
        let dialect = self.store.dialect();
        let units: Vec<_> = jobs
            .into_iter()
            .map(|job: &ClaimedJob| {
                let (id, mut unit) = (job.id, Unit::default());
                finish_held(&mut unit, dialect, job, JobEnd::Done, successor());
                async move {
                    let finished = match self.commit_at(Effect::FinishJobs, unit).await {
                        Ok(_) => Some(id),
                        Err(StoreError::Precondition(Precondition::JobNotHeld)) => None,
                        Err(e) => return Err(e),
                    };
                    Ok(finished)
                }
            })
            .collect();
        let finished: Vec<Option<JobId>> =
            futures_util::stream::iter(units).buffered(MAX_CONCURRENT_COMMITS).try_collect().await?;
        if finished.iter().any(Option::is_some) {
            self.store.notifications.notify_local();
        }
        Ok(finished.into_iter().flatten().collect())
    }

    /// Cancels a job: one that does not run ends at once; one that runs is marked, and its worker stops it.
    pub async fn cancel_job(&self, tenant: TenantId, id: JobId, reason: &str) -> Result<CancelOutcome, StoreError> {
        let sql = "select order_key from jobs where tenant_id = $1 and id = $2";
        let Some(row) = self.query_one(sql, params![tenant, id]).await? else { return Ok(CancelOutcome::NotLive) };
        let order_key: Option<String> = row.get(0)?;
        let mut unit = Unit::default();
        if let Some(key) = &order_key {
            lock_key(&mut unit, tenant, key);
        }
        // Locks the row, whatever its state. A rerun that was requested until now is cancelled as well.
        let live = unit.op(
            "update jobs set cancel_reason = case when state = 'running' then $3 else cancel_reason end, rerun = false
             where tenant_id = $1 and id = $2",
            params![tenant, id, reason],
        );
        let end = JobEnd::Cancelled { reason };
        let job = (tenant, id, order_key.as_deref());
        let moved = finish_one(&mut unit, self.store.dialect(), job, end, NOT_RUNNING, None);
        let committed = self.commit_at(Effect::FinishJobs, unit).await?;
        Ok(match (committed.changed(live), committed.changed(moved)) {
            (0, 0) => CancelOutcome::NotLive,
            (_, 0) => CancelOutcome::Requested,
            _ => CancelOutcome::Cancelled,
        })
    }
}

/// The condition of jobs that no worker holds.
const NOT_RUNNING: &str = "state <> 'running'";

const INTO_FINISHED: &str =
    "insert into finished_jobs (id, tenant_id, kind, lane, state, payload, traceparent, token, worker, attempt,
    abandoned, reason, error_class, fingerprint, unique_key, order_key, created_at, started_at, ended_at)";

/// Returns the columns of a finished job: all but state and reasons come from the live row.
fn moved_columns(state: &str, reason: &str, class: &str, fingerprint: &str) -> String {
    format!(
        "j.id, j.tenant_id, j.kind, j.lane, {state}, j.payload, j.traceparent, j.token, j.worker, j.attempt, j.abandoned,
         {reason}, {class}, {fingerprint}, j.unique_key, j.order_key, j.created_at, j.started_at, mailroom_now()"
    )
}

pub(super) fn finish_held(unit: &mut Unit, dialect: Dialect, job: &ClaimedJob, end: JobEnd<'_>, successor: JobId) {
    let held = if failpoint::is_off(Guard::JobToken) {
        "true".to_owned()
    } else {
        format!("state = 'running' and token = {}", job.token)
    };
    if let Some(key) = &job.order_key {
        lock_key(unit, job.tenant, key);
    }
    let (sql, params) = move_one(dialect, job.tenant, job.id, end, &held);
    if failpoint::is_off(Guard::JobToken) {
        unit.op(sql, params);
    } else {
        unit.op_exactly(1, Precondition::JobNotHeld, sql, params);
    }
    if job.is_unique {
        start_successor(unit, job.tenant, job.id, successor);
    }
    after_the_move(unit, dialect, job.tenant, job.id, job.order_key.as_deref(), end);
}

/// Ends a job if it meets the condition; returns the operation that counts it. Its key is locked already.
pub(super) fn finish_one(
    unit: &mut Unit,
    dialect: Dialect,
    (tenant, id, order_key): (TenantId, JobId, Option<&str>),
    end: JobEnd<'_>,
    condition: &str,
    successor: Option<JobId>,
) -> crate::unit::OpId {
    let (sql, params) = move_one(dialect, tenant, id, end, condition);
    let moved = unit.op(sql, params);
    if let Some(successor) = successor {
        start_successor(unit, tenant, id, successor);
    }
    after_the_move(unit, dialect, tenant, id, order_key, end);
    moved
}

/// Turns the row of a job that was enqueued again while it ran into the job that follows.
pub(super) fn start_successor(unit: &mut Unit, tenant: TenantId, id: JobId, successor: JobId) {
    unit.op(
        "update jobs set id = $3, state = 'ready', position = mailroom_micros(), run_at = mailroom_now(),
            created_at = mailroom_now(), token = 0, attempt = 0, abandoned = 0, suspected = 0, is_marked = false,
            worker = null, started_at = null, rerun = false, has_children = false, cancel_reason = null
         where tenant_id = $1 and id = $2 and rerun
           and exists (select 1 from finished_jobs where tenant_id = $1 and id = $2)",
        params![tenant, id, successor],
    );
}

fn move_one(dialect: Dialect, tenant: TenantId, id: JobId, end: JobEnd<'_>, condition: &str) -> (String, Vec<Value>) {
    let columns = moved_columns("$3", "$4", "$5", "$6");
    let sql = format!(
        "{INTO_FINISHED} select {columns} from jobs j where j.tenant_id = $1 and j.id = $2 and {condition} {}",
        for_update(dialect)
    );
    let (reason, class, fingerprint) = end.details();
    (sql, params![tenant, id, end.state(), reason, class, fingerprint])
}

/// Deletes the live row and releases what waits for the job. Does nothing when the job was not moved.
fn after_the_move(unit: &mut Unit, dialect: Dialect, tenant: TenantId, id: JobId, key: Option<&str>, end: JobEnd<'_>) {
    unit.op(
        "delete from jobs where tenant_id = $1 and id = $2
         and exists (select 1 from finished_jobs where tenant_id = $1 and id = $2)",
        params![tenant, id],
    );
    match end {
        JobEnd::Done => drop(release_children(unit, dialect, &[(tenant, id)])),
        JobEnd::Dead { .. } | JobEnd::Cancelled { .. } => mark_children_for_cancellation(unit, tenant, id),
    }
    if let JobEnd::Cancelled { .. } = end {
        // It may have waited for others; were it replayed, they would count it down again.
        unit.op(
            "delete from job_edges where tenant_id = $1 and child_id = $2
             and not exists (select 1 from jobs where tenant_id = $1 and id = $2)",
            params![tenant, id],
        );
    }
    if let Some(key) = key {
        release_key(unit, tenant, key);
    }
}

/// Moves jobs that are done; one that was enqueued again stays, because another follows it. The rows are locked first, so that
/// the second statement sees them in their final state, and can take them by ctid: a join would be planned by outdated
/// statistics of a table that fills and empties all the time.
fn move_many_postgres(unit: &mut Unit, jobs: &[&ClaimedJob]) -> crate::unit::OpId {
    let params = vec![
        Value::List(jobs.iter().map(|job| job.tenant.into()).collect()),
        Value::List(jobs.iter().map(|job| job.id.into()).collect()),
        Value::List(jobs.iter().map(|job| job.token.into()).collect()),
    ];
    let held = if failpoint::is_off(Guard::JobToken) { "true" } else { "f.token = g.token and f.state = 'running'" };
    let held = format!("{held} and not f.rerun");
    let given = "unnest($1::uuid[], $2::uuid[], $3::int8[]) as g (tenant_id, id, token)";
    // Only the key inside, or another index seems better that has every running job in it.
    let found = "select j.ctid as row, token, state, rerun from jobs j where j.tenant_id = g.tenant_id and j.id = g.id offset 0";
    unit.op(format!("select count(*) from {given} cross join lateral ({found} for update) f"), params.clone());
    let sql = format!(
        "with gone as (
            delete from jobs j
            where j.ctid = any(array(select f.row from {given} cross join lateral ({found}) f where {held}))
            returning j.*)
         {INTO_FINISHED} select {} from gone j returning id",
        moved_columns("'done'", "null", "null", "null")
    );
    unit.op_returning(sql, params)
}

fn move_many_sqlite(unit: &mut Unit, jobs: &[&ClaimedJob]) -> crate::unit::OpId {
    let held =
        if failpoint::is_off(Guard::JobToken) { "" } else { "and j.token = g.value ->> 1 and j.state = 'running'" };
    let given: Vec<(JobId, u64)> = jobs.iter().map(|job| (job.id, job.token)).collect();
    let given = Value::Json(serde_json::json!(given).to_string());
    let moved = unit.op_returning(
        format!(
            "{INTO_FINISHED} select {} from json_each($1) g cross join jobs j on j.id = g.value ->> 0 {held} and not j.rerun
             returning id",
            moved_columns("'done'", "null", "null", "null")
        ),
        vec![given.clone()],
    );
    unit.op(
        "delete from jobs where id in (select f.id from json_each($1) g cross join finished_jobs f on f.id = g.value ->> 0)",
        vec![given],
    );
    moved
}
