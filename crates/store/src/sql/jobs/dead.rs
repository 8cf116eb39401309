//! Dead letters: jobs that went wrong too often. They are looked at, put right and replayed, or thrown away.

use std::time::Duration;

use domain::{JobId, JobState, TenantId};
use jiff::Timestamp;
use serde::Serialize;

use super::inspect::Conditions;
use super::{JobFilter, NewJob, OnConflict, Unique, When, for_update};
use crate::failpoint::{self, Effect};
use crate::unit::{By, Insert};
use crate::value::{Kind, Value};
use crate::{Dialect, Row, StoreError, SystemStore, Unit, params};

/// Dead letters of one sort.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadGroup {
    pub fingerprint: String,
    pub kind: String,
    pub error_class: Option<String>,
    pub count: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// What one of them says.
    pub sample: Option<String>,
}

/// How jobs start again.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// At most so many a second; none: all at once.
    pub per_second: Option<f64>,
    /// What they are about now; none: as before.
    pub payload: Option<serde_json::Value>,
}

/// As many as fit well into one commit.
const BATCH: u64 = 1000;

impl SystemStore {
    /// The largest groups first.
    pub async fn list_dead_groups(&self, filter: &JobFilter) -> Result<Vec<DeadGroup>, StoreError> {
        let conditions = dead(filter);
        let sql = format!(
            "select coalesce(j.fingerprint, ''), j.kind, max(j.error_class), count(*), min(j.ended_at), max(j.ended_at),
                    max(j.reason)
             from finished_jobs j where {} group by j.fingerprint, j.kind order by count(*) desc, j.kind, j.fingerprint",
            conditions.text()
        );
        let group = |row: &Row| {
            Ok(DeadGroup {
                fingerprint: row.get(0)?,
                kind: row.get(1)?,
                error_class: row.get(2)?,
                count: row.get(3)?,
                first_at: row.get(4)?,
                last_at: row.get(5)?,
                sample: row.get(6)?,
            })
        };
        self.query(sql, conditions.params).await?.iter().map(group).collect()
    }

    /// A dead or cancelled job is live again, with the same id and all its attempts to spend, last in the order of its key.
    /// Its token stays, for tokens never fall. `false`: it is neither dead nor cancelled, or another has its unique key.
    pub async fn replay_one(&self, tenant: TenantId, id: JobId, replay: &Replay) -> Result<bool, StoreError> {
        Ok(self.replay_batch(&[(tenant, id)], 0, replay).await? == 1)
    }

    /// All dead letters that match; how many. Interrupted, the rest are still dead letters; and so are those of whose unique
    /// key another lives.
    pub async fn replay_dead(&self, filter: &JobFilter, replay: &Replay) -> Result<u64, StoreError> {
        let (mut replayed, mut begun) = (0, 0);
        let mut after = None;
        loop {
            let batch = self.next_dead(filter, after).await?;
            let Some(last) = batch.last() else { return Ok(replayed) };
            after = Some(*last);
            replayed += self.replay_batch(&batch, begun, replay).await?;
            begun += batch.len() as u64;
        }
    }

    /// Removes a dead letter for good, with its attempts. `false`: there is no such one.
    pub async fn discard_one(&self, tenant: TenantId, id: JobId) -> Result<bool, StoreError> {
        Ok(self.discard_batch(&[(tenant, id)]).await? == 1)
    }

    /// All that match; how many.
    pub async fn discard_dead(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        let mut discarded = 0;
        let mut after = None;
        loop {
            let batch = self.next_dead(filter, after).await?;
            let Some(last) = batch.last() else { return Ok(discarded) };
            after = Some(*last);
            discarded += self.discard_batch(&batch).await?;
        }
    }

    /// In the order of their keys, so that each is met once.
    async fn next_dead(
        &self,
        filter: &JobFilter,
        after: Option<(TenantId, JobId)>,
    ) -> Result<Vec<(TenantId, JobId)>, StoreError> {
        let mut conditions = dead(filter);
        let mut wanted = conditions.text();
        if let Some((tenant, id)) = after {
            conditions.params.extend(params![tenant, id]);
            let n = conditions.params.len();
            wanted = format!("{wanted} and (j.tenant_id, j.id) > (${}, ${n})", n - 1);
        }
        conditions.params.push(BATCH.into());
        let sql = format!(
            "select j.tenant_id, j.id from finished_jobs j where {wanted} order by j.tenant_id, j.id limit ${}",
            conditions.params.len()
        );
        self.query(sql, conditions.params).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    async fn replay_batch(&self, jobs: &[(TenantId, JobId)], begun: u64, replay: &Replay) -> Result<u64, StoreError> {
        let dialect = self.store.dialect();
        let these = pairs(dialect, "id");
        let mut replayed_with_keys = 0;
        let sql = format!(
            "select tenant_id, id, kind, lane, payload, traceparent, unique_key, order_key from finished_jobs
             where {these} and state <> 'done' and not ({WITHOUT_KEYS}) order by tenant_id, id"
        );
        for row in self.query(sql, lists(jobs)).await? {
            let (tenant, mut job) = with_keys(&row)?;
            let place = begun + jobs.iter().position(|(_, id)| *id == job.id).unwrap_or(0) as u64;
            job.when = When::In(Duration::from_millis(replay.delay(place)));
            job.payload = replay.payload.clone().unwrap_or(job.payload);
            replayed_with_keys += u64::from(self.replay_with_keys(tenant, job).await?);
        }
        let mut unit = Unit::default();
        // Whoever replays or discards the same ones at this moment comes first or second, never both.
        unit.op_returning(
            format!("select id from finished_jobs where {these} and state <> 'done' {}", for_update(dialect)),
            lists(jobs),
        );
        let inserted = unit.insert(replayed(dialect, jobs, begun, replay));
        unit.op(
            format!(
                "delete from finished_jobs where {these} and exists (
                     select 1 from jobs j where j.tenant_id = finished_jobs.tenant_id and j.id = finished_jobs.id)"
            ),
            lists(jobs),
        );
        failpoint::before(Effect::ReplayJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::ReplayJobs);
        Ok(committed.changed(inserted) + replayed_with_keys)
    }

    /// As it was first added, with the locks that its keys need.
    async fn replay_with_keys(&self, tenant: TenantId, job: NewJob) -> Result<bool, StoreError> {
        let id = job.id;
        let this = "tenant_id = $1 and id = $2";
        let mut unit = self.write_for(tenant);
        let locked = format!(
            "select id from finished_jobs where {this} and state <> 'done' {}",
            for_update(self.store.dialect())
        );
        unit.unit.op_returning_exactly(1, NOT_DEAD, locked, params![tenant, id]);
        unit.enqueue(vec![job]);
        let from = |column: &str| format!("{column} = (select {column} from finished_jobs where {this})");
        let sql = format!("update jobs set {}, {} where {this}", from("token"), from("created_at"));
        let live = unit.unit.op(sql, params![tenant, id]);
        let sql = format!("delete from finished_jobs where {this} and exists (select 1 from jobs where {this})");
        unit.unit.op(sql, params![tenant, id]);
        failpoint::before(Effect::ReplayJobs);
        let committed = match unit.commit().await {
            Ok(committed) => committed,
            Err(StoreError::Precondition(NOT_DEAD)) => return Ok(false),
            Err(e) => return Err(e),
        };
        failpoint::after(Effect::ReplayJobs);
        Ok(committed.changed(live) == 1)
    }

    async fn discard_batch(&self, jobs: &[(TenantId, JobId)]) -> Result<u64, StoreError> {
        let mut unit = Unit::default();
        let deleted = delete_finished(&mut unit, self.store.dialect(), jobs, "state = 'dead'");
        failpoint::before(Effect::DiscardJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::DiscardJobs);
        Ok(committed.changed(deleted))
    }
}

fn dead(filter: &JobFilter) -> Conditions {
    Conditions::of(&JobFilter { state: Some(JobState::Dead), ..filter.clone() })
}

/// Somebody else replayed or discarded it.
const NOT_DEAD: &str = "the job is not dead any more";

const WITHOUT_KEYS: &str = "unique_key is null and order_key is null";

fn with_keys(row: &Row) -> Result<(TenantId, NewJob), StoreError> {
    let unique: Option<String> = row.get(6)?;
    let job = NewJob {
        id: row.get(1)?,
        kind: row.get(2)?,
        lane: row.get(3)?,
        payload: row.get(4)?,
        when: When::Now,
        unique: unique.map(|key| Unique { key, policy: OnConflict::Keep }),
        order_key: row.get(7)?,
        after: Vec::new(),
        traceparent: row.get(5)?,
    };
    Ok((row.get(0)?, job))
}

impl Replay {
    /// Of the so-manyth, in whole milliseconds, as the database keeps them.
    fn delay(&self, place: u64) -> u64 {
        self.per_second.map_or(0, |rate| (place as f64 * 1000.0 / rate) as u64)
    }
}

const COLUMNS: &[(&str, Kind)] = &[
    ("tenant_id", Kind::Uuid),
    ("id", Kind::Uuid),
    ("delay", Kind::Int),
    ("payload", Kind::Json),
    ("ordinal", Kind::Int),
];

fn replayed(dialect: Dialect, jobs: &[(TenantId, JobId)], begun: u64, replay: &Replay) -> Insert {
    let row = |(n, (tenant, id)): (usize, &(TenantId, JobId))| {
        params![*tenant, *id, replay.delay(begun + n as u64), replay.payload.clone(), n]
    };
    let run_at = super::later(dialect, "u.delay");
    Insert {
        into: "jobs (id, tenant_id, kind, lane, state, position, run_at, payload, traceparent, token, created_at)".into(),
        columns: COLUMNS,
        rows: jobs.iter().enumerate().map(row).collect(),
        select: format!(
            "f.id, f.tenant_id, f.kind, f.lane, case when u.delay > 0 then 'scheduled' else 'ready' end,
             mailroom_micros() + u.ordinal, {run_at}, coalesce(u.payload, f.payload), f.traceparent, f.token, f.created_at"
        )
        .into(),
        join_where: "join finished_jobs f on f.tenant_id = u.tenant_id and f.id = u.id
                     where f.state <> 'done' and f.unique_key is null and f.order_key is null",
        on_conflict: "".into(),
        by: By::Many,
    }
}

/// Those of the given jobs that are finished and still as the condition says, with their attempts; the operation that
/// tells how many.
pub(super) fn delete_finished(
    unit: &mut Unit,
    dialect: Dialect,
    jobs: &[(TenantId, JobId)],
    condition: &str,
) -> crate::unit::OpId {
    let deleted =
        unit.op(format!("delete from finished_jobs where {} and {condition}", pairs(dialect, "id")), lists(jobs));
    // Whoever was replayed meanwhile keeps its history.
    unit.op(
        format!(
            "delete from job_attempts where {}
             and not exists (select 1 from jobs j where j.tenant_id = job_attempts.tenant_id and j.id = job_attempts.job_id)
             and not exists (select 1 from finished_jobs f where f.tenant_id = job_attempts.tenant_id and f.id = job_attempts.job_id)",
            pairs(dialect, "job_id")
        ),
        lists(jobs),
    );
    deleted
}

/// The row is one of those in [`lists`], found by its key.
fn pairs(dialect: Dialect, id: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("(tenant_id, {id}) in (select * from unnest($1::uuid[], $2::uuid[]))"),
        Dialect::Sqlite => {
            format!("tenant_id in (select value from json_each($1)) and {id} in (select value from json_each($2))")
        }
    }
}

fn lists(jobs: &[(TenantId, JobId)]) -> Vec<Value> {
    let tenants: Vec<TenantId> = jobs.iter().map(|(tenant, _)| *tenant).collect();
    let ids: Vec<JobId> = jobs.iter().map(|(_, id)| *id).collect();
    params![tenants, ids]
}
