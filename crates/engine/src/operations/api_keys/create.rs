//! Creates an API key.

use domain::{ApiKeyId, Secret, Sha256, TenantId};
use jiff::Timestamp;
use serde_json::json;
use store::sql::keys::NewApiKey;

use crate::credentials::api_keys::{SCOPES, new_key};
use crate::operations::invocation::AuditedChange;
use crate::operations::{API_KEY_CREATE, Invocation, Refusal};

/// A key to create.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// For people.
    pub name: String,
    pub scopes: Vec<String>,
    pub expires_at: Option<Timestamp>,
}

/// A key that was created, which is not shown again.
#[derive(Debug, Clone)]
pub struct CreatedKey {
    pub id: ApiKeyId,
    pub tenant: TenantId,
    pub new: NewKey,
    pub created_at: Timestamp,
    pub key: Secret<String>,
}

/// Creates an API key of a tenant, which is valid from then on.
pub async fn create(call: &Invocation<'_, CreatedKey>, tenant: TenantId, new: NewKey) -> Result<CreatedKey, Refusal> {
    check(&new, call.now)?;
    let (id, key) = new_key(call.engine.store.clock())?;
    let created = CreatedKey { id, tenant, new, created_at: call.now, key };
    let NewKey { name, scopes, expires_at } = &created.new;
    let change = AuditedChange {
        after: Some(json!({"id": id, "name": name, "scopes": scopes, "expires_at": expires_at})),
        ..AuditedChange::new(&API_KEY_CREATE, tenant, id)
    };
    let recording = call.record(change, &created).await?;
    let row = NewApiKey {
        id,
        name,
        key_hash: Sha256::of(created.key.expose().as_bytes()),
        scopes,
        expires_at: *expires_at,
        created_at: call.now,
    };
    recording.engine.store.tenant(tenant).create_api_key(row).await?;
    recording.finish().await?;
    Ok(created)
}

fn check(new: &NewKey, now: Timestamp) -> Result<(), Refusal> {
    let NewKey { name, scopes, expires_at } = new;
    if name.trim().is_empty() || name.chars().count() > 100 || name.chars().any(char::is_control) {
        return Err(Refusal::invalid("name", "must have 1 to 100 characters on one line"));
    }
    if scopes.is_empty() || scopes.iter().any(|scope| !SCOPES.contains(&scope.as_str())) {
        return Err(Refusal::invalid("scopes", format!("must be one or more of {}", SCOPES.join(", "))));
    }
    if expires_at.is_some_and(|at| at <= now) {
        return Err(Refusal::invalid("expires_at", "must be in the future"));
    }
    Ok(())
}
