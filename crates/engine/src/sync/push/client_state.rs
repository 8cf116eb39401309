//! The clientState that a provider sends with each call to authenticate itself: random bytes and their HMAC by a key
//! derived from the master key. A forged one is recognised without a query.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::Secret;
use ring::hmac;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::credentials::secrets::{Vault, VaultError};

/// The label of the derived key; no other key is derived under this name.
const KEY_LABEL: &str = "mailroom push passwords 1";

/// 256 bits, twice what cannot be guessed.
const RANDOM_BYTES: usize = 32;

/// How often forged values can make us check whether the master key has changed.
const KEY_RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Creates and recognises clientStates. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ClientStates {
    vault: Vault,
    /// The derived key, with the time when it was loaded.
    key: Arc<Mutex<Option<(Instant, hmac::Key)>>>,
}

impl ClientStates {
    pub fn new(vault: Vault) -> Self {
        Self { vault, key: Arc::default() }
    }

    /// Creates a clientState of 86 characters.
    pub async fn create(&self) -> anyhow::Result<Secret<String>> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random)?;
        let signature = hmac::sign(&self.vault.derive(KEY_LABEL).await?, &random);
        Ok(Secret::new(URL_SAFE_NO_PAD.encode([&random, signature.as_ref()].concat())))
    }

    /// Returns which of these were created here, under the current master key. The duration does not reveal where
    /// others differ.
    pub async fn are_ours(&self, client_states: &[&str]) -> Result<Vec<bool>, VaultError> {
        let are_ours = check(&self.key(Duration::MAX).await?, client_states);
        // The key may have changed.
        if are_ours.contains(&false) {
            Ok(check(&self.key(KEY_RELOAD_INTERVAL).await?, client_states))
        } else {
            Ok(are_ours)
        }
    }

    async fn key(&self, max_age: Duration) -> Result<hmac::Key, VaultError> {
        let mut cached = self.key.lock().await;
        if let Some((at, key)) = &*cached
            && at.elapsed() < max_age
        {
            return Ok(key.clone());
        }
        let key = self.vault.derive(KEY_LABEL).await?;
        *cached = Some((Instant::now(), key.clone()));
        Ok(key)
    }
}

fn check(key: &hmac::Key, client_states: &[&str]) -> Vec<bool> {
    client_states.iter().map(|client_state| is_signed(key, client_state)).collect()
}

fn is_signed(key: &hmac::Key, client_state: &str) -> bool {
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(client_state) else { return false };
    bytes.split_at_checked(RANDOM_BYTES).is_some_and(|(random, signature)| hmac::verify(key, random, signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32])
    }

    fn is_ours(bytes: &[u8]) -> bool {
        is_signed(&key(1), &URL_SAFE_NO_PAD.encode(bytes))
    }

    #[test]
    fn forged_client_state_is_recognised() {
        let random = [7; RANDOM_BYTES];
        let signed = [&random, hmac::sign(&key(1), &random).as_ref()].concat();

        assert!(is_ours(&signed));
        assert!(!is_signed(&key(2), &URL_SAFE_NO_PAD.encode(&signed)));
        for length in 0..signed.len() {
            assert!(!is_ours(&signed[..length]), "{length}");
            let mut altered = signed.clone();
            altered[length] ^= 1;
            assert!(!is_ours(&altered), "{length}");
        }
        assert!(!is_ours(&[&*signed, &[0]].concat()) && !is_signed(&key(1), "") && !is_signed(&key(1), "é"));
    }
}
