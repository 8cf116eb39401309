//! Who works: a row per process, with one lease for all that it holds. Who does not renew it is taken for dead, and what
//! it held goes back.

use std::time::Duration;

use domain::{JobId, TenantId, WorkerId};

use super::finish::finish_one;
use super::release::lock_key;
use super::{Claimed, End, later, unless_cancelled};
use crate::failpoint::{self, Effect};
use crate::{Dialect, Row, StoreError, SystemStore, Unit, params};

/// A job that runs here and is to be stopped.
#[derive(Debug, Clone)]
pub struct StopRequest {
    pub id: JobId,
    pub why: Stop,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Somebody wants it to end.
    Cancel(String),
    /// Its tenant was switched off: it goes back, and has spent nothing.
    TenantOff,
}

/// What was taken from workers that are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abandoned {
    pub workers: u64,
    pub returned: u64,
    /// Ended, because it took its process with it too often.
    pub parked: u64,
}

/// A job that caused so many deaths is not tried again. The first may have had another cause, if it merely was around then.
const MOST_DEATHS: u64 = 3;

/// However often a job was around without being to blame, that counts once at most.
const AROUND: &str = "case when suspected > 0 then 1 else 0 end";

/// Longer than a claim takes to be answered.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// What a worker is told that was taken for dead.
pub const LEASE_LOST: &str = "this worker's lease has run out";

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
        self.commit(unit).await?;
        Ok(id)
    }

    /// Fails with [`LEASE_LOST`] when it is too late; otherwise tells what is to be stopped.
    pub async fn renew_worker(&self, id: WorkerId, lease: Duration) -> Result<Vec<StopRequest>, StoreError> {
        let until = later(self.store.dialect(), "$2");
        let mut unit = Unit::default();
        unit.op_exactly(
            1,
            LEASE_LOST,
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
        let request = |row: &Row| {
            let why = row.get::<Option<String>>(1)?.map_or(Stop::TenantOff, Stop::Cancel);
            Ok(StopRequest { id: row.get(0)?, why })
        };
        committed.returned(wanted).iter().map(request).collect()
    }

    /// Written before a suspect starts: if the process dies now, it is known whom to blame. `false`: not ours any more.
    pub async fn mark_started(&self, job: &Claimed) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let marked = unit.op(
            "update jobs set is_marked = true where tenant_id = $1 and id = $2 and token = $3 and state = 'running'",
            params![job.tenant, job.id, job.token],
        );
        failpoint::before(Effect::MarkJob);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::MarkJob);
        Ok(committed.changed(marked) == 1)
    }

    /// Jobs that were not begun, or are not to go on now, go back, and have spent nothing.
    pub async fn give_back(&self, worker: WorkerId, jobs: &[JobId]) -> Result<u64, StoreError> {
        let sql = format!(
            "{} where worker = $1 and state = 'running' and {}",
            give_back_sql(),
            crate::sql::any(self.store.dialect(), "id", 2)
        );
        let mut unit = Unit::default();
        let returned = unit.op(sql, params![worker, jobs.to_vec()]);
        failpoint::before(Effect::GiveBackJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::GiveBackJobs);
        self.store.hints.jobs_added_here();
        Ok(committed.changed(returned))
    }

    /// Gives back what the database thinks this worker runs and what it does not know of: a claim whose answer was lost,
    /// or a completion that the database did not take. `held` is all that it knows of.
    pub async fn give_back_unknown(&self, worker: WorkerId, held: &[JobId]) -> Result<u64, StoreError> {
        // One that no job has, so that the list is never empty.
        let held: Vec<JobId> = held.iter().copied().chain([JobId(uuid::Uuid::nil())]).collect();
        let dialect = self.store.dialect();
        let unknown = match dialect {
            // An empty list goes over as null.
            Dialect::Postgres => "not coalesce(id = any($2), false)",
            Dialect::Sqlite => "id not in (select value from json_each($2))",
        };
        // An answer may be on its way.
        let a_while_ago = later(dialect, &format!("(-{})", millis(ANSWER_TIME)));
        let mut unit = Unit::default();
        let returned = unit.op(
            format!(
                "{} where worker = $1 and state = 'running' and {unknown} and started_at < {a_while_ago}",
                give_back_sql()
            ),
            params![worker, held],
        );
        failpoint::before(Effect::GiveBackJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::GiveBackJobs);
        Ok(committed.changed(returned))
    }

    /// It leaves. Whatever it still holds goes back, and nobody is to blame.
    pub async fn dismiss_worker(&self, id: WorkerId) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(format!("{} where worker = $1 and state = 'running'", give_back_sql()), params![id]);
        unit.op("update job_workers set gone_at = mailroom_now() where id = $1 and gone_at is null", params![id]);
        self.commit(unit).await.map(drop)
    }

    /// Takes back what workers hold whose lease has run out. `successor` makes ids for jobs that were asked for again and
    /// follow one that is parked.
    pub async fn take_back_abandoned(&self, successor: impl Fn() -> JobId) -> Result<Abandoned, StoreError> {
        let mut unit = Unit::default();
        let expired = unit.op(
            "update job_workers set gone_at = mailroom_now()
             where gone_at is null and lease_until < (select mailroom_now())",
            vec![],
        );
        let workers = self.commit(unit).await?.changed(expired);
        let mut abandoned = Abandoned { workers, ..Abandoned::default() };
        // Also what a worker claimed that was gone already; it has not noticed yet.
        let sql = "select w.id from job_workers w where w.gone_at is not null
                   and exists (select 1 from jobs j where j.worker = w.id and j.state = 'running')";
        for row in self.query(sql, vec![]).await? {
            let worker: WorkerId = row.get(0)?;
            abandoned.returned += self.return_jobs_of(worker).await?;
            abandoned.parked += self.park_jobs_of(worker, &successor).await?;
        }
        if abandoned.returned + abandoned.parked > 0 {
            self.store.hints.jobs_added_here();
        }
        Ok(abandoned)
    }

    /// All but those that are to be parked. One that was marked, or that was alone, is to blame; the others were there.
    async fn return_jobs_of(&self, worker: WorkerId) -> Result<u64, StoreError> {
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
            params![worker, DIED],
        );
        let returned = unit.op(
            format!(
                "update jobs set {}, worker = null, position = mailroom_micros(),
                abandoned = abandoned + case when is_marked then 1 else 0 end,
                suspected = suspected + case when is_marked then 0 else 1 end, is_marked = false
             where worker = $1 and state = 'running' and not (is_marked and abandoned + {AROUND} + 1 >= $2)",
                unless_cancelled("ready")
            ),
            params![worker, MOST_DEATHS],
        );
        failpoint::before(Effect::ReturnJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::ReturnJobs);
        Ok(committed.changed(returned))
    }

    async fn park_jobs_of(&self, worker: WorkerId, successor: &impl Fn() -> JobId) -> Result<u64, StoreError> {
        let sql = format!(
            "select tenant_id, id, order_key from jobs where worker = $1 and state = 'running' and is_marked
             and abandoned + {AROUND} + 1 >= $2 order by id"
        );
        let mut parked = 0;
        for row in self.query(sql, params![worker, MOST_DEATHS]).await? {
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
            let end = End::Dead { reason: POISON, error_class: "poison", fingerprint: "poison" };
            let dialect = self.store.dialect();
            let job = (tenant, id, order_key.as_deref());
            let moved = finish_one(&mut unit, dialect, job, end, &held, Some(successor()));
            failpoint::before(Effect::ParkJob);
            parked += self.commit(unit).await?.changed(moved);
            failpoint::after(Effect::ParkJob);
        }
        Ok(parked)
    }
}

/// A suspect that had begun, which its mark tells, was survived and is none any more.
fn give_back_sql() -> String {
    format!(
        "update jobs set {}, worker = null, started_at = null, is_marked = false,
             suspected = case when is_marked then 0 else suspected end",
        unless_cancelled("ready")
    )
}

const DIED: &str = "the process that ran it died or stopped";

const POISON: &str = "the process that ran it died too often; mend what it does, then replay it";

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
