//! Changes a tenant: its name, plan, settings, hold, and whether it is active.

use domain::{PlanTier, TenantSettings};
use store::sql::tenants::Tenant;

use super::{audited, check_name, check_not_erasing};
use crate::operations::{Invocation, Refusal, TENANT_CHANGE};

const MAX_HOLD_REASON_CHARS: usize = 1000;

/// The parts of a tenant that change.
#[derive(Debug, Clone, Default)]
pub struct TenantChange {
    pub name: Option<String>,
    pub plan: Option<PlanTier>,
    pub is_active: Option<bool>,
    /// Checked.
    pub settings: Option<TenantSettings>,
    /// `Some(None)` lifts the hold.
    pub hold_reason: Option<Option<String>>,
}

/// Changes a tenant. A deleted one is not activated; [`super::undelete`] restores it.
pub async fn change(call: &Invocation<'_, Tenant>, before: &Tenant, change: TenantChange) -> Result<Tenant, Refusal> {
    call.check_version(before.version)?;
    check_not_erasing(before)?;
    if before.deleted_at.is_some() && change.is_active == Some(true) {
        return Err(Refusal::Conflict("this tenant is deleted and cannot be activated; undelete it first".to_owned()));
    }
    let after = next_row(before, change, call.now)?;
    let recording = call.record(audited(&TENANT_CHANGE, Some(before), &after), &after).await?;
    recording.engine.store.system().change_tenant(before, &after).await?;
    recording.finish().await?;
    Ok(after)
}

fn next_row(before: &Tenant, change: TenantChange, now: jiff::Timestamp) -> Result<Tenant, Refusal> {
    let TenantChange { name, plan, is_active, settings, hold_reason } = change;
    let mut after = before.changed_at(now);
    if let Some(name) = name {
        check_name(&name)?;
        after.name = name;
    }
    after.plan_tier = plan.unwrap_or(after.plan_tier);
    after.is_active = is_active.unwrap_or(after.is_active);
    after.settings = settings.unwrap_or(after.settings);
    if let Some(reason) = hold_reason {
        if reason.as_ref().is_some_and(|reason| !is_hold_reason(reason)) {
            let why = format!("must be a text of 1 to {MAX_HOLD_REASON_CHARS} characters, or null");
            return Err(Refusal::invalid("hold_reason", why));
        }
        after.hold_reason = reason;
    }
    Ok(after)
}

fn is_hold_reason(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains('\0') && text.chars().count() <= MAX_HOLD_REASON_CHARS
}
