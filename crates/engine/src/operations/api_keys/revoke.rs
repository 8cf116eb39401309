//! Revokes an API key.

use domain::{ApiKeyId, TenantId};
use serde_json::json;

use crate::operations::invocation::AuditedChange;
use crate::operations::{API_KEY_REVOKE, Invocation, Refusal};

/// Revokes an API key, effective at once. Fails with [`Refusal::NotFound`] if there is no valid one.
pub async fn revoke(call: &Invocation<'_, ()>, tenant: TenantId, id: ApiKeyId) -> Result<(), Refusal> {
    let keys = call.engine.store.tenant(tenant).list_api_keys().await?;
    let key = keys.into_iter().find(|key| key.id == id && key.revoked_at.is_none());
    let key = key.ok_or(Refusal::NotFound("key that is valid"))?;
    let change = AuditedChange {
        before: Some(json!({"id": id, "name": key.name, "scopes": key.scopes, "expires_at": key.expires_at})),
        ..AuditedChange::new(&API_KEY_REVOKE, tenant, id)
    };
    let recording = call.record(change, &()).await?;
    if !recording.engine.store.tenant(tenant).revoke_api_key(id).await? {
        return Err(Refusal::NotFound("key that is valid"));
    }
    recording.finish().await
}
