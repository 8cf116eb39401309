//! What an operator can do to a tenant.

mod change;
mod create;
mod delete;
mod undelete;

use serde_json::{Value, json};
use store::sql::tenants::Tenant;

use super::invocation::AuditedChange;
use super::{Operation, Refusal};

pub use change::{TenantChange, change};
pub use create::{NewTenant, create};
pub use delete::delete;
pub use undelete::undelete;

fn audited(operation: &'static Operation, before: Option<&Tenant>, after: &Tenant) -> AuditedChange {
    AuditedChange {
        before: before.map(audit_json),
        after: Some(audit_json(after)),
        ..AuditedChange::new(operation, after.id, after.id)
    }
}

/// Fails if the erasure of the tenant has begun, which cannot be undone.
fn check_not_erasing(tenant: &Tenant) -> Result<(), Refusal> {
    if tenant.erasing_at.is_none() {
        return Ok(());
    }
    Err(Refusal::Conflict("this tenant is being erased and cannot be restored".to_owned()))
}

/// Renders a tenant for the audit log.
fn audit_json(tenant: &Tenant) -> Value {
    json!({
        "id": tenant.id, "name": tenant.name, "plan": tenant.plan_tier.as_str(), "is_active": tenant.is_active,
        "settings": tenant.settings, "created_at": tenant.created_at, "updated_at": tenant.updated_at,
        "deleted_at": tenant.deleted_at, "hold_reason": tenant.hold_reason,
    })
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if domain::tenant::is_valid_name(name) {
        return Ok(());
    }
    Err(Refusal::invalid(
        "name",
        "must have 1 to 100 characters on one line, without leading or trailing blanks, and must not be an id",
    ))
}
