//! Rotates the signing secret of a webhook.

use std::time::Duration;

use domain::{Secret, TenantId, WebhookId};

use super::{WebhookWithSecret, find};
use crate::delivery::webhooks;
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, Refusal, WEBHOOK_ROTATE};

/// Long enough for any receiver to change over.
const MAX_KEEP_OLD: Duration = Duration::from_secs(30 * 86_400);

/// Rotates the signing secret of a webhook, to this one if it is given. Deliveries are also signed with the old one for a
/// while.
pub async fn rotate(
    call: &Invocation<'_, WebhookWithSecret>,
    tenant: TenantId,
    id: WebhookId,
    secret: Option<Secret<String>>,
    keep_old_for: Duration,
) -> Result<WebhookWithSecret, Refusal> {
    let before = find(call, tenant, id).await?;
    if keep_old_for > MAX_KEEP_OLD {
        return Err(Refusal::invalid("keep_old_seconds", "must be at most 2592000 seconds (30 days)"));
    }
    let rotated = webhooks::rotate(call.engine, tenant, &before, secret, keep_old_for, call.now).await?;
    let outcome = WebhookWithSecret { webhook: rotated.webhook.clone(), secret: rotated.secret.clone() };
    let recording = call.record(AuditedChange::new(&WEBHOOK_ROTATE, tenant, id), &outcome).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    rotated.add_to(&mut unit);
    unit.commit().await?;
    recording.finish().await?;
    Ok(outcome)
}
