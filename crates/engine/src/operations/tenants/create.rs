//! Creates a tenant.

use domain::{PlanTier, TenantId, TenantSettings};
use store::sql::tenants::Tenant;

use super::{audited, check_name};
use crate::operations::{Invocation, Refusal, TENANT_CREATE};

/// A tenant to create.
#[derive(Debug, Clone)]
pub struct NewTenant {
    pub name: String,
    pub plan: PlanTier,
    /// Checked.
    pub settings: TenantSettings,
}

/// Creates a tenant. Fails with [`store::Precondition::TenantNameTaken`].
pub async fn create(call: &Invocation<'_, Tenant>, new: NewTenant) -> Result<Tenant, Refusal> {
    let NewTenant { name, plan, settings } = new;
    check_name(&name)?;
    let id = TenantId::new(call.engine.store.clock());
    let tenant = Tenant { settings, ..Tenant::new(id, &name, plan, call.now) };
    let recording = call.record(audited(&TENANT_CREATE, None, &tenant), &tenant).await?;
    recording.engine.store.system().add_tenant(&tenant).await?;
    recording.finish().await?;
    Ok(tenant)
}
