//! What a person can do to a job.

mod cancel;
mod enqueue;
mod move_to;
mod retry;

use serde_json::{Value, json};
use store::sql::jobs::JobRow;

use super::Operation;
use super::invocation::AuditedChange;

pub use cancel::cancel;
pub use enqueue::{EnqueueRequest, EnqueuedJobs, enqueue};
pub use move_to::move_to;
pub use retry::retry;

fn audited(operation: &'static Operation, job: &JobRow, after: Option<Value>) -> AuditedChange {
    AuditedChange {
        before: Some(json!({"kind": job.kind, "state": job.state.as_str(), "lane": job.lane.as_str()})),
        after,
        ..AuditedChange::new(operation, job.tenant_id, job.id)
    }
}
