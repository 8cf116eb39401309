//! Making webhooks and changing what signs for them. What is made here goes into a unit of the caller's, with whatever
//! belongs to it.

use std::time::Duration;

use domain::{MailboxId, Secret, SecretId, SecretKind, TenantId, WebhookId};
use store::TenantUnit;
use store::sql::secrets::SealedSecret;
use store::sql::webhooks::{NewWebhook, Signing, Webhook};

use super::address::Policy;
use super::sign::{SigningKey, new_secret};
use super::url;
use crate::Engine;
use crate::secrets::VaultError;

/// Secrets that sign at the same time. More would only make the header longer.
const MOST_SECRETS: usize = 5;

const MOST_TYPES: usize = 50;
const LONGEST_TYPE: usize = 100;

/// What a tenant wants to be told of, and where.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub url: String,
    pub description: String,
    pub types: Vec<String>,
    pub mailbox_id: Option<MailboxId>,
    pub with_backfill: bool,
    /// One that the tenant has already; else one is made.
    pub secret: Option<Secret<String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// What is wrong with which field.
    #[error("{field}: {why}")]
    Invalid { field: &'static str, why: String },
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// A webhook that is not there yet.
#[derive(Debug)]
pub struct Drafted {
    pub webhook: NewWebhook,
    /// For its owner to see, this once.
    pub secret: Secret<String>,
    sealed: SealedSecret,
}

impl Drafted {
    pub fn add_to(&self, unit: &mut TenantUnit) {
        unit.put_secret(&self.sealed);
        unit.add_webhook(&self.webhook);
    }
}

/// A webhook that another secret signs for.
#[derive(Debug)]
pub struct Rotated {
    pub webhook: Webhook,
    /// For its owner to see, this once.
    pub secret: Secret<String>,
    sealed: SealedSecret,
    over: Vec<SecretId>,
}

impl Rotated {
    /// Unless the webhook has another version by now.
    pub fn add_to(&self, unit: &mut TenantUnit) {
        unit.put_secret(&self.sealed);
        unit.change_webhook(&self.webhook);
        for id in &self.over {
            unit.delete_secret(*id);
        }
    }
}

pub async fn draft(engine: &Engine, policy: &Policy, tenant: TenantId, wanted: Wanted) -> Result<Drafted, Refused> {
    let Wanted { url, description, types, mailbox_id, with_backfill, secret } = wanted;
    url::check(&url, policy).map_err(|why| Refused::Invalid { field: "url", why })?;
    check_types(&types)?;
    let (secret, sealed) = seal(engine, tenant, secret).await?;
    let id = WebhookId::new(engine.store.clock());
    let signing = sealed.id;
    let webhook = NewWebhook { id, url, description, types, mailbox_id, with_backfill, signing };
    Ok(Drafted { webhook, secret, sealed })
}

/// What signed so far does so for a while still, so that receivers can learn the new secret in between.
pub async fn rotate(
    engine: &Engine,
    tenant: TenantId,
    webhook: &Webhook,
    secret: Option<Secret<String>>,
    keep_old_for: Duration,
) -> Result<Rotated, Refused> {
    let (secret, sealed) = seal(engine, tenant, secret).await?;
    let now = engine.store.clock().now();
    let end = now.checked_add(keep_old_for).unwrap_or(jiff::Timestamp::MAX);
    let mut signing = vec![Signing { id: sealed.id, until: None }];
    let mut over = Vec::new();
    for old in &webhook.signing {
        let until = old.until.map_or(end, |until| until.min(end));
        if until > now && signing.len() < MOST_SECRETS {
            signing.push(Signing { id: old.id, until: Some(until) });
        } else {
            over.push(old.id);
        }
    }
    Ok(Rotated { webhook: Webhook { signing, ..webhook.clone() }, secret, sealed, over })
}

/// Names of events, such as `email.received`.
pub fn check_types(types: &[String]) -> Result<(), Refused> {
    let invalid = |why: String| Err(Refused::Invalid { field: "types", why });
    if types.len() > MOST_TYPES {
        return invalid(format!("there are more than {MOST_TYPES}"));
    }
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= LONGEST_TYPE
            && name.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '.' | '_'))
    };
    match types.iter().find(|name| !is_name(name)) {
        Some(_) => invalid("a name of an event is like email.received".to_owned()),
        None => Ok(()),
    }
}

async fn seal(
    engine: &Engine,
    tenant: TenantId,
    given: Option<Secret<String>>,
) -> Result<(Secret<String>, SealedSecret), Refused> {
    let secret = match given {
        Some(secret) => secret,
        None => new_secret()?,
    };
    SigningKey::parse(secret.expose()).map_err(|e| Refused::Invalid { field: "secret", why: e.to_string() })?;
    let id = SecretId::new(engine.store.clock());
    let sealed = engine.vault.seal(tenant, id, SecretKind::WebhookSigning, &secret).await?;
    Ok((secret, sealed))
}
