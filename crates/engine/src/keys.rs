//! API keys: `mr_<kind>_<id>_<secret><checksum>`. The checksum lets a scanner or a client tell a typo from a stranger
//! without asking us; the secret is random, so a fast hash of it is enough at rest.

use anyhow::Context;
use domain::{ApiKeyId, Sha256};
use jiff::Timestamp;
use store::TenantStore;
use store::sql::keys::NewApiKey;

/// What a key may do.
pub const SCOPES: [&str; 3] = ["read", "write", "admin"];

const SECRET_BYTES: usize = 32;
const CHECKSUM_DIGITS: usize = 8;

/// Makes a key and returns it; it cannot be shown again.
pub async fn create(
    store: &TenantStore,
    name: &str,
    scopes: &[String],
    expires_at: Option<Timestamp>,
) -> anyhow::Result<(ApiKeyId, String)> {
    let id = ApiKeyId::new(store.clock());
    let key = compose("tenant", id, &random_secret()?);
    store
        .create_api_key(NewApiKey { id, name, key_hash: Sha256::of(key.as_bytes()), scopes, expires_at })
        .await
        .context("storing the key")?;
    Ok((id, key))
}

fn compose(kind: &str, id: ApiKeyId, secret: &[u8]) -> String {
    let body = format!("mr_{kind}_{}_{}", id.0.simple(), domain::hash::hex(secret));
    let checksum = Sha256::of(body.as_bytes()).hex();
    format!("{body}{}", &checksum[..CHECKSUM_DIGITS])
}

/// Whether a text can be a key at all.
pub fn is_well_formed(key: &str) -> bool {
    let Some(split) = key.len().checked_sub(CHECKSUM_DIGITS).filter(|split| key.is_char_boundary(*split)) else {
        return false;
    };
    let (body, checksum) = key.split_at(split);
    body.starts_with("mr_") && Sha256::of(body.as_bytes()).hex().starts_with(checksum)
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
    fn a_key_with_a_typo_is_told_from_a_key() {
        let key = compose("tenant", ApiKeyId::new(&SystemClock), &[7; SECRET_BYTES]);

        assert!(is_well_formed(&key));
        assert!(!is_well_formed(&key.replace('7', "8")));
        assert!(!is_well_formed("mr_") && !is_well_formed("") && !is_well_formed("ümläut-key"));
    }
}
