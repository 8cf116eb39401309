//! What a person can do to dead letters.

mod discard;
mod replay;

use domain::TenantId;
use serde_json::json;
use store::sql::jobs::{JobFilter, JobRow};

use super::Operation;
use super::invocation::AuditedChange;

pub use discard::discard;
pub use replay::replay;

/// The dead letters that an operation is about.
#[derive(Debug, Clone)]
pub enum DeadLetters {
    One(Box<JobRow>),
    /// All that match.
    All(JobFilter),
}

impl DeadLetters {
    /// Those of several tenants are in the system's audit log.
    fn audited(&self, operation: &'static Operation) -> AuditedChange {
        match self {
            Self::One(job) => AuditedChange {
                after: Some(json!({"kind": job.kind})),
                ..AuditedChange::new(operation, job.tenant_id, job.id)
            },
            Self::All(filter) => AuditedChange {
                after: Some(json!({"kind": filter.kind, "fingerprint": filter.fingerprint})),
                ..AuditedChange::new(operation, filter.tenant.unwrap_or(TenantId::SYSTEM), "all")
            },
        }
    }
}
