//! Deletes a directory.

use domain::TenantId;
use store::sql::directories::Directory;

use super::audit_json;
use crate::operations::invocation::AuditedChange;
use crate::operations::{DIRECTORY_DELETE, Invocation, Refusal};

/// Deletes a directory with its people. Mailboxes stay as they are, as if each had been connected by hand.
pub async fn delete(call: &Invocation<'_, ()>, tenant: TenantId, before: &Directory) -> Result<(), Refusal> {
    call.check_version(before.version)?;
    let change = AuditedChange {
        before: Some(audit_json(before)),
        ..AuditedChange::new(&DIRECTORY_DELETE, tenant, before.provider.as_str())
    };
    let recording = call.record(change, &()).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    unit.remove_directory(before.provider, before.version);
    unit.commit().await?;
    recording.finish().await
}
