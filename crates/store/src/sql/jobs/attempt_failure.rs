//! Failed attempts of jobs.

use std::time::Duration;

use domain::JobId;

use super::finish::finish_held;
use super::release::lock_key;
use super::{ClaimedJob, JobEnd, later, unless_cancelled};
use crate::failpoint::Effect;
use crate::{Dialect, Precondition, StoreError, SystemStore, TenantUnit, Unit, params};

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    Failed,
    Panicked,
    TimedOut,
}

impl AttemptOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
        }
    }
}

#[derive(Debug, Clone)]
pub struct AttemptFailure {
    pub outcome: AttemptOutcome,
    pub error_class: String,
    pub message: String,
    /// Identifies failures of one sort.
    pub fingerprint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    RetryIn(Duration),
    Dead,
}

impl TenantUnit {
    /// Ends the job as a dead letter with this unit, or, if it is not held any more, refuses the unit.
    pub fn give_up(&mut self, job: &ClaimedJob, failure: &AttemptFailure, successor: JobId) {
        if let Some(key) = &job.order_key {
            lock_key(&mut self.unit, job.tenant, key);
        }
        record_attempt(&mut self.unit, job, failure);
        end_dead(&mut self.unit, self.store.dialect(), job, failure, successor);
        self.enqueues = true;
    }
}

impl SystemStore {
    /// Records a failed attempt; the job waits for the next one, or ends. Returns `false` if it was not held any more.
    pub async fn fail_job(
        &self,
        job: &ClaimedJob,
        failure: &AttemptFailure,
        then: AfterFailure,
        successor: JobId,
    ) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        if let Some(key) = &job.order_key {
            // In the order of all other units: the key, then the job.
            lock_key(&mut unit, job.tenant, key);
        }
        record_attempt(&mut unit, job, failure);
        match then {
            AfterFailure::RetryIn(delay) => self.put_back(&mut unit, job, delay, 1, None),
            AfterFailure::Dead => end_dead(&mut unit, self.store.dialect(), job, failure, successor),
        }
        self.end_attempt(unit).await
    }

    /// Defers a job, because something that it needs is busy or away; `reason` is for people. It spends no attempt.
    pub async fn defer_job(&self, job: &ClaimedJob, delay: Duration, reason: Option<&str>) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        self.put_back(&mut unit, job, delay, 0, reason);
        self.end_attempt(unit).await
    }

    /// Ends a job that its worker stopped because it was cancelled.
    pub async fn end_cancelled(&self, job: &ClaimedJob, reason: &str, successor: JobId) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        finish_held(&mut unit, self.store.dialect(), job, JobEnd::Cancelled { reason }, successor);
        self.end_attempt(unit).await
    }

    /// Puts a job back into the queue. Its process has survived it, so it is no suspect any more.
    fn put_back(&self, unit: &mut Unit, job: &ClaimedJob, delay: Duration, spent: u32, reason: Option<&str>) {
        let run_at = later(self.store.dialect(), "$4");
        unit.op_exactly(
            1,
            Precondition::JobNotHeld,
            format!(
                "update jobs set {}, run_at = {run_at}, attempt = attempt + $5, worker = null,
                    is_marked = false, suspected = 0, wait_reason = $6
                 where tenant_id = $1 and id = $2 and token = $3 and state = 'running'",
                unless_cancelled("retry")
            ),
            params![job.tenant, job.id, job.token, u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), spent, reason],
        );
    }

    async fn end_attempt(&self, unit: Unit) -> Result<bool, StoreError> {
        let held = match self.commit_at(Effect::FailJob, unit).await {
            Ok(_) => true,
            Err(StoreError::Precondition(Precondition::JobNotHeld)) => false,
            Err(e) => return Err(e),
        };
        // Other jobs may have waited for it.
        self.store.notifications.notify_local();
        Ok(held)
    }
}

/// Records a failed attempt, or refuses the unit if the job is not held any more.
fn record_attempt(unit: &mut Unit, job: &ClaimedJob, failure: &AttemptFailure) {
    unit.op_exactly(
        1,
        Precondition::JobNotHeld,
        "insert into job_attempts (tenant_id, job_id, token, outcome, error_class, message, fingerprint, worker,
                                   started_at, ended_at)
         select tenant_id, id, token, $4, $5, $6, $7, worker, started_at, mailroom_now()
         from jobs where tenant_id = $1 and id = $2 and token = $3 and state = 'running'",
        params![
            job.tenant,
            job.id,
            job.token,
            failure.outcome.as_str(),
            &failure.error_class,
            &failure.message,
            &failure.fingerprint
        ],
    );
}

/// Ends a job whose last attempt has failed, which is spent as well.
fn end_dead(unit: &mut Unit, dialect: Dialect, job: &ClaimedJob, failure: &AttemptFailure, successor: JobId) {
    unit.op(
        "update jobs set attempt = attempt + 1 where tenant_id = $1 and id = $2 and token = $3",
        params![job.tenant, job.id, job.token],
    );
    let AttemptFailure { error_class, message, fingerprint, .. } = failure;
    let end = JobEnd::Dead { reason: message, error_class, fingerprint };
    finish_held(unit, dialect, job, end, successor);
}
