//! Workers: a row per process, with one lease for all jobs that it holds. A worker that does not renew it counts as dead, and
//! its jobs are returned to the queue.

use std::time::Duration;

use domain::{JobId, TenantId, WorkerId};

use super::finish::finish_one;
use super::release::lock_key;
use super::unregistered_kinds::forget_unregistered;
use super::{ClaimedJob, JobEnd, later, unless_cancelled};
use crate::failpoint::Effect;
use crate::{Dialect, Precondition, Row, StoreError, SystemStore, Unit, params};

/// A running job that must be stopped.
#[derive(Debug, Clone)]
pub struct StopRequest {
    pub id: JobId,
    pub why: StopReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// It was cancelled, with this reason.
    Cancel(String),
    /// Its tenant was deactivated: it is returned without spending an attempt.
    TenantOff,
}

/// What was reclaimed from workers that are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    pub workers: u64,
    pub returned: u64,
    /// Jobs that became dead letters, because their process died too often.
    pub parked: u64,
}

/// A job that caused so many deaths of processes is not tried again. The first may have had another cause, if the job was a
/// mere bystander.
const MAX_CRASHES: u64 = 3;

/// Deaths with a job as a mere bystander count once at most.
const MAX_INCIDENTAL_CRASHES: &str = "case when suspected > 0 then 1 else 0 end";

/// Longer than the answer to a claim takes.
const CLAIM_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl SystemStore {
    pub async fn register_worker(&self, name: &str, kinds: &[String], lease: Duration) -> Result<WorkerId, StoreError> {
        let id = WorkerId::new(self.store.clock());
        let until = later(self.store.dialect(), "$4");
        let mut unit = Unit::default();
        unit.op(
            format!(
                "insert into job_workers (id, name, kinds, lease_until, started_at)
                 values ($1, $2, $3, {until}, mailroom_now())"
            ),
            params![id, name, serde_json::json!(kinds), millis(lease)],
        );
        forget_unregistered(&mut unit, self.store.dialect(), kinds);
        self.commit(unit).await?;
        Ok(id)
    }

    /// Renews the lease of a worker and returns the jobs that it must stop. Fails with
    /// [`Precondition::WorkerLeaseExpired`] when it is too late.
    pub async fn renew_worker(&self, id: WorkerId, lease: Duration) -> Result<Vec<StopRequest>, StoreError> {
        let until = later(self.store.dialect(), "$2");
        let mut unit = Unit::default();
        unit.op_exactly(
            1,
            Precondition::WorkerLeaseExpired,
            format!("update job_workers set lease_until = {until} where id = $1 and gone_at is null"),
            params![id, millis(lease)],
        );
        let wanted = unit.op_returning(
            "select j.id, case when coalesce(t.is_active, true) then j.cancel_reason end
             from jobs j left join tenants t on t.id = j.tenant_id
             where j.worker = $1 and j.state = 'running' and (j.cancel_reason is not null or not coalesce(t.is_active, true))",
            params![id],
        );
        let committed = self.commit(unit).await?;
        committed
            .returned(wanted)
            .iter()
            .map(|row: &Row| {
                let why = row.get::<Option<String>>(1)?.map_or(StopReason::TenantOff, StopReason::Cancel);
                Ok(StopRequest { id: row.get(0)?, why })
            })
            .collect()
    }

    /// Marks a suspect before it starts: if the process dies now, the job is to blame. Returns `false` if the job is not held
    /// any more.
    pub async fn mark_started(&self, job: &ClaimedJob) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let marked = unit.op(
            "update jobs set is_marked = true where tenant_id = $1 and id = $2 and token = $3 and state = 'running'",
            params![job.tenant, job.id, job.token],
        );
        let committed = self.commit_at(Effect::MarkJob, unit).await?;
        Ok(committed.changed(marked) == 1)
    }

    /// Returns jobs to the queue that were not begun, or must not go on now, without spending an attempt.
    pub async fn return_jobs(&self, worker: WorkerId, jobs: &[JobId]) -> Result<u64, StoreError> {
        let sql = format!(
            "{} where worker = $1 and state = 'running' and {}",
            give_back_sql(),
            crate::sql::any(self.store.dialect(), "id", 2)
        );
        let mut unit = Unit::default();
        let returned = unit.op(sql, params![worker, jobs.to_vec()]);
        let committed = self.commit_at(Effect::GiveBackJobs, unit).await?;
        self.store.notifications.notify_local();
        Ok(committed.changed(returned))
    }

    /// Returns jobs to the queue that this worker holds in the database but does not know of: of a claim whose answer was lost,
    /// or a completion that the database did not accept. `held` are the jobs that it knows of.
    pub async fn return_unknown_jobs(&self, worker: WorkerId, held: &[JobId]) -> Result<u64, StoreError> {
        // An id that no job has, so that the list is never empty.
        let held: Vec<JobId> = held.iter().copied().chain([JobId(uuid::Uuid::nil())]).collect();
        let dialect = self.store.dialect();
        let unknown = match dialect {
            // An empty list goes over as null.
            Dialect::Postgres => "not coalesce(id = any($2), false)",
            Dialect::Sqlite => "id not in (select value from json_each($2))",
        };
        // An answer may be on its way.
        let a_while_ago = later(dialect, &format!("(-{})", millis(CLAIM_ANSWER_TIMEOUT)));
        let mut unit = Unit::default();
        let returned = unit.op(
            format!(
                "{} where worker = $1 and state = 'running' and {unknown} and started_at < {a_while_ago}",
                give_back_sql()
            ),
            params![worker, held],
        );
        let committed = self.commit_at(Effect::GiveBackJobs, unit).await?;
        Ok(committed.changed(returned))
    }

    /// Removes a worker. The jobs that it still holds are returned, without blame.
    pub async fn dismiss_worker(&self, id: WorkerId) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(format!("{} where worker = $1 and state = 'running'", give_back_sql()), params![id]);
        unit.op("update job_workers set gone_at = mailroom_now() where id = $1 and gone_at is null", params![id]);
        self.commit(unit).await.map(drop)
    }

    /// Reclaims the jobs of workers whose lease has expired. `successor` makes ids for jobs that were enqueued again and follow
    /// a parked one.
    pub async fn reclaim_abandoned_jobs(&self, successor: impl Fn() -> JobId) -> Result<ReclaimReport, StoreError> {
        let mut unit = Unit::default();
        let expired = unit.op(
            "update job_workers set gone_at = mailroom_now()
             where gone_at is null and lease_until < (select mailroom_now())",
            vec![],
        );
        let workers = self.commit(unit).await?.changed(expired);
        let mut abandoned = ReclaimReport { workers, ..ReclaimReport::default() };
        // Also jobs that a worker claimed after its lease had expired; it has not noticed yet.
        let sql = "select w.id from job_workers w where w.gone_at is not null
                   and exists (select 1 from jobs j where j.worker = w.id and j.state = 'running')";
        for row in self.query(sql, vec![]).await? {
            let worker: WorkerId = row.get(0)?;
            abandoned.returned += self.return_jobs_of_dead_worker(worker).await?;
            abandoned.parked += self.dead_letter_jobs_of_dead_worker(worker, &successor).await?;
        }
        if abandoned.returned + abandoned.parked > 0 {
            self.store.notifications.notify_local();
        }
        Ok(abandoned)
    }

    /// Returns all jobs but those to be parked. One that was marked, or that ran alone, is to blame; the others were bystanders.
    async fn return_jobs_of_dead_worker(&self, worker: WorkerId) -> Result<u64, StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "update jobs set is_marked = true where worker = $1 and state = 'running' and not is_marked
             and (select count(*) from jobs where worker = $1 and state = 'running') = 1",
            params![worker],
        );
        unit.op(
            "insert into job_attempts (tenant_id, job_id, token, outcome, error_class, message, fingerprint, worker,
                                       started_at, ended_at)
             select tenant_id, id, token, 'abandoned', 'abandoned', $2, 'abandoned', worker, started_at, mailroom_now()
             from jobs where worker = $1 and state = 'running' and is_marked on conflict do nothing",
            params![worker, PROCESS_DIED],
        );
        let returned = unit.op(
            format!(
                "update jobs set {}, worker = null, position = mailroom_micros(),
                abandoned = abandoned + case when is_marked then 1 else 0 end,
                suspected = suspected + case when is_marked then 0 else 1 end, is_marked = false
             where worker = $1 and state = 'running' and not (is_marked and abandoned + {MAX_INCIDENTAL_CRASHES} + 1 >= $2)",
                unless_cancelled("ready")
            ),
            params![worker, MAX_CRASHES],
        );
        let committed = self.commit_at(Effect::ReturnJobs, unit).await?;
        Ok(committed.changed(returned))
    }

    async fn dead_letter_jobs_of_dead_worker(
        &self,
        worker: WorkerId,
        successor: &impl Fn() -> JobId,
    ) -> Result<u64, StoreError> {
        let sql = format!(
            "select tenant_id, id, order_key from jobs where worker = $1 and state = 'running' and is_marked
             and abandoned + {MAX_INCIDENTAL_CRASHES} + 1 >= $2 order by id"
        );
        let mut parked = 0;
        for row in self.query(sql, params![worker, MAX_CRASHES]).await? {
            let (tenant, id, order_key): (TenantId, JobId, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let mut unit = Unit::default();
            if let Some(key) = &order_key {
                lock_key(&mut unit, tenant, key);
            }
            let held = format!("state = 'running' and is_marked and worker = '{worker}'");
            unit.op(
                format!("update jobs set abandoned = abandoned + 1 where tenant_id = $1 and id = $2 and {held}"),
                params![tenant, id],
            );
            let end = JobEnd::Dead { reason: POISONED, error_class: "poison", fingerprint: "poison" };
            let dialect = self.store.dialect();
            let job = (tenant, id, order_key.as_deref());
            let moved = finish_one(&mut unit, dialect, job, end, &held, Some(successor()));
            parked += self.commit_at(Effect::ParkJob, unit).await?.changed(moved);
        }
        Ok(parked)
    }
}

/// Returns the update that gives jobs back. A suspect that had begun, as its mark shows, was survived and is none any more.
fn give_back_sql() -> String {
    format!(
        "update jobs set {}, worker = null, started_at = null, is_marked = false,
             suspected = case when is_marked then 0 else suspected end",
        unless_cancelled("ready")
    )
}

const PROCESS_DIED: &str = "the process that ran it died or stopped";

const POISONED: &str = "its process crashed too often; fix the cause, then replay the job";

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
