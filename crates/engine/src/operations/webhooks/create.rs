//! Creates a webhook.

use domain::{TenantId, WebhookState};
use jiff::Timestamp;
use outbound::http::AddressPolicy;
use store::sql::webhooks::{NewWebhook, SigningSecret, Webhook};

use super::{WebhookWithSecret, audit_json, check};
use crate::delivery::webhooks::{WebhookRequest, draft};
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, Refusal, WEBHOOK_CREATE};

/// Creates a webhook for events from now on.
pub async fn create(
    call: &Invocation<'_, WebhookWithSecret>,
    tenant: TenantId,
    policy: &AddressPolicy,
    request: WebhookRequest,
) -> Result<WebhookWithSecret, Refusal> {
    check(&call.engine.store.tenant(tenant), &request.description, request.mailbox_id).await?;
    let drafted = draft(call.engine, policy, tenant, request, call.now).await?;
    let webhook = row(&drafted.webhook, call.now);
    let created = WebhookWithSecret { webhook, secret: drafted.secret.clone() };
    let change = AuditedChange {
        after: Some(audit_json(&created.webhook)),
        ..AuditedChange::new(&WEBHOOK_CREATE, tenant, created.webhook.id)
    };
    let recording = call.record(change, &created).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    drafted.add_to(&mut unit);
    unit.commit().await?;
    recording.finish().await?;
    Ok(created)
}

/// Returns the row of a new webhook. Only its cursor is known to the commit alone.
fn row(new: &NewWebhook, now: Timestamp) -> Webhook {
    let NewWebhook { id, url, description, types, mailbox_id, with_backfill, signing, created_at } = new.clone();
    Webhook {
        id,
        url,
        description,
        types,
        mailbox_id,
        with_backfill,
        signing: vec![SigningSecret { id: signing, until: None }],
        state: WebhookState::Active,
        state_reason: None,
        cursor: 0,
        failing_since: None,
        failures: 0,
        last_error: None,
        rest_until: None,
        version: 1,
        created_at,
        updated_at: now,
    }
}
