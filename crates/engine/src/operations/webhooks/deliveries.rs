//! Sends deliveries once more, or a test delivery.

use domain::{DeliveryId, TenantId, WebhookId};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::TenantUnit;
use store::sql::webhook_deliveries::ResendFilter;

use super::find_active;
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, Operation, Refusal, WEBHOOK_PING, WEBHOOK_RESEND};

/// Sends a test delivery to a webhook.
pub async fn ping(call: &Invocation<'_, ()>, tenant: TenantId, id: WebhookId) -> Result<(), Refusal> {
    find_active(call, tenant, id).await?;
    let (recording, mut unit) = begin(call, &WEBHOOK_PING, tenant, id, json!({})).await?;
    unit.ping(id);
    unit.commit().await?;
    recording.finish().await
}

/// Sends a delivery again, under its id.
pub async fn resend(
    call: &Invocation<'_, ()>,
    tenant: TenantId,
    id: WebhookId,
    delivery: DeliveryId,
) -> Result<(), Refusal> {
    find_active(call, tenant, id).await?;
    let found = call.engine.store.tenant(tenant).find_delivery(id, delivery).await?;
    found.ok_or(Refusal::NotFound("delivery"))?;
    let (recording, mut unit) = begin(call, &WEBHOOK_RESEND, tenant, id, json!({"delivery": delivery})).await?;
    unit.resend(id, vec![delivery]);
    unit.commit().await?;
    recording.finish().await
}

/// Sends the failed deliveries since then again, and if wanted those that succeeded.
pub async fn resend_since(
    call: &Invocation<'_, ()>,
    tenant: TenantId,
    id: WebhookId,
    since: Timestamp,
    filter: ResendFilter,
) -> Result<(), Refusal> {
    find_active(call, tenant, id).await?;
    let after = json!({"since": since, "delivered_too": filter == ResendFilter::FailedAndDelivered});
    let (recording, mut unit) = begin(call, &WEBHOOK_RESEND, tenant, id, after).await?;
    unit.resend_since(id, since, filter);
    unit.commit().await?;
    recording.finish().await
}

async fn begin(
    call: &Invocation<'_, ()>,
    operation: &'static Operation,
    tenant: TenantId,
    id: WebhookId,
    after: Value,
) -> Result<(crate::operations::invocation::RecordingEngine, TenantUnit), Refusal> {
    let change = AuditedChange { after: Some(after), ..AuditedChange::new(operation, tenant, id) };
    let recording = call.record(change, &()).await?;
    let unit = recording.engine.store.tenant(tenant).write();
    Ok((recording, unit))
}
