//! Deletes a webhook.

use domain::{TenantId, WebhookId};

use super::{audit_json, find};
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, Refusal, WEBHOOK_DELETE};

/// Deletes a webhook with its secrets. A job deletes its deliveries.
pub async fn delete(call: &Invocation<'_, ()>, tenant: TenantId, id: WebhookId) -> Result<(), Refusal> {
    let webhook = find(call, tenant, id).await?;
    call.check_version(webhook.version)?;
    let change =
        AuditedChange { before: Some(audit_json(&webhook)), ..AuditedChange::new(&WEBHOOK_DELETE, tenant, id) };
    let recording = call.record(change, &()).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    unit.remove_webhook(&webhook);
    unit.commit().await?;
    recording.finish().await
}
