//! Deletes a tenant.

use jiff::SignedDuration;
use store::sql::tenants::Tenant;

use super::audited;
use crate::accounts::erasure::EraseTenant;
use crate::operations::{Invocation, Refusal, TENANT_DELETE};

/// Deletes a tenant: its access ends at once, and a job erases its data after `erase_after`, until when it can be restored.
pub async fn delete(
    call: &Invocation<'_, Tenant>,
    before: &Tenant,
    erase_after: SignedDuration,
) -> Result<Tenant, Refusal> {
    call.check_version(before.version)?;
    call.check_tenant(&TENANT_DELETE, before.id).await?;
    if before.deleted_at.is_some() {
        let why = "this tenant is already deleted; it is erased after tenants.erase_after";
        return Err(Refusal::Conflict(why.to_owned()));
    }
    let after = Tenant { is_active: false, deleted_at: Some(call.now), ..before.changed_at(call.now) };
    let erase = EraseTenant::request(call.engine.store.clock(), before.id, call.now, erase_after)?;
    let recording = call.record(audited(&TENANT_DELETE, Some(before), &after), &after).await?;
    recording.engine.store.system().delete_tenant(before, &after, erase).await?;
    recording.finish().await?;
    Ok(after)
}
