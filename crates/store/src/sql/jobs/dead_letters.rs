//! Dead letters: jobs that failed too often. They are inspected, then replayed or discarded.

use std::time::Duration;

use domain::{JobId, JobState, TenantId};
use jiff::Timestamp;
use serde::Serialize;

use super::inspect::JobConditions;
use super::{JobFilter, NewJob, OnConflict, StartTime, UniqueKey, for_update};
use crate::failpoint::Effect;
use crate::unit::{Insert, InsertBatching};
use crate::value::{ColumnType, Value};
use crate::{Dialect, Precondition, Row, StoreError, SystemStore, Unit, params};

/// Dead letters with the same fingerprint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadGroup {
    pub fingerprint: String,
    pub kind: String,
    pub error_class: Option<String>,
    pub count: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// The message of one of them.
    pub sample: Option<String>,
}

/// How dead letters are replayed.
#[derive(Debug, Clone, Default)]
pub struct ReplayOptions {
    /// At most so many a second; `None`: all at once.
    pub per_second: Option<f64>,
    /// Their new payload; `None`: as before.
    pub payload: Option<serde_json::Value>,
}

/// As many as fit well into one commit.
const DEAD_BATCH_JOBS: u64 = 1000;

impl SystemStore {
    /// Lists groups of dead letters, the largest first.
    pub async fn list_dead_groups(&self, filter: &JobFilter) -> Result<Vec<DeadGroup>, StoreError> {
        let conditions = dead(filter);
        let sql = format!(
            "select coalesce(j.fingerprint, ''), j.kind, max(j.error_class), count(*), min(j.ended_at), max(j.ended_at),
                    max(j.reason)
             from finished_jobs j where {} group by j.fingerprint, j.kind order by count(*) desc, j.kind, j.fingerprint",
            conditions.text()
        );
        self.query(sql, conditions.params)
            .await?
            .iter()
            .map(|row: &Row| {
                Ok(DeadGroup {
                    fingerprint: row.get(0)?,
                    kind: row.get(1)?,
                    error_class: row.get(2)?,
                    count: row.get(3)?,
                    first_at: row.get(4)?,
                    last_at: row.get(5)?,
                    sample: row.get(6)?,
                })
            })
            .collect()
    }

    /// Makes a dead or cancelled job live again, with the same id and no spent attempts, last in the order of its key. Its token
    /// stays, because tokens never fall. Returns `false` if it is neither dead nor cancelled, or another job has its unique key.
    pub async fn replay_one(&self, tenant: TenantId, id: JobId, replay: &ReplayOptions) -> Result<bool, StoreError> {
        Ok(self.replay_batch(&[(tenant, id)], 0, replay).await? == 1)
    }

    /// Replays all dead letters that match; returns how many. If interrupted, the rest are still dead letters; and so are those
    /// whose unique key a live job has.
    pub async fn replay_dead(&self, filter: &JobFilter, replay: &ReplayOptions) -> Result<u64, StoreError> {
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

    /// Removes a dead letter for good, with its attempts. Returns `false` if there is no such one.
    pub async fn discard_one(&self, tenant: TenantId, id: JobId) -> Result<bool, StoreError> {
        Ok(self.discard_batch(&[(tenant, id)]).await? == 1)
    }

    /// Discards all dead letters that match; returns how many.
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

    /// Lists the next batch in the order of the primary key, so that each is met once.
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
        conditions.params.push(DEAD_BATCH_JOBS.into());
        let sql = format!(
            "select j.tenant_id, j.id from finished_jobs j where {wanted} order by j.tenant_id, j.id limit ${}",
            conditions.params.len()
        );
        self.query(sql, conditions.params).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    pub(in crate::sql) async fn replay_batch(
        &self,
        jobs: &[(TenantId, JobId)],
        begun: u64,
        replay: &ReplayOptions,
    ) -> Result<u64, StoreError> {
        let dialect = self.store.dialect();
        let these = pairs(dialect, "id");
        let mut replayed_with_keys = 0;
        let sql = format!(
            "select tenant_id, id, kind, lane, payload, traceparent, unique_key, order_key from finished_jobs
             where {these} and state <> 'done' and not ({WITHOUT_KEYS_SQL}) order by tenant_id, id"
        );
        for row in self.query(sql, lists(jobs)).await? {
            let (tenant, mut job) = keyed_job(&row)?;
            let place = begun + jobs.iter().position(|(_, id)| *id == job.id).unwrap_or(0) as u64;
            job.when = StartTime::In(Duration::from_millis(replay.delay(place)));
            job.payload = replay.payload.clone().unwrap_or(job.payload);
            replayed_with_keys += u64::from(self.replay_with_keys(tenant, job).await?);
        }
        let mut unit = Unit::default();
        // Serializes with a concurrent replay or discard of the same ones.
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
        let committed = self.commit_at(Effect::ReplayJobs, unit).await?;
        Ok(committed.changed(inserted) + replayed_with_keys)
    }

    /// Replays a job with keys by enqueueing it, with the locks that its keys need.
    async fn replay_with_keys(&self, tenant: TenantId, job: NewJob) -> Result<bool, StoreError> {
        let id = job.id;
        let this = "tenant_id = $1 and id = $2";
        let mut unit = self.write_for(tenant);
        let locked = format!(
            "select id from finished_jobs where {this} and state <> 'done' {}",
            for_update(self.store.dialect())
        );
        unit.unit.op_returning_exactly(1, Precondition::JobNotDead, locked, params![tenant, id]);
        unit.enqueue(vec![job]);
        let sql = format!(
            "update jobs set token = (select token from finished_jobs where {this}),
                 created_at = (select created_at from finished_jobs where {this})
             where {this}"
        );
        let live = unit.unit.op(sql, params![tenant, id]);
        let sql = format!("delete from finished_jobs where {this} and exists (select 1 from jobs where {this})");
        unit.unit.op(sql, params![tenant, id]);
        let committed = match unit.commit_at(Effect::ReplayJobs).await {
            Ok(committed) => committed,
            Err(StoreError::Precondition(Precondition::JobNotDead)) => return Ok(false),
            Err(e) => return Err(e),
        };
        Ok(committed.changed(live) == 1)
    }

    async fn discard_batch(&self, jobs: &[(TenantId, JobId)]) -> Result<u64, StoreError> {
        let mut unit = Unit::default();
        let deleted = delete_finished(&mut unit, self.store.dialect(), jobs, "state = 'dead'");
        let committed = self.commit_at(Effect::DiscardJobs, unit).await?;
        Ok(committed.changed(deleted))
    }
}

fn dead(filter: &JobFilter) -> JobConditions {
    JobConditions::of(&JobFilter { state: Some(JobState::Dead), ..filter.clone() })
}

const WITHOUT_KEYS_SQL: &str = "unique_key is null and order_key is null";

fn keyed_job(row: &Row) -> Result<(TenantId, NewJob), StoreError> {
    let unique: Option<String> = row.get(6)?;
    let job = NewJob {
        id: row.get(1)?,
        kind: row.get(2)?,
        lane: row.get(3)?,
        payload: row.get(4)?,
        when: StartTime::Now,
        unique: unique.map(|key| UniqueKey { key, policy: OnConflict::Keep }),
        order_key: row.get(7)?,
        after: Vec::new(),
        traceparent: row.get(5)?,
    };
    Ok((row.get(0)?, job))
}

impl ReplayOptions {
    /// Returns the delay of the job at this position, in whole milliseconds, as the database keeps them.
    fn delay(&self, place: u64) -> u64 {
        self.per_second.map_or(0, |rate| (place as f64 * 1000.0 / rate) as u64)
    }
}

const COLUMNS: &[(&str, ColumnType)] = &[
    ("tenant_id", ColumnType::Uuid),
    ("id", ColumnType::Uuid),
    ("delay", ColumnType::Int),
    ("payload", ColumnType::Json),
    ("ordinal", ColumnType::Int),
];

fn replayed(dialect: Dialect, jobs: &[(TenantId, JobId)], begun: u64, replay: &ReplayOptions) -> Insert {
    let run_at = super::later(dialect, "u.delay");
    Insert {
        into: "jobs (id, tenant_id, kind, lane, state, position, run_at, payload, traceparent, token, created_at)".into(),
        columns: COLUMNS,
        rows: jobs.iter().enumerate().map(|(n, (tenant, id)): (usize, &(TenantId, JobId))| {
        params![*tenant, *id, replay.delay(begun + n as u64), replay.payload.clone(), n]
    }).collect(),
        select: format!(
            "f.id, f.tenant_id, f.kind, f.lane, case when u.delay > 0 then 'scheduled' else 'ready' end,
             mailroom_micros() + u.ordinal, {run_at}, coalesce(u.payload, f.payload), f.traceparent, f.token, f.created_at"
        )
        .into(),
        join_where: "join finished_jobs f on f.tenant_id = u.tenant_id and f.id = u.id
                     where f.state <> 'done' and f.unique_key is null and f.order_key is null",
        on_conflict: "".into(),
        batching: InsertBatching::Many,
    }
}

/// Deletes those of the given jobs that are finished and still meet the condition, with their attempts; returns the operation
/// that counts them.
pub(super) fn delete_finished(
    unit: &mut Unit,
    dialect: Dialect,
    jobs: &[(TenantId, JobId)],
    condition: &str,
) -> crate::unit::OpId {
    let deleted =
        unit.op(format!("delete from finished_jobs where {} and {condition}", pairs(dialect, "id")), lists(jobs));
    // A job that was replayed meanwhile keeps its history.
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

/// Returns the condition that the row is one of those in [`lists`], by its key.
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
