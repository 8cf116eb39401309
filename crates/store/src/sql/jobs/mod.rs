//! The durable queue at rest. `jobs` adds what the work is and who does it; here are rows and their moves.
//!
//! A live job is a row in `jobs`; one that ended is a row in `finished_jobs`. What waits is counted by the database
//! itself, in `job_queues`; see migrations/0004.

mod backlog;
mod claim;
pub(crate) mod control;
mod dead;
mod enqueue;
mod fail;
mod finish;
mod inspect;
mod plain;
mod probe;
mod prune;
mod release;
mod timers;
mod why;
mod workers;

pub use backlog::{BacklogLimits, LaneDepth, MayAdd, Strays, TenantDepth};
pub use claim::{Candidate, Claimed, FULL_COST, Share};
pub use control::{Limit, Retrying, Target};
pub use dead::{DeadGroup, Replay};
pub use enqueue::{NewJob, OnConflict, TOO_MANY_WAITING, Unique, When};
pub use fail::{AfterFailure, Failure, Outcome};
pub use finish::{Cancelling, End, NO_LONGER_HELD};
pub use inspect::{AttemptRow, Group, JobFilter, JobRow, JobStats, WorkerRow};
pub use plain::{BareJob, FairIndex, Head};
pub use prune::{KeepFor, Pruned};
pub use why::{Explanation, Why};
pub use workers::{Abandoned, LEASE_LOST, Stop, StopRequest};

use crate::Dialect;

/// A time so many milliseconds from now.
pub(super) fn later(dialect: Dialect, milliseconds: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("mailroom_now() + {milliseconds} * interval '1 millisecond'"),
        Dialect::Sqlite => {
            format!("strftime('%Y-%m-%dT%H:%M:%fZ', mailroom_now(), ({milliseconds} / 1000.0) || ' seconds')")
        }
    }
}

/// `for update` where more than one can write.
fn for_update(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "for update",
        Dialect::Sqlite => "",
    }
}

/// What a job is when nothing holds it: ready, or not due yet.
const FREE_STATE: &str = "case when run_at > mailroom_now() then 'scheduled' else 'ready' end";

/// What becomes of a job that its worker lets go of: this, or, if somebody wanted it to end meanwhile, that. Who asked
/// for the same after that gets it.
fn unless_cancelled(state: &str) -> String {
    format!(
        "state = case when cancel_reason is null or rerun then '{state}' else 'doomed' end,
         cancel_reason = case when rerun then null else cancel_reason end"
    )
}

/// The reason of a job that is cancelled because what it was to follow did not succeed.
const PARENT_FAILED: &str = "a job that it was to follow did not succeed";
