//! The end of a job: done, dead or cancelled. It moves to `finished_jobs`, and what waited behind it goes on.

use std::collections::HashSet;

use domain::{JobId, JobState, TenantId};
use futures_util::{StreamExt, TryStreamExt};

use super::release::{doom_children, lock_key, release_children, release_key};
use super::{Claimed, for_update};
use crate::failpoint::{self, Effect, Guard};
use crate::value::Value;
use crate::{Dialect, StoreError, SystemStore, TenantUnit, Unit, params};

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End<'a> {
    Done,
    Dead { reason: &'a str, error_class: &'a str, fingerprint: &'a str },
    Cancelled { reason: &'a str },
}

impl End<'_> {
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

/// Commits on their way together: enough for a group on SQLite, and few enough for the pool of PostgreSQL.
const AT_ONCE: usize = 32;

/// What a holder is told whose job has gone to somebody else.
pub const NO_LONGER_HELD: &str = "the job is no longer held by this worker";

/// What happened to a wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelling {
    Cancelled,
    /// It runs; whoever runs it will stop.
    Asked,
    /// There is no such job, or it ended before.
    NotLive,
}

impl TenantUnit {
    /// Nothing of the unit happens if the job is not this worker's any more. It goes on after it.
    pub fn guard_job(&mut self, job: &Claimed) {
        if failpoint::is_off(Guard::JobToken) {
            return;
        }
        let lock = if self.store.dialect() == Dialect::Postgres { " for share" } else { "" };
        self.unit.op_returning_exactly(
            1,
            NO_LONGER_HELD,
            format!("select 1 from jobs where tenant_id = $1 and id = $2 and token = $3 and state = 'running'{lock}"),
            params![job.tenant, job.id, job.token],
        );
    }

    /// The job ends with this unit, or, if it is not this worker's any more, nothing of the unit happens. `successor`
    /// becomes the id of the job that follows if it was asked for again meanwhile.
    pub fn finish(&mut self, job: &Claimed, end: End<'_>, successor: JobId) {
        finish_held(&mut self.unit, self.store.dialect(), job, end, successor);
        self.enqueues = true;
    }
}

impl SystemStore {
    /// The same for many at once that are done and wrote nothing; which of them were still ours.
    pub async fn finish_done(&self, jobs: &[Claimed], successor: impl Fn() -> JobId) -> Result<Vec<JobId>, StoreError> {
        let dialect = self.store.dialect();
        let (free, mut bound): (Vec<&Claimed>, Vec<&Claimed>) = jobs.iter().partition(|job| job.order_key.is_none());
        let mut finished = Vec::with_capacity(jobs.len());
        if !free.is_empty() {
            let mut unit = Unit::default();
            let moved = match dialect {
                Dialect::Postgres => move_many_postgres(&mut unit, &free),
                Dialect::Sqlite => move_many_sqlite(&mut unit, &free),
            };
            let ended: Vec<(TenantId, JobId)> = free.iter().map(|job| (job.tenant, job.id)).collect();
            let released = release_children(&mut unit, dialect, &ended);
            failpoint::before(Effect::FinishJobs);
            let committed = self.commit(unit).await?;
            failpoint::after(Effect::FinishJobs);
            if committed.changed(released) > 0 {
                self.store.hints.jobs_added_here();
            }
            for row in committed.returned(moved) {
                finished.push(row.get(0)?);
            }
            // Asked for again while they ran, or not ours any more.
            let ended: HashSet<JobId> = finished.iter().copied().collect();
            bound.extend(free.into_iter().filter(|job| job.is_unique && !ended.contains(&job.id)));
        }
        finished.extend(self.finish_bound(bound, successor).await?);
        Ok(finished)
    }

    /// Each in a unit of its own, for it has a key to look after; all on their way at once.
    async fn finish_bound(&self, jobs: Vec<&Claimed>, successor: impl Fn() -> JobId) -> Result<Vec<JobId>, StoreError> {
        let dialect = self.store.dialect();
        let finish = |job: &Claimed| {
            let (id, mut unit) = (job.id, Unit::default());
            finish_held(&mut unit, dialect, job, End::Done, successor());
            async move {
                failpoint::before(Effect::FinishJobs);
                let finished = match self.commit(unit).await {
                    Ok(_) => Some(id),
                    Err(StoreError::Precondition(NO_LONGER_HELD)) => None,
                    Err(e) => return Err(e),
                };
                failpoint::after(Effect::FinishJobs);
                Ok(finished)
            }
        };
        let units: Vec<_> = jobs.into_iter().map(finish).collect();
        let finished: Vec<Option<JobId>> = futures_util::stream::iter(units).buffered(AT_ONCE).try_collect().await?;
        if finished.iter().any(Option::is_some) {
            self.store.hints.jobs_added_here();
        }
        Ok(finished.into_iter().flatten().collect())
    }

    /// A job that nobody holds ends at once; one that runs is marked, and its worker stops it.
    pub async fn cancel_job(&self, tenant: TenantId, id: JobId, reason: &str) -> Result<Cancelling, StoreError> {
        let sql = "select order_key from jobs where tenant_id = $1 and id = $2";
        let Some(row) = self.query_one(sql, params![tenant, id]).await? else { return Ok(Cancelling::NotLive) };
        let order_key: Option<String> = row.get(0)?;
        let mut unit = Unit::default();
        if let Some(key) = &order_key {
            lock_key(&mut unit, tenant, key);
        }
        // Whatever its state: from here on nobody else changes that. What was asked for until now is not wanted either.
        let live = unit.op(
            "update jobs set cancel_reason = case when state = 'running' then $3 else cancel_reason end, rerun = false
             where tenant_id = $1 and id = $2",
            params![tenant, id, reason],
        );
        let end = End::Cancelled { reason };
        let job = (tenant, id, order_key.as_deref());
        let moved = finish_one(&mut unit, self.store.dialect(), job, end, FREE, None);
        failpoint::before(Effect::FinishJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::FinishJobs);
        Ok(match (committed.changed(live), committed.changed(moved)) {
            (0, 0) => Cancelling::NotLive,
            (_, 0) => Cancelling::Asked,
            _ => Cancelling::Cancelled,
        })
    }
}

/// Which rows may be ended: those that nobody holds.
const FREE: &str = "state <> 'running'";

const MOVED: &str =
    "insert into finished_jobs (id, tenant_id, kind, lane, state, payload, traceparent, token, worker, attempt,
    abandoned, reason, error_class, fingerprint, unique_key, order_key, created_at, started_at, ended_at)";

/// Everything but the end's own state and reasons comes from the row.
fn moved_columns(state: &str, reason: &str, class: &str, fingerprint: &str) -> String {
    format!(
        "j.id, j.tenant_id, j.kind, j.lane, {state}, j.payload, j.traceparent, j.token, j.worker, j.attempt, j.abandoned,
         {reason}, {class}, {fingerprint}, j.unique_key, j.order_key, j.created_at, j.started_at, mailroom_now()"
    )
}

pub(super) fn finish_held(unit: &mut Unit, dialect: Dialect, job: &Claimed, end: End<'_>, successor: JobId) {
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
        unit.op_exactly(1, NO_LONGER_HELD, sql, params);
    }
    if job.is_unique {
        follow(unit, job.tenant, job.id, successor);
    }
    after_the_move(unit, dialect, job.tenant, job.id, job.order_key.as_deref(), end);
}

/// Ends a job that is as `condition` says, if it is; the operation that tells. Its key is locked already.
pub(super) fn finish_one(
    unit: &mut Unit,
    dialect: Dialect,
    (tenant, id, order_key): (TenantId, JobId, Option<&str>),
    end: End<'_>,
    condition: &str,
    successor: Option<JobId>,
) -> crate::unit::OpId {
    let (sql, params) = move_one(dialect, tenant, id, end, condition);
    let moved = unit.op(sql, params);
    if let Some(successor) = successor {
        follow(unit, tenant, id, successor);
    }
    after_the_move(unit, dialect, tenant, id, order_key, end);
    moved
}

/// Asked for again while it ran: the row itself becomes the job that follows.
pub(super) fn follow(unit: &mut Unit, tenant: TenantId, id: JobId, successor: JobId) {
    unit.op(
        "update jobs set id = $3, state = 'ready', position = mailroom_micros(), run_at = mailroom_now(),
            created_at = mailroom_now(), token = 0, attempt = 0, abandoned = 0, suspected = 0, is_marked = false,
            worker = null, started_at = null, rerun = false, has_children = false, cancel_reason = null
         where tenant_id = $1 and id = $2 and rerun
           and exists (select 1 from finished_jobs where tenant_id = $1 and id = $2)",
        params![tenant, id, successor],
    );
}

fn move_one(dialect: Dialect, tenant: TenantId, id: JobId, end: End<'_>, condition: &str) -> (String, Vec<Value>) {
    let columns = moved_columns("$3", "$4", "$5", "$6");
    let sql = format!(
        "{MOVED} select {columns} from jobs j where j.tenant_id = $1 and j.id = $2 and {condition} {}",
        for_update(dialect)
    );
    let (reason, class, fingerprint) = end.details();
    (sql, params![tenant, id, end.state(), reason, class, fingerprint])
}

/// Nothing of this happens when the job was not moved: it is in `jobs` alone then.
fn after_the_move(unit: &mut Unit, dialect: Dialect, tenant: TenantId, id: JobId, key: Option<&str>, end: End<'_>) {
    unit.op(
        "delete from jobs where tenant_id = $1 and id = $2
         and exists (select 1 from finished_jobs where tenant_id = $1 and id = $2)",
        params![tenant, id],
    );
    match end {
        End::Done => drop(release_children(unit, dialect, &[(tenant, id)])),
        End::Dead { .. } | End::Cancelled { .. } => doom_children(unit, tenant, id),
    }
    if let End::Cancelled { .. } = end {
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

/// One that was asked for again stays: another follows it. Locked first, so that the second statement sees the rows as they stay, and can take them by where they are: a join
/// would be planned by what was once known of a table that fills and empties all the time.
fn move_many_postgres(unit: &mut Unit, jobs: &[&Claimed]) -> crate::unit::OpId {
    let list = |value: fn(&Claimed) -> Value| Value::List(jobs.iter().map(|job| value(job)).collect());
    let params = vec![list(|job| job.tenant.into()), list(|job| job.id.into()), list(|job| job.token.into())];
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
         {MOVED} select {} from gone j returning id",
        moved_columns("'done'", "null", "null", "null")
    );
    unit.op_returning(sql, params)
}

fn move_many_sqlite(unit: &mut Unit, jobs: &[&Claimed]) -> crate::unit::OpId {
    let held =
        if failpoint::is_off(Guard::JobToken) { "" } else { "and j.token = g.value ->> 1 and j.state = 'running'" };
    let given: Vec<(JobId, u64)> = jobs.iter().map(|job| (job.id, job.token)).collect();
    let given = Value::Json(serde_json::json!(given).to_string());
    let moved = unit.op_returning(
        format!(
            "{MOVED} select {} from json_each($1) g cross join jobs j on j.id = g.value ->> 0 {held} and not j.rerun
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
