//! Rows of the durable job queue and their state changes. The crate `jobs` adds the workers and the kinds of jobs.
//!
//! A live job is a row in `jobs`; one that ended is a row in `finished_jobs`. Waiting jobs are counted by the database itself,
//! in `job_queues`; see migrations/0004.

mod attempt_failure;
mod backlog;
pub(crate) mod claim;
pub(crate) mod control;
mod dead_letters;
mod diagnosis;
mod enqueue;
mod finish;
mod inspect;
mod parking;
#[cfg(feature = "testing")]
mod probe;
mod prune;
mod release;
mod timers;
mod unregistered_kinds;
mod workers;

pub use attempt_failure::{AfterFailure, AttemptFailure, AttemptOutcome};
pub use backlog::{BacklogLimits, BacklogVerdict, LaneDepth, TenantBacklog, TenantDepth, UnrunnableJobCounts};
pub use claim::{ClaimShare, ClaimedJob, FULL_COST, QueueCandidate};
pub use control::{JobScope, LimitChange, RetryOutcome};
pub use dead_letters::{DeadGroup, ReplayOptions};
pub use diagnosis::{JobDiagnosis, WaitReason};
pub use enqueue::{NewJob, OnConflict, StartTime, UniqueKey};
pub use finish::{CancelOutcome, JobEnd};
pub use inspect::{AttemptRow, JobFilter, JobGroup, JobRow, JobStats, WorkerRow};
pub use prune::{JobRetention, PruneReport};
pub use workers::{ReclaimReport, StopReason, StopRequest};

use crate::Dialect;

/// Returns a time so many milliseconds from now.
pub(super) fn later(dialect: Dialect, milliseconds: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("mailroom_now() + {milliseconds} * interval '1 millisecond'"),
        Dialect::Sqlite => {
            format!("strftime('%Y-%m-%dT%H:%M:%fZ', mailroom_now(), ({milliseconds} / 1000.0) || ' seconds')")
        }
    }
}

/// Returns `for update` on the database with more than one writer.
fn for_update(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "for update",
        Dialect::Sqlite => "",
    }
}

/// The state of a job that nothing blocks: ready, or not due yet.
const FREE_STATE: &str = "case when run_at > mailroom_now() then 'scheduled' else 'ready' end";

/// Returns the new state of a job that its worker returns: this, or `doomed` if it was cancelled meanwhile. If it was enqueued
/// again after that, the cancellation is dropped.
fn unless_cancelled(state: &str) -> String {
    format!(
        "state = case when cancel_reason is null or rerun then '{state}' else 'doomed' end,
         cancel_reason = case when rerun then null else cancel_reason end"
    )
}

/// The reason of a job that is cancelled because a job that it depends on did not succeed.
const PARENT_FAILED: &str = "a job that it depends on did not succeed";
