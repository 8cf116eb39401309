//! Work that comes back by the calendar: what is due is fired, once per time, whoever ticks.

use std::time::Duration;

use domain::{Clock, JobId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use store::sql::jobs::{NewJob, OnConflict, Unique, When};
use store::sql::leases::NO_LONGER_LEADER;
use store::sql::schedules::{LeaseToken, Missed, NewSchedule, Overlap, Schedule};
use store::{Store, StoreError};

use crate::cron::{Cron, CronError};

/// A time is missed when it is this long ago: longer than it takes to replace a leader.
const MISSED_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum RecurringError {
    #[error(transparent)]
    Cron(#[from] CronError),
    #[error("there is no time zone {0:?}; write one like Europe/Berlin, or UTC")]
    Zone(String),
    /// Its times end.
    #[error("the cron line {0:?} never comes again")]
    Never(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a tick did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ticked {
    pub fired: Vec<String>,
    /// Their time was missed, and they want it that way.
    pub skipped: Vec<String>,
    /// Their times cannot be told, for instance because a newer version wrote them. They are left alone.
    pub unreadable: Vec<String>,
    /// The database did not take them; they are still due.
    pub failed: Vec<String>,
}

/// When a schedule comes.
#[derive(Debug, Clone)]
pub struct Times {
    cron: Cron,
    zone: TimeZone,
}

impl Times {
    pub fn read(cron: &str, zone: &str) -> Result<Self, RecurringError> {
        let zone_found = TimeZone::get(zone).map_err(|_| RecurringError::Zone(zone.to_owned()))?;
        Ok(Self { cron: Cron::parse(cron)?, zone: zone_found })
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

/// Puts a definition in place. One that is there already keeps its pause, and its next time unless its times changed.
pub async fn define(store: &Store, clock: &dyn Clock, schedule: &NewSchedule) -> Result<(), RecurringError> {
    let next = next_after(&Times::read(&schedule.cron, &schedule.zone)?, &schedule.cron, clock.now())?;
    Ok(store.system().put_schedule(schedule, next).await?)
}

/// Fires what is due; one that cannot be fired keeps no other from it. With a lease, only while it is held: fails with the
/// store's refusal once it is not.
pub async fn tick(store: &Store, clock: &dyn Clock, lease: Option<LeaseToken<'_>>) -> Result<Ticked, RecurringError> {
    let mut ticked = Ticked::default();
    let now = clock.now();
    for schedule in store.system().list_due_schedules(now).await? {
        let next = Times::of(&schedule).and_then(|times| next_after(&times, &schedule.cron, now));
        let next = match next {
            Ok(next) => next,
            Err(e) => {
                tracing::warn!(schedule = schedule.name, "the times of {} cannot be told: {e}", schedule.name);
                ticked.unreadable.push(schedule.name);
                continue;
            }
        };
        let is_missed = now.duration_since(schedule.next_at).unsigned_abs() > MISSED_AFTER;
        let job = match schedule.missed {
            Missed::Skip if is_missed => None,
            Missed::Skip | Missed::RunOnce => Some(job_of(&schedule, clock)),
        };
        let is_run = job.is_some();
        let list = match store.system().fire_schedule(&schedule, next, job, lease).await {
            Ok(true) if is_run => &mut ticked.fired,
            Ok(true) => &mut ticked.skipped,
            Ok(false) => continue,
            Err(e @ StoreError::Precondition(NO_LONGER_LEADER)) => return Err(e.into()),
            Err(e) => {
                tracing::warn!(schedule = schedule.name, "{} cannot be fired and stays due: {e}", schedule.name);
                &mut ticked.failed
            }
        };
        list.push(schedule.name);
    }
    Ok(ticked)
}

/// Beside the calendar. `None`: the last one still lives, and they may not overlap.
pub async fn run_now(store: &Store, clock: &dyn Clock, schedule: &Schedule) -> Result<Option<JobId>, RecurringError> {
    let job = job_of(schedule, clock);
    let id = job.id;
    Ok(store.system().run_schedule(schedule, job).await?.then_some(id))
}

/// Goes on from now; what passed during the pause does not count as missed. Whether anything changed.
pub async fn resume(store: &Store, clock: &dyn Clock, schedule: &Schedule) -> Result<bool, RecurringError> {
    let next = next_after(&Times::of(schedule)?, &schedule.cron, clock.now())?;
    Ok(store.system().resume_schedule(schedule.tenant_id, &schedule.name, next).await?)
}

fn next_after(times: &Times, cron: &str, now: Timestamp) -> Result<Timestamp, RecurringError> {
    times.next_after(now).ok_or_else(|| RecurringError::Never(cron.to_owned()))
}

fn job_of(schedule: &Schedule, clock: &dyn Clock) -> NewJob {
    let key = format!("recurring:{}", schedule.name);
    let (unique, order_key) = match schedule.overlap {
        Overlap::Skip => (Some(Unique { key, policy: OnConflict::Keep }), None),
        Overlap::Allow => (None, None),
        Overlap::Queue => (None, Some(key)),
    };
    NewJob {
        id: JobId::new(clock),
        kind: schedule.kind.clone(),
        lane: schedule.lane,
        payload: schedule.payload.clone(),
        when: When::Now,
        unique,
        order_key,
        after: Vec::new(),
        traceparent: None,
    }
}
