//! Restores a soft-deleted email.

use domain::{EmailId, TenantId};
use serde_json::json;
use store::{Precondition, StoreError};

use crate::operations::invocation::AuditedChange;
use crate::operations::{EMAIL_RESTORE, Invocation, Refusal};

/// Shows a soft-deleted email again, whoever deleted it. It stays although its provider has it no more, until the provider
/// deletes it from then on.
pub async fn restore(call: &Invocation<'_, ()>, tenant: TenantId, id: EmailId) -> Result<(), Refusal> {
    let email = call.engine.store.tenant(tenant).find_email(id).await?.ok_or(Refusal::NotFound("email"))?;
    let change = AuditedChange {
        before: Some(json!({"mailbox_id": email.mailbox_id, "deleted_at": email.deleted_at})),
        ..AuditedChange::new(&EMAIL_RESTORE, tenant, id)
    };
    let recording = call.record(change, &()).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    unit.restore_email(id);
    match unit.commit().await {
        // It is not deleted, or was purged meanwhile.
        Ok(_) | Err(StoreError::Precondition(Precondition::NoSuchEmail)) => recording.finish().await,
        Err(e) => Err(e.into()),
    }
}
