//! Soft-deletes an email.

use domain::{EmailId, TenantId};
use serde_json::json;
use store::{Precondition, StoreError};

use crate::operations::invocation::AuditedChange;
use crate::operations::{EMAIL_DELETE, Invocation, Refusal};

/// Hides an email from searches. The message at its provider stays as it is.
pub async fn delete(call: &Invocation<'_, ()>, tenant: TenantId, id: EmailId) -> Result<(), Refusal> {
    let email = call.engine.store.tenant(tenant).find_email(id).await?.ok_or(Refusal::NotFound("email"))?;
    call.check_tenant(&EMAIL_DELETE, tenant).await?;
    let change = AuditedChange {
        before: Some(json!({"mailbox_id": email.mailbox_id, "deleted_at": email.deleted_at})),
        ..AuditedChange::new(&EMAIL_DELETE, tenant, id)
    };
    let recording = call.record(change, &()).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    unit.discard_email(id);
    match unit.commit().await {
        // Deleted before, or gone at its provider.
        Ok(_) | Err(StoreError::Precondition(Precondition::NoSuchEmail)) => recording.finish().await,
        Err(e) => Err(call.explain(&EMAIL_DELETE, tenant, e.into()).await),
    }
}
