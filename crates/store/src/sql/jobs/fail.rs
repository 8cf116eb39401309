//! An attempt that went wrong.

use std::time::Duration;

use domain::JobId;

use super::finish::{NO_LONGER_HELD, finish_held};
use super::release::lock_key;
use super::{Claimed, End, later, unless_cancelled};
use crate::failpoint::{self, Effect};
use crate::{StoreError, SystemStore, Unit, params};

/// How an attempt went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Failed,
    Panicked,
    TimedOut,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Failure {
    pub outcome: Outcome,
    pub error_class: String,
    pub message: String,
    /// What failures of one sort have in common.
    pub fingerprint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    RetryIn(Duration),
    Dead,
}

impl SystemStore {
    /// The attempt is kept; the job waits for the next one, or ends. `false`: it was not ours any more.
    pub async fn fail_job(
        &self,
        job: &Claimed,
        failure: &Failure,
        then: AfterFailure,
        successor: JobId,
    ) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        if let Some(key) = &job.order_key {
            // In the order of everybody else: the key, then the job.
            lock_key(&mut unit, job.tenant, key);
        }
        unit.op_exactly(
            1,
            NO_LONGER_HELD,
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
        match then {
            AfterFailure::RetryIn(delay) => self.put_back(&mut unit, job, delay, 1),
            AfterFailure::Dead => {
                // The last attempt is spent as well.
                unit.op(
                    "update jobs set attempt = attempt + 1 where tenant_id = $1 and id = $2 and token = $3",
                    params![job.tenant, job.id, job.token],
                );
                let Failure { error_class, message, fingerprint, .. } = failure;
                let end = End::Dead { reason: message, error_class, fingerprint };
                finish_held(&mut unit, self.store.dialect(), job, end, successor);
            }
        }
        self.end_attempt(unit).await
    }

    /// Somebody else is busy: the job waits and has spent nothing.
    pub async fn throttle_job(&self, job: &Claimed, delay: Duration) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        self.put_back(&mut unit, job, delay, 0);
        self.end_attempt(unit).await
    }

    /// Ends a job that its worker stopped because somebody wanted that.
    pub async fn end_cancelled(&self, job: &Claimed, reason: &str, successor: JobId) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        finish_held(&mut unit, self.store.dialect(), job, End::Cancelled { reason }, successor);
        self.end_attempt(unit).await
    }

    /// Whoever was around when it ran has survived it, so it is no suspect any more.
    fn put_back(&self, unit: &mut Unit, job: &Claimed, delay: Duration, spent: u32) {
        let run_at = later(self.store.dialect(), "$4");
        unit.op_exactly(
            1,
            NO_LONGER_HELD,
            format!(
                "update jobs set {}, run_at = {run_at}, attempt = attempt + $5, worker = null,
                    is_marked = false, suspected = 0
                 where tenant_id = $1 and id = $2 and token = $3 and state = 'running'",
                unless_cancelled("retry")
            ),
            params![job.tenant, job.id, job.token, u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), spent],
        );
    }

    async fn end_attempt(&self, unit: Unit) -> Result<bool, StoreError> {
        failpoint::before(Effect::FailJob);
        let held = match self.commit(unit).await {
            Ok(_) => true,
            Err(StoreError::Precondition(NO_LONGER_HELD)) => false,
            Err(e) => return Err(e),
        };
        failpoint::after(Effect::FailJob);
        // Something may have stood behind it.
        self.store.hints.jobs_added_here();
        Ok(held)
    }
}
