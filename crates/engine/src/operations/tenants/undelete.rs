//! Restores a deleted tenant.

use store::sql::tenants::Tenant;

use super::{audited, check_not_erasing};
use crate::operations::{Invocation, Refusal, TENANT_UNDELETE};

/// Restores a deleted tenant, which is active from then on. The job that was to erase it finds this and ends.
pub async fn undelete(call: &Invocation<'_, Tenant>, before: &Tenant) -> Result<Tenant, Refusal> {
    call.check_version(before.version)?;
    check_not_erasing(before)?;
    if before.deleted_at.is_none() {
        return Err(Refusal::Conflict("this tenant is not deleted".to_owned()));
    }
    let after = Tenant { is_active: true, deleted_at: None, ..before.changed_at(call.now) };
    let recording = call.record(audited(&TENANT_UNDELETE, Some(before), &after), &after).await?;
    recording.engine.store.system().change_tenant(before, &after).await?;
    recording.finish().await?;
    Ok(after)
}
