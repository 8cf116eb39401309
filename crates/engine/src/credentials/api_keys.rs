//! API keys: `mr_<kind>_<id>_<secret><checksum>`. The checksum lets a scanner or client recognise a typo without a
//! request; the secret is random, so a fast hash of it is enough at rest.
//!
//! The operator's key is created on the first start, in a file for its owner; the database has only its hash.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use domain::{Actor, ApiKeyId, Clock, PlanTier, Secret, Sha256, TenantId};
use jiff::Timestamp;
use store::sql::keys::{KeyHolder, NewApiKey};
use store::{Store, StoreError, TenantStore};

use crate::credentials::secrets::write_new;

/// The scopes that a key may have.
pub const SCOPES: [&str; 3] = ["read", "write", "admin"];

const SECRET_BYTES: usize = 32;
const CHECKSUM_DIGITS: usize = 8;

/// Creates and stores a key, and returns it; it cannot be shown again. Not on record: for measurements and tests.
pub async fn create(
    store: &TenantStore,
    name: &str,
    scopes: &[String],
    expires_at: Option<Timestamp>,
) -> anyhow::Result<(ApiKeyId, Secret<String>)> {
    let (id, key) = new_key(store.clock())?;
    let (key_hash, created_at) = (Sha256::of(key.expose().as_bytes()), store.clock().now());
    let new = NewApiKey { id, name, key_hash, scopes, expires_at, created_at };
    store.create_api_key(new).await.context("storing the key")?;
    Ok((id, key))
}

/// Generates a key that is not stored yet.
pub fn new_key(clock: &dyn Clock) -> anyhow::Result<(ApiKeyId, Secret<String>)> {
    let id = ApiKeyId::new(clock);
    Ok((id, Secret::new(compose("tenant", id, &random_secret()?))))
}

/// The sender of a request.
#[derive(Debug, Clone)]
pub enum Caller {
    /// The operator of this installation, who may act for any tenant.
    Operator,
    Tenant(Principal),
}

/// A caller that may act for a tenant, by a key or by a token of the operator's issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// A key, or a person.
    pub actor: Actor,
    pub tenant: TenantId,
    pub is_tenant_active: bool,
    pub plan: PlanTier,
    pub scopes: Vec<String>,
}

impl Caller {
    /// Returns the caller as an actor.
    pub fn actor(&self) -> Actor {
        match self {
            Self::Operator => Actor::Operator,
            Self::Tenant(holder) => holder.actor.clone(),
        }
    }
}

impl From<KeyHolder> for Principal {
    fn from(holder: KeyHolder) -> Self {
        let KeyHolder { key, tenant, is_tenant_active, plan, scopes } = holder;
        Self { actor: Actor::Key(key), tenant, is_tenant_active, plan, scopes }
    }
}

/// Finds the caller of a key, by its hash: the duration of a comparison reveals nothing of the key.
pub async fn find_caller(store: &Store, key: &str) -> Result<Option<Caller>, StoreError> {
    if !is_well_formed(key) {
        return Ok(None);
    }
    let (system, hash) = (store.system(), Sha256::of(key.as_bytes()));
    if key.starts_with(OPERATOR_PREFIX) {
        let is_operator = system.find_operator_key().await?.is_some_and(|operator| operator == hash.hex());
        return Ok(is_operator.then_some(Caller::Operator));
    }
    Ok(system.find_key_holder(hash).await?.map(|holder| Caller::Tenant(holder.into())))
}

/// The prefix of all keys, which no token has.
pub const PREFIX: &str = "mr_";

const OPERATOR_PREFIX: &str = "mr_operator_";

/// Creates the operator's key if this database has none. Of several processes that start at once, one creates it.
pub async fn ensure_operator_key(store: &Store, path: &Path) -> anyhow::Result<()> {
    let system = store.system();
    if system.find_operator_key().await?.is_some() {
        return Ok(());
    }
    let id = ApiKeyId::new(store.clock());
    let line = Secret::new(compose("operator", id, &random_secret()?) + "\n");
    let is_ours = write_new(path, &line, &id.to_string())
        .with_context(|| format!("cannot make the file of the operator's key, {}", path.display()))?;
    // A process that was killed right here left the file, or another one creates it at this moment.
    let key = read_operator_key(path)?;
    let hash = Sha256::of(key.expose().as_bytes());
    system.record_first_operator_key(hash).await?;
    if is_ours && system.find_operator_key().await? != Some(hash.hex()) {
        std::fs::remove_file(path).or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    }
    Ok(())
}

/// Returns whether the key in the file is that of this database, or `None` if there is no file.
pub async fn is_operator_key(store: &Store, path: &Path) -> Result<Option<bool>, StoreError> {
    let Ok(text) = std::fs::read_to_string(path).map(Secret::new) else { return Ok(None) };
    let hash = Sha256::of(text.expose().trim().as_bytes());
    Ok(Some(store.system().find_operator_key().await? == Some(hash.hex())))
}

fn read_operator_key(path: &Path) -> anyhow::Result<Secret<String>> {
    let text = std::fs::read_to_string(path)
        .map(Secret::new)
        .with_context(|| format!("cannot read the operator's key from {}", path.display()))?;
    let key = Secret::new(text.expose().trim().to_owned());
    anyhow::ensure!(
        key.expose().starts_with(OPERATOR_PREFIX) && is_well_formed(key.expose()),
        "{} is not an operator's key, and this database has none yet; remove the file; a new key is created at the next start",
        path.display()
    );
    Ok(key)
}

fn compose(kind: &str, id: ApiKeyId, secret: &[u8]) -> String {
    let body = format!("mr_{kind}_{}_{}", id.0.simple(), domain::hash::hex(secret));
    let checksum = Sha256::of(body.as_bytes()).hex();
    format!("{body}{}", &checksum[..CHECKSUM_DIGITS])
}

/// Returns whether a text is a well-formed key.
pub fn is_well_formed(key: &str) -> bool {
    let Some(split) = key.len().checked_sub(CHECKSUM_DIGITS).filter(|split| key.is_char_boundary(*split)) else {
        return false;
    };
    let (body, checksum) = key.split_at(split);
    body.starts_with(PREFIX) && Sha256::of(body.as_bytes()).hex().starts_with(checksum)
}

/// Generates a password for a login of the database.
pub fn new_password() -> anyhow::Result<Secret<String>> {
    Ok(Secret::new(random_secret()?.iter().map(|byte| format!("{byte:02x}")).collect()))
}

fn random_secret() -> anyhow::Result<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).context("asking the system for random bytes")?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SystemClock;

    #[test]
    fn typo_in_a_key_is_recognised() {
        let key = compose("tenant", ApiKeyId::new(&SystemClock), &[7; SECRET_BYTES]);

        assert!(is_well_formed(&key));
        assert!(!is_well_formed(&key.replace('7', "8")));
        assert!(!is_well_formed("mr_") && !is_well_formed("") && !is_well_formed("ümläut-key"));
    }
}
