//! Recurring jobs: a tick fires every schedule that is due, once per time, whichever process ticks.

use std::time::Duration;

use domain::{Clock, JobId, redact_for_log};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use store::sql::jobs::{NewJob, OnConflict, StartTime, UniqueKey};
use store::sql::schedules::{LeaseToken, MissedPolicy, NewSchedule, OverlapPolicy, Schedule};
use store::{Precondition, Store, StoreError};

use crate::cron::{Cron, CronError};

/// A time counts as missed after this: longer than it takes to replace a leader.
const MISSED_AFTER: Duration = Duration::from_secs(60);

/// Why a schedule cannot be defined, resumed or run.
#[derive(Debug, thiserror::Error)]
pub enum RecurringError {
    #[error(transparent)]
    Cron(#[from] CronError),
    #[error("there is no time zone {0:?}; write one like Europe/Berlin, or UTC")]
    Zone(String),
    /// The expression has no further time.
    #[error("the cron line {0:?} never comes again")]
    Never(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a tick did, by names of schedules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TickReport {
    pub fired: Vec<String>,
    /// Missed, and skipped by their policy.
    pub skipped: Vec<String>,
    /// Left alone because their times cannot be computed, for instance because a newer version wrote them.
    pub unreadable: Vec<String>,
    /// Not written by the database; they are still due.
    pub failed: Vec<String>,
}

/// The times of a schedule.
#[derive(Debug, Clone)]
pub struct CronTimes {
    cron: Cron,
    zone: TimeZone,
}

impl CronTimes {
    pub fn read(cron: &str, zone: &str) -> Result<Self, RecurringError> {
        let zone = TimeZone::get(zone).map_err(|_| RecurringError::Zone(zone.to_owned()))?;
        Ok(Self { cron: Cron::parse(cron)?, zone })
    }

    pub fn of(schedule: &Schedule) -> Result<Self, RecurringError> {
        Self::read(&schedule.cron, &schedule.zone)
    }

    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.cron.next_after(after, &self.zone)
    }

    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        self.cron.upcoming(after, &self.zone, count)
    }
}

/// Creates or updates a schedule. An existing one stays paused if it is, and keeps its next time unless its times changed.
pub async fn define(store: &Store, clock: &dyn Clock, schedule: &NewSchedule) -> Result<(), RecurringError> {
    let next = next_after(&CronTimes::read(&schedule.cron, &schedule.zone)?, &schedule.cron, clock.now())?;
    Ok(store.system().put_schedule(schedule, next).await?)
}

/// Fires every schedule that is due; one that cannot be fired does not affect others. With a lease it writes only while the
/// lease is held, and fails with the store's error once it is not.
pub async fn tick(
    store: &Store,
    clock: &dyn Clock,
    lease: Option<LeaseToken<'_>>,
) -> Result<TickReport, RecurringError> {
    let mut ticked = TickReport::default();
    let now = clock.now();
    for schedule in store.system().list_due_schedules(now).await? {
        let next = CronTimes::of(&schedule).and_then(|times| next_after(&times, &schedule.cron, now));
        let next = match next {
            Ok(next) => next,
            Err(e) => {
                tracing::warn!(
                    schedule = schedule.name,
                    error = redact_for_log(&e),
                    "cannot compute the times of a schedule"
                );
                ticked.unreadable.push(schedule.name);
                continue;
            }
        };
        let is_missed = now.duration_since(schedule.next_at).unsigned_abs() > MISSED_AFTER;
        let job = match schedule.missed {
            MissedPolicy::Skip if is_missed => None,
            MissedPolicy::Skip | MissedPolicy::RunOnce => Some(job_of(&schedule, clock)),
        };
        let is_run = job.is_some();
        let list = match store.system().fire_schedule(&schedule, next, job, lease).await {
            Ok(true) if is_run => &mut ticked.fired,
            Ok(true) => &mut ticked.skipped,
            Ok(false) => continue,
            Err(e @ StoreError::Precondition(Precondition::LeaseTakenOver)) => return Err(e.into()),
            Err(e) => {
                tracing::warn!(
                    schedule = schedule.name,
                    error = redact_for_log(&e),
                    "cannot fire a schedule; it stays due"
                );
                &mut ticked.failed
            }
        };
        list.push(schedule.name);
    }
    Ok(ticked)
}

/// Runs a schedule's job now, besides its times. Returns `None` if the last job is still live and they may not overlap.
pub async fn run_now(store: &Store, clock: &dyn Clock, schedule: &Schedule) -> Result<Option<JobId>, RecurringError> {
    let job = job_of(schedule, clock);
    let id = job.id;
    Ok(store.system().run_schedule(schedule, job).await?.then_some(id))
}

/// Resumes a paused schedule from now on; times during the pause do not count as missed. Returns whether anything changed.
pub async fn resume(store: &Store, clock: &dyn Clock, schedule: &Schedule) -> Result<bool, RecurringError> {
    let next = next_after(&CronTimes::of(schedule)?, &schedule.cron, clock.now())?;
    Ok(store.system().resume_schedule(schedule.tenant_id, &schedule.name, next).await?)
}

fn next_after(times: &CronTimes, cron: &str, now: Timestamp) -> Result<Timestamp, RecurringError> {
    times.next_after(now).ok_or_else(|| RecurringError::Never(cron.to_owned()))
}

fn job_of(schedule: &Schedule, clock: &dyn Clock) -> NewJob {
    let key = format!("recurring:{}", schedule.name);
    let (unique, order_key) = match schedule.overlap {
        OverlapPolicy::Skip => (Some(UniqueKey { key, policy: OnConflict::Keep }), None),
        OverlapPolicy::Allow => (None, None),
        OverlapPolicy::Queue => (None, Some(key)),
    };
    NewJob {
        id: JobId::new(clock),
        kind: schedule.kind.clone(),
        lane: schedule.lane,
        payload: schedule.payload.clone(),
        when: StartTime::Now,
        unique,
        order_key,
        after: Vec::new(),
        traceparent: None,
    }
}
