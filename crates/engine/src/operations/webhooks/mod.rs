//! What a person can do to a webhook and its deliveries.

mod change;
mod create;
mod delete;
mod deliveries;
mod rotate;

use domain::{MailboxId, Secret, TenantId, WebhookId, WebhookState};
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::webhooks::Webhook;

use super::{Invocation, Refusal};
use crate::delivery::webhooks::WebhookError;

pub use change::{WebhookChange, change};
pub use create::create;
pub use delete::delete;
pub use deliveries::{ping, resend, resend_since};
pub use rotate::rotate;

const MAX_DESCRIPTION_CHARS: usize = 1000;

/// A webhook with its newest signing secret, which is shown once.
#[derive(Debug, Clone)]
pub struct WebhookWithSecret {
    pub webhook: Webhook,
    pub secret: Secret<String>,
}

impl From<WebhookError> for Refusal {
    fn from(e: WebhookError) -> Self {
        match e {
            WebhookError::Invalid { field, why } => Self::invalid(field, why),
            WebhookError::Vault(e) => Self::Other(e.into()),
            WebhookError::Other(e) => e.into(),
        }
    }
}

async fn find<T>(call: &Invocation<'_, T>, tenant: TenantId, id: WebhookId) -> Result<Webhook, Refusal> {
    call.engine.store.tenant(tenant).find_webhook(id).await?.ok_or(Refusal::NotFound("webhook"))
}

async fn find_active<T>(call: &Invocation<'_, T>, tenant: TenantId, id: WebhookId) -> Result<Webhook, Refusal> {
    let webhook = find(call, tenant, id).await?;
    if webhook.state == WebhookState::Active {
        return Ok(webhook);
    }
    Err(Refusal::Conflict(format!("this webhook is {}; activate it first", webhook.state.as_str())))
}

async fn check(store: &TenantStore, description: &str, mailbox: Option<MailboxId>) -> Result<(), Refusal> {
    if description.chars().count() > MAX_DESCRIPTION_CHARS || description.contains('\0') {
        return Err(Refusal::invalid("description", format!("must have at most {MAX_DESCRIPTION_CHARS} characters")));
    }
    if let Some(mailbox) = mailbox
        && store.find_mailbox(&mailbox.to_string()).await?.is_none()
    {
        return Err(Refusal::invalid("mailbox_id", "must be the id of a mailbox of this tenant"));
    }
    Ok(())
}

/// Renders a webhook for the audit log.
fn audit_json(webhook: &Webhook) -> Value {
    json!({
        "id": webhook.id, "url": webhook.url, "description": webhook.description, "types": webhook.types,
        "mailbox_id": webhook.mailbox_id, "with_backfill": webhook.with_backfill, "state": webhook.state,
        "state_reason": webhook.state_reason, "created_at": webhook.created_at, "updated_at": webhook.updated_at,
    })
}
