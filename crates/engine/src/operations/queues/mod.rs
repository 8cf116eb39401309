//! What an operator can do to the jobs of a lane, a kind or a tenant.

mod limit;
mod pause;
mod weight;

use domain::TenantId;
use serde_json::Value;
use store::sql::jobs::JobScope;

use super::Operation;
use super::invocation::AuditedChange;

pub use limit::limit;
pub use pause::{pause, resume};
pub use weight::set_weight;

/// A change of the jobs of a lane or kind is in the system's audit log.
fn audited(operation: &'static Operation, scope: &JobScope, after: Option<Value>) -> AuditedChange {
    let (tenant, target) = match scope {
        JobScope::Tenant(tenant) => (*tenant, tenant.to_string()),
        JobScope::Lane(lane) => (TenantId::SYSTEM, lane.as_str().to_owned()),
        JobScope::Kind(kind) => (TenantId::SYSTEM, kind.clone()),
    };
    AuditedChange { after, ..AuditedChange::new(operation, tenant, target) }
}
