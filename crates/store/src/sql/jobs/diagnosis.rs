//! Diagnosis of a job: why it is not running.

use domain::{JobId, JobState, Lane, MailboxId, TenantId};
use jiff::Timestamp;
use serde::Serialize;

use super::JobRow;
use super::inspect::IS_ALIVE;
use crate::sql::sync::SyncPause;
use crate::{Dialect, Row, StoreError, SystemStore, params};

/// A reason why a job is not running. [`WaitReason::sentence`] puts it into words.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum WaitReason {
    NotDue {
        at: Timestamp,
        failures: u64,
    },
    /// Something that it needs is away; it has not failed.
    Waiting {
        until: Timestamp,
        reason: String,
    },
    /// It is woken when this is over.
    Parked {
        reason: String,
    },
    /// Its mailbox must not be synced before this time.
    MailboxPaused {
        until: Timestamp,
        reason: String,
    },
    /// Jobs of the same tenant, lane and kind that became ready earlier.
    BehindOthers {
        jobs: u64,
    },
    /// It is the next of its tenant; all workers are busy with other jobs.
    LaneBusy {
        lane: Lane,
        running: u64,
    },
    LanePaused {
        lane: Lane,
    },
    TenantPaused,
    TenantInactive,
    TenantAtLimit {
        running: u64,
        most: u64,
    },
    KindPaused {
        kind: String,
    },
    KindAtLimit {
        kind: String,
        running: u64,
        most: u64,
    },
    AfterParents {
        parents: Vec<JobId>,
    },
    BehindKey {
        key: String,
        head: JobId,
        ahead: u64,
    },
    NoWorker {
        kind: String,
    },
    /// A parent failed; it will be cancelled.
    Doomed,
    Running {
        since: Option<Timestamp>,
        worker: Option<String>,
        is_cancelling: bool,
    },
    Finished {
        state: JobState,
        at: Timestamp,
        reason: Option<String>,
    },
}

/// A job with the reasons why it is not running, the most important first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobDiagnosis {
    pub job: JobRow,
    pub reasons: Vec<WaitReason>,
}

impl WaitReason {
    pub fn sentence(&self) -> String {
        match self {
            Self::NotDue { at, failures: 0 } => format!("It is not due before {at:.0}."),
            Self::NotDue { at, failures: 1 } => format!("It failed once and is tried again at {at:.0}."),
            Self::NotDue { at, failures } => format!("It failed {failures} times and is tried again at {at:.0}."),
            Self::Waiting { until, reason } => format!("It waits until {until:.0}: {reason}."),
            Self::Parked { reason } => format!("It is parked: {reason}. It is woken when that changes."),
            Self::MailboxPaused { until, reason } => format!("Its mailbox waits until {until:.0}: {reason}."),
            Self::BehindOthers { jobs: 1 } => "One job of its tenant and kind was ready before it.".to_owned(),
            Self::BehindOthers { jobs } => format!("{jobs} jobs of its tenant and kind were ready before it."),
            Self::LaneBusy { lane, running } => {
                format!(
                    "It is the next of its tenant; the {running} jobs that run now leave no room for lane {}.",
                    lane.as_str()
                )
            }
            Self::LanePaused { lane } => {
                format!("Lane {0} is paused; `mailroom jobs resume --lane {0}` resumes it.", lane.as_str())
            }
            Self::TenantPaused => {
                "Its tenant's jobs are paused; `mailroom jobs resume --tenant …` resumes them.".to_owned()
            }
            Self::TenantInactive => "Its tenant is deactivated; `mailroom tenant activate …` activates it.".to_owned(),
            Self::TenantAtLimit { running, most } => format!("Its tenant runs {running} jobs, of at most {most}."),
            Self::KindPaused { kind } => {
                format!("Jobs of kind {kind} are paused; `mailroom jobs resume --kind {kind}` resumes them.")
            }
            Self::KindAtLimit { kind, running, most } => {
                format!("{running} jobs of kind {kind} run, of at most {most}.")
            }
            Self::AfterParents { parents } => {
                let parents: Vec<String> = parents.iter().map(ToString::to_string).collect();
                let jobs = if parents.len() == 1 { "job" } else { "jobs" };
                format!("It waits for the {jobs} {}.", parents.join(" and "))
            }
            Self::BehindKey { key, head, ahead } => {
                format!(
                    "Jobs with the ordering key {key:?} run one after the other; {ahead} are before it, the first is {head}."
                )
            }
            Self::NoWorker { kind } => {
                format!(
                    "No running worker handles jobs of kind {kind}; start one with `mailroom serve --roles worker`."
                )
            }
            Self::Doomed => "A job that it depends on did not succeed; it is about to be cancelled.".to_owned(),
            Self::Running { since, worker, is_cancelling } => running(*since, worker.as_deref(), *is_cancelling),
            Self::Finished { state, at, reason } => {
                let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                format!("It is {}, since {at:.0}{reason}.", state.as_str())
            }
        }
    }
}

fn running(since: Option<Timestamp>, worker: Option<&str>, is_cancelling: bool) -> String {
    let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
    let worker = worker.map(|worker| format!(", on {worker}")).unwrap_or_default();
    let ending = if is_cancelling { "; it is being cancelled" } else { "" };
    format!("It runs{since}{worker}{ending}.")
}

impl SystemStore {
    /// Finds the reasons why a job is not running. Returns `None` if there is no such job.
    pub async fn diagnose_job(&self, id: JobId) -> Result<Option<JobDiagnosis>, StoreError> {
        let Some(job) = self.find_job(id).await? else { return Ok(None) };
        let mut reasons = Vec::new();
        match job.state {
            JobState::Done | JobState::Dead | JobState::Cancelled => {
                let at = job.ended_at.unwrap_or(job.created_at);
                reasons.push(WaitReason::Finished { state: job.state, at, reason: job.reason.clone() });
            }
            JobState::Running => reasons.push(WaitReason::Running {
                since: job.started_at,
                worker: job.worker.clone(),
                is_cancelling: job.reason.is_some(),
            }),
            JobState::Doomed => reasons.push(WaitReason::Doomed),
            JobState::Scheduled | JobState::Retry => {
                let at = job.run_at.unwrap_or(job.created_at);
                if let Some(SyncPause { until, reason }) = self.mailbox_pause(&job).await? {
                    reasons.push(WaitReason::MailboxPaused { until, reason });
                }
                reasons.push(match &job.wait_reason {
                    Some(reason) => WaitReason::Waiting { until: at, reason: reason.clone() },
                    None => WaitReason::NotDue { at, failures: job.attempt },
                });
                reasons.extend(self.stops(&job).await?);
            }
            JobState::Blocked => {
                reasons.extend(job.wait_reason.clone().map(|reason| WaitReason::Parked { reason }));
                reasons.extend(self.blockers(&job).await?);
                reasons.extend(self.stops(&job).await?);
            }
            JobState::Ready => {
                reasons.extend(self.stops(&job).await?);
                // The position in a queue that does not move says nothing.
                if reasons.is_empty() {
                    reasons.push(self.queue_position(&job).await?);
                }
            }
        }
        Ok(Some(JobDiagnosis { job, reasons }))
    }

    /// Returns the pause of the mailbox that a job is for: by convention it is the field `mailbox` of the payload.
    async fn mailbox_pause(&self, job: &JobRow) -> Result<Option<SyncPause>, StoreError> {
        let mailbox = job.payload.get("mailbox").and_then(|id| id.as_str()?.parse::<MailboxId>().ok());
        match mailbox {
            Some(mailbox) => Ok(self.store.tenant(job.tenant_id).list_pauses().await?.remove(&mailbox)),
            None => Ok(None),
        }
    }

    /// Finds pauses, limits and a missing worker that keep a job from running.
    async fn stops(&self, job: &JobRow) -> Result<Vec<WaitReason>, StoreError> {
        let sql = "select (select is_paused from job_lanes where lane = $2),
                          (select is_active from tenants where id = $1),
                          (select is_paused from job_tenants where tenant_id = $1),
                          (select most_running from job_tenants where tenant_id = $1),
                          (select count(*) from jobs where state = 'running' and tenant_id = $1),
                          (select is_paused from job_kinds where kind = $3),
                          (select most_running from job_kinds where kind = $3),
                          (select count(*) from jobs where state = 'running' and kind = $3)";
        let Some(row) = self.query_one(sql, params![job.tenant_id, job.lane, &job.kind]).await? else {
            return Ok(Vec::new());
        };
        let mut stops = manual_stops(job, &row)?;
        if !self.has_worker(&job.kind).await? {
            stops.push(WaitReason::NoWorker { kind: job.kind.clone() });
        }
        Ok(stops)
    }

    async fn has_worker(&self, kind: &str) -> Result<bool, StoreError> {
        let knows = match self.store.dialect() {
            Dialect::Postgres => "w.kinds @> to_jsonb(array[$1::text])",
            Dialect::Sqlite => "exists (select 1 from json_each(w.kinds) k where k.value = $1)",
        };
        let sql = format!("select 1 from job_workers w where {IS_ALIVE} and {knows} limit 1");
        Ok(self.query_one(sql, params![kind]).await?.is_some())
    }

    async fn blockers(&self, job: &JobRow) -> Result<Vec<WaitReason>, StoreError> {
        let sql = "select e.parent_id from job_edges e join jobs p on p.tenant_id = e.tenant_id and p.id = e.parent_id
                   where e.tenant_id = $1 and e.child_id = $2 order by e.parent_id";
        let parents = self.query(sql, params![job.tenant_id, job.id]).await?;
        let parents = parents.iter().map(|row| row.get(0)).collect::<Result<Vec<JobId>, _>>()?;
        let mut blockers = Vec::new();
        if !parents.is_empty() {
            blockers.push(WaitReason::AfterParents { parents });
        }
        let Some(key) = &job.order_key else { return Ok(blockers) };
        let sql = "select h.id from jobs h where h.tenant_id = $1 and h.order_key = $2
                     and h.order_number < (select order_number from jobs where tenant_id = $1 and id = $3)
                   order by h.order_number";
        let ahead = self.query(sql, params![job.tenant_id, key, job.id]).await?;
        if let Some(head) = ahead.first() {
            let count = ahead.len() as u64;
            blockers.push(WaitReason::BehindKey { key: key.clone(), head: head.get(0)?, ahead: count });
        }
        Ok(blockers)
    }

    /// Returns the position of a ready job in its queue.
    async fn queue_position(&self, job: &JobRow) -> Result<WaitReason, StoreError> {
        let sql = "select count(*), (select count(*) from jobs where state = 'running')
                   from jobs o join jobs m on m.tenant_id = $1 and m.id = $2
                   where o.tenant_id = $1 and o.lane = m.lane and o.kind = m.kind and o.state = 'ready'
                     and (o.position < m.position or (o.position = m.position and o.id < m.id))";
        let row = self.query_one(sql, params![job.tenant_id, job.id]).await?;
        let (ahead, running): (u64, u64) = row.map_or(Ok((0, 0)), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(match ahead {
            0 => WaitReason::LaneBusy { lane: job.lane, running },
            jobs => WaitReason::BehindOthers { jobs },
        })
    }
}

fn manual_stops(job: &JobRow, row: &Row) -> Result<Vec<WaitReason>, StoreError> {
    let mut stops = Vec::new();
    if row.get::<Option<bool>>(0)? == Some(true) {
        stops.push(WaitReason::LanePaused { lane: job.lane });
    }
    // The system's own jobs belong to no tenant that could be inactive.
    if job.tenant_id != TenantId::SYSTEM && row.get::<Option<bool>>(1)? == Some(false) {
        stops.push(WaitReason::TenantInactive);
    }
    if row.get::<Option<bool>>(2)? == Some(true) {
        stops.push(WaitReason::TenantPaused);
    }
    if row.get::<Option<bool>>(5)? == Some(true) {
        stops.push(WaitReason::KindPaused { kind: job.kind.clone() });
    }
    if let Some((running, most)) = exceeded_limit(row, 3)? {
        stops.push(WaitReason::TenantAtLimit { running, most });
    }
    if let Some((running, most)) = exceeded_limit(row, 6)? {
        stops.push(WaitReason::KindAtLimit { kind: job.kind.clone(), running, most });
    }
    Ok(stops)
}

/// Reads a limit and the number of running jobs beside it; returns both if the limit is reached.
fn exceeded_limit(row: &Row, column: usize) -> Result<Option<(u64, u64)>, StoreError> {
    let (most, running): (Option<u64>, u64) = (row.get(column)?, row.get(column + 1)?);
    Ok(most.filter(|most| running >= *most).map(|most| (running, most)))
}
