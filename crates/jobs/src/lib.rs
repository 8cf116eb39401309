//! The durable job queue: job kinds, workers, fair scheduling, retries, recurring jobs, leader election. It knows nothing
//! about mail.
//!
//! Rows and their transitions are in `store::sql::jobs`; here is everything that happens in memory.

pub mod cron;
pub mod fair;
pub mod kind;
pub mod leader;
pub mod lease_gate;
pub mod noop;
#[cfg(feature = "testing")]
pub mod probe;
pub mod recurring;
pub mod retry;
pub mod trace;
pub mod worker;

pub use domain::{RandomSource, SystemRandom};
pub use kind::{Completion, Job, JobContext, JobError, JobKind, JobKinds, Pool, RunnableJob, new_job, storage_fault};
pub use lease_gate::{LeaseGate, OpenLeaseGate};
pub use retry::RetryPolicy;
pub use worker::{Worker, WorkerSettings, panic_message};
