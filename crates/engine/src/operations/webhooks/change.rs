//! Changes a webhook.

use domain::{MailboxId, TenantId, WebhookId, WebhookState};
use jiff::Timestamp;
use outbound::http::AddressPolicy;
use store::sql::webhooks::Webhook;

use super::{audit_json, check, find};
use crate::delivery::webhooks::{check_types, url};
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, Refusal, WEBHOOK_CHANGE};

const PAUSED_REASON: &str = "paused on request";

/// The parts of a webhook that change.
#[derive(Debug, Clone, Default)]
pub struct WebhookChange {
    pub url: Option<String>,
    pub description: Option<String>,
    pub types: Option<Vec<String>>,
    /// `Some(None)`: of all mailboxes.
    pub mailbox_id: Option<Option<MailboxId>>,
    pub with_backfill: Option<bool>,
    /// Pauses the webhook; or activates it, also one that was disabled.
    pub is_paused: Option<bool>,
}

/// Changes a webhook. With another address or state its failures are forgotten.
pub async fn change(
    call: &Invocation<'_, Webhook>,
    tenant: TenantId,
    id: WebhookId,
    policy: &AddressPolicy,
    change: WebhookChange,
) -> Result<Webhook, Refusal> {
    let before = find(call, tenant, id).await?;
    call.check_version(before.version)?;
    if let Some(url) = &change.url {
        url::check(url, policy).map_err(|why| Refusal::invalid("url", why))?;
    }
    if let Some(types) = &change.types {
        check_types(types)?;
    }
    let description = change.description.as_ref().unwrap_or(&before.description);
    check(&call.engine.store.tenant(tenant), description, change.mailbox_id.flatten()).await?;
    let after = next_row(&before, change, call.now);
    let audited = AuditedChange {
        before: Some(audit_json(&before)),
        after: Some(audit_json(&after)),
        ..AuditedChange::new(&WEBHOOK_CHANGE, tenant, id)
    };
    let recording = call.record(audited, &after).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    unit.change_webhook(before.version, &after);
    unit.commit().await?;
    recording.finish().await?;
    Ok(after)
}

fn next_row(before: &Webhook, change: WebhookChange, now: Timestamp) -> Webhook {
    let WebhookChange { url, description, types, mailbox_id, with_backfill, is_paused } = change;
    let mut after = Webhook { version: before.version + 1, updated_at: now, ..before.clone() };
    after.url = url.unwrap_or(after.url);
    after.description = description.unwrap_or(after.description);
    after.types = types.unwrap_or(after.types);
    after.mailbox_id = mailbox_id.unwrap_or(after.mailbox_id);
    after.with_backfill = with_backfill.unwrap_or(after.with_backfill);
    if let Some(is_paused) = is_paused {
        let paused = (WebhookState::Paused, Some(PAUSED_REASON.to_owned()));
        (after.state, after.state_reason) = if is_paused { paused } else { (WebhookState::Active, None) };
    }
    if after.url != before.url || after.state != before.state {
        after = Webhook { failing_since: None, failures: 0, last_error: None, rest_until: None, ..after };
    }
    after
}
