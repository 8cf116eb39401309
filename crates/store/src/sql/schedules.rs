//! Recurring jobs by cron schedules. The crate `jobs` evaluates cron lines; here are the rows, and the guarantee that each time
//! fires once.

use domain::{JobId, Lane, TenantId, redact_for_log};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::jobs::NewJob;
use crate::failpoint::Effect;
use crate::{Precondition, Row, StoreError, SystemStore, Unit, params};

/// What happens with times at which no scheduler ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissedPolicy {
    /// One run for all of them.
    RunOnce,
    Skip,
}

/// What happens when it is time and the last job is still live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    Skip,
    /// Side by side.
    Allow,
    /// One after the other.
    Queue,
}

/// The definition of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    pub name: String,
    pub tenant: TenantId,
    pub kind: String,
    pub lane: Lane,
    pub payload: serde_json::Value,
    pub cron: String,
    pub zone: String,
    pub missed: MissedPolicy,
    pub overlap: OverlapPolicy,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schedule {
    pub name: String,
    pub tenant_id: TenantId,
    pub kind: String,
    pub lane: Lane,
    pub payload: serde_json::Value,
    pub cron: String,
    pub zone: String,
    pub missed: MissedPolicy,
    pub overlap: OverlapPolicy,
    pub is_paused: bool,
    pub next_at: Timestamp,
    pub last_at: Option<Timestamp>,
    pub last_job: Option<JobId>,
}

/// A held lease, from [`SystemStore::acquire_lease`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseToken<'a> {
    pub name: &'a str,
    pub token: u64,
}

const COLUMNS: &str =
    "name, tenant_id, kind, lane, payload, cron, zone, missed, overlap, is_paused, next_at, last_at, last_job";

impl SystemStore {
    /// Stores a new or changed definition. Its pause stays; so does the next time, unless the cron line has changed.
    pub async fn put_schedule(&self, schedule: &NewSchedule, next_at: Timestamp) -> Result<(), StoreError> {
        let NewSchedule { name, tenant, kind, lane, payload, cron, zone, missed, overlap } = schedule;
        let mut unit = Unit::default();
        unit.op(
            "insert into job_schedules (name, tenant_id, kind, lane, payload, cron, zone, missed, overlap, next_at, updated_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, mailroom_now())
             on conflict (tenant_id, name) do update set kind = excluded.kind, lane = excluded.lane,
                 payload = excluded.payload, cron = excluded.cron, zone = excluded.zone, missed = excluded.missed,
                 overlap = excluded.overlap, updated_at = excluded.updated_at,
                 next_at = case when job_schedules.cron = excluded.cron and job_schedules.zone = excluded.zone
                                then job_schedules.next_at else excluded.next_at end",
            params![
                name,
                *tenant,
                kind,
                *lane,
                payload.clone(),
                cron,
                zone,
                missed.as_str(),
                overlap.as_str(),
                next_at
            ],
        );
        self.commit_at(Effect::PutSchedule, unit).await?;
        Ok(())
    }

    /// Removes a schedule. Returns `false` if there was none of that name.
    pub async fn remove_schedule(&self, tenant: TenantId, name: &str) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let removed = unit.op("delete from job_schedules where tenant_id = $1 and name = $2", params![tenant, name]);
        Ok(self.commit(unit).await?.changed(removed) == 1)
    }

    pub async fn list_schedules(&self) -> Result<Vec<Schedule>, StoreError> {
        let sql = format!("select {COLUMNS} from job_schedules order by name");
        self.query(sql, vec![]).await?.iter().map(schedule).collect()
    }

    pub async fn find_schedule(&self, tenant: TenantId, name: &str) -> Result<Option<Schedule>, StoreError> {
        let sql = format!("select {COLUMNS} from job_schedules where tenant_id = $1 and name = $2");
        self.query_one(sql, params![tenant, name]).await?.as_ref().map(schedule).transpose()
    }

    /// Lists the schedules that are due, the earliest first, without paused ones and those that only a newer version can read.
    pub async fn list_due_schedules(&self, now: Timestamp) -> Result<Vec<Schedule>, StoreError> {
        let sql =
            format!("select {COLUMNS} from job_schedules where not is_paused and next_at <= $1 order by next_at, name");
        Ok(self
            .query(sql, params![now])
            .await?
            .iter()
            .filter_map(|row: &Row| match schedule(row) {
                Ok(schedule) => Some(schedule),
                Err(e) => {
                    let name: String = row.get(0).unwrap_or_default();
                    tracing::warn!(schedule = name, error = redact_for_log(&e), "skipped unreadable schedule");
                    None
                }
            })
            .collect())
    }

    /// Resumes a schedule; returns whether anything changed. `next_at` is the next time that fires: times that passed during the
    /// pause are not missed.
    pub async fn resume_schedule(&self, tenant: TenantId, name: &str, next_at: Timestamp) -> Result<bool, StoreError> {
        let sql = "update job_schedules set is_paused = false, next_at = $3, updated_at = mailroom_now()
                   where tenant_id = $1 and name = $2 and is_paused";
        self.switch_schedule(sql, params![tenant, name, next_at]).await
    }

    /// Pauses a schedule; returns whether anything changed.
    pub async fn pause_schedule(&self, tenant: TenantId, name: &str) -> Result<bool, StoreError> {
        let sql = "update job_schedules set is_paused = true, updated_at = mailroom_now()
                   where tenant_id = $1 and name = $2 and not is_paused";
        self.switch_schedule(sql, params![tenant, name]).await
    }

    async fn switch_schedule(&self, sql: &str, params: Vec<crate::Value>) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let changed = unit.op(sql, params);
        let committed = self.commit_at(Effect::PauseSchedule, unit).await?;
        Ok(committed.changed(changed) == 1)
    }

    /// Fires the schedule's current time: the job is enqueued by the commit that advances the schedule, so that it is enqueued
    /// once, however many instances try. No job: the time passes unused. Returns `false` if another instance was first. Fails
    /// with [`Precondition::LeaseTakenOver`] when another process has the lease.
    pub async fn fire_schedule(
        &self,
        schedule: &Schedule,
        next_at: Timestamp,
        job: Option<NewJob>,
        lease: Option<LeaseToken<'_>>,
    ) -> Result<bool, StoreError> {
        let mut unit = self.write_for(schedule.tenant_id);
        if let Some(lease) = lease {
            unit.guard_lease(lease.name, lease.token);
        }
        unit.unit.op_exactly(
            1,
            Precondition::ScheduleAlreadyFired,
            "update job_schedules set next_at = $4
             where tenant_id = $1 and name = $2 and next_at = $3 and not is_paused",
            params![schedule.tenant_id, &schedule.name, schedule.next_at, next_at],
        );
        if let Some(job) = job {
            let id = job.id;
            unit.enqueue(vec![job]);
            record_run(&mut unit.unit, &schedule.name, schedule.tenant_id, id);
        }
        let fired = match unit.commit_at(Effect::FireSchedule).await {
            Ok(_) => true,
            Err(StoreError::Precondition(Precondition::ScheduleAlreadyFired)) => false,
            Err(e) => return Err(e),
        };
        Ok(fired)
    }

    /// Runs a schedule now. Returns `false` if its last job is still live, and they may not overlap.
    pub async fn run_schedule(&self, schedule: &Schedule, job: NewJob) -> Result<bool, StoreError> {
        let id = job.id;
        let mut unit = self.write_for(schedule.tenant_id);
        unit.enqueue(vec![job]);
        let ran = record_run(&mut unit.unit, &schedule.name, schedule.tenant_id, id);
        let committed = unit.commit_at(Effect::FireSchedule).await?;
        Ok(committed.changed(ran) == 1)
    }
}

/// Records the last run, if the job was not dropped for a live one.
fn record_run(unit: &mut Unit, name: &str, tenant: TenantId, job: JobId) -> crate::OpId {
    unit.op(
        "update job_schedules set last_at = mailroom_now(), last_job = $3
         where tenant_id = $2 and name = $1 and exists (select 1 from jobs where tenant_id = $2 and id = $3)",
        params![name, tenant, job],
    )
}

impl MissedPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunOnce => "run_once",
            Self::Skip => "skip",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::RunOnce, Self::Skip].into_iter().find(|missed| missed.as_str() == text)
    }
}

impl OverlapPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Allow => "allow",
            Self::Queue => "queue",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Skip, Self::Allow, Self::Queue].into_iter().find(|overlap| overlap.as_str() == text)
    }
}

fn schedule(row: &Row) -> Result<Schedule, StoreError> {
    Ok(Schedule {
        name: row.get(0)?,
        tenant_id: row.get(1)?,
        kind: row.get(2)?,
        lane: row.get(3)?,
        payload: row.get(4)?,
        cron: row.get(5)?,
        zone: row.get(6)?,
        missed: MissedPolicy::parse(&row.get::<String>(7)?)
            .ok_or_else(|| StoreError::corrupt("a schedule has an unknown policy for missed runs"))?,
        overlap: OverlapPolicy::parse(&row.get::<String>(8)?)
            .ok_or_else(|| StoreError::corrupt("a schedule has an unknown policy for overlaps"))?,
        is_paused: row.get(9)?,
        next_at: row.get(10)?,
        last_at: row.get(11)?,
        last_job: row.get(12)?,
    })
}
