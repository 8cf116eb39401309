//! Creates webhooks and rotates their signing secrets. The changes go into a unit of the caller, together with audit
//! and events.

use std::time::Duration;

use domain::{EventType, MailboxId, Secret, SecretId, SecretKind, TenantId, WebhookId};
use jiff::Timestamp;
use outbound::http::AddressPolicy;
use store::TenantUnit;
use store::sql::secrets::SealedSecret;
use store::sql::webhooks::{NewWebhook, SigningSecret, Webhook};

use super::sign::{SigningKey, new_secret};
use super::url;
use crate::Engine;
use crate::credentials::secrets::VaultError;

/// Secrets that sign at the same time; each makes the header longer.
const MAX_SECRETS: usize = 5;

const MAX_TYPES: usize = 50;

/// The events that a tenant wants to receive, and where.
#[derive(Debug, Clone, Default)]
pub struct WebhookRequest {
    pub url: String,
    pub description: String,
    pub types: Vec<String>,
    pub mailbox_id: Option<MailboxId>,
    pub with_backfill: bool,
    /// A secret of the tenant's own; otherwise one is generated.
    pub secret: Option<Secret<String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// A field is not valid.
    #[error("{field}: {why}")]
    Invalid { field: &'static str, why: String },
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// A webhook that is not stored yet.
#[derive(Debug)]
pub struct WebhookDraft {
    pub webhook: NewWebhook,
    /// Shown to its owner once.
    pub secret: Secret<String>,
    sealed: SealedSecret,
}

impl WebhookDraft {
    pub fn add_to(&self, unit: &mut TenantUnit) {
        unit.put_secret(&self.sealed);
        unit.add_webhook(&self.webhook);
    }
}

/// A webhook with a new signing secret, not stored yet.
#[derive(Debug)]
pub struct SecretRotation {
    /// Its next row.
    pub webhook: Webhook,
    /// Shown to its owner once.
    pub secret: Secret<String>,
    sealed: SealedSecret,
    expired: Vec<SecretId>,
}

impl SecretRotation {
    /// Adds the changes to a unit, which fails if the webhook was changed meanwhile.
    pub fn add_to(&self, unit: &mut TenantUnit) {
        unit.put_secret(&self.sealed);
        unit.change_webhook(self.webhook.version - 1, &self.webhook);
        for id in &self.expired {
            unit.delete_secret(*id);
        }
    }
}

pub async fn draft(
    engine: &Engine,
    policy: &AddressPolicy,
    tenant: TenantId,
    request: WebhookRequest,
    now: Timestamp,
) -> Result<WebhookDraft, WebhookError> {
    let WebhookRequest { url, description, types, mailbox_id, with_backfill, secret } = request;
    url::check(&url, policy).map_err(|why| WebhookError::Invalid { field: "url", why })?;
    check_types(&types)?;
    let (secret, sealed) = seal(engine, tenant, secret).await?;
    let id = WebhookId::new(engine.store.clock());
    let signing = sealed.id;
    let webhook = NewWebhook { id, url, description, types, mailbox_id, with_backfill, signing, created_at: now };
    Ok(WebhookDraft { webhook, secret, sealed })
}

/// Rotates the signing secret. The old ones still sign for a while, so that receivers can adopt the new one in between.
pub async fn rotate(
    engine: &Engine,
    tenant: TenantId,
    webhook: &Webhook,
    secret: Option<Secret<String>>,
    keep_old_for: Duration,
    now: Timestamp,
) -> Result<SecretRotation, WebhookError> {
    let (secret, sealed) = seal(engine, tenant, secret).await?;
    let end = now.checked_add(keep_old_for).unwrap_or(Timestamp::MAX);
    let mut signing = vec![SigningSecret { id: sealed.id, until: None }];
    let mut expired = Vec::new();
    for old in &webhook.signing {
        let until = old.until.map_or(end, |until| until.min(end));
        if until > now && signing.len() < MAX_SECRETS {
            signing.push(SigningSecret { id: old.id, until: Some(until) });
        } else {
            expired.push(old.id);
        }
    }
    let webhook = Webhook { signing, version: webhook.version + 1, updated_at: now, ..webhook.clone() };
    Ok(SecretRotation { webhook, secret, sealed, expired })
}

/// Refuses names that are no event types. A webhook that has such a name from an older version keeps it; no event
/// matches it.
pub fn check_types(types: &[String]) -> Result<(), WebhookError> {
    if types.len() > MAX_TYPES {
        return Err(invalid_types(format!("must have at most {MAX_TYPES} entries")));
    }
    match types.iter().find_map(|name| EventType::parse(name).err()) {
        Some(unknown) => Err(invalid_types(unknown.to_string())),
        None => Ok(()),
    }
}

fn invalid_types(why: String) -> WebhookError {
    WebhookError::Invalid { field: "types", why }
}

async fn seal(
    engine: &Engine,
    tenant: TenantId,
    given: Option<Secret<String>>,
) -> Result<(Secret<String>, SealedSecret), WebhookError> {
    let secret = match given {
        Some(secret) => secret,
        None => new_secret()?,
    };
    SigningKey::parse(secret.expose()).map_err(|e| WebhookError::Invalid { field: "secret", why: e.to_string() })?;
    let id = SecretId::new(engine.store.clock());
    let sealed = engine.vault.seal(tenant, id, SecretKind::WebhookSigning, &secret).await?;
    Ok((secret, sealed))
}
