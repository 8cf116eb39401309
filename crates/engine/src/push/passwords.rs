//! What a provider says with each call, so that it is known: something random, and its signature by a key that follows from
//! the master key. What somebody made up is told from it without a look at the database.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::Secret;
use ring::hmac;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::secrets::{Vault, VaultError};

/// Nothing else is derived under this name.
const LABEL: &str = "mailroom push passwords 1";

/// Twice what nobody can guess.
const RANDOM: usize = 32;

/// How often those who guess can make us look whether the master key has changed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Makes them and knows them again. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Passwords {
    vault: Vault,
    /// And when it was looked up.
    key: Arc<Mutex<Option<(Instant, hmac::Key)>>>,
}

impl Passwords {
    pub fn new(vault: Vault) -> Self {
        Self { vault, key: Arc::default() }
    }

    /// A new one, of 86 letters and digits.
    pub async fn make(&self) -> anyhow::Result<Secret<String>> {
        let mut random = [0; RANDOM];
        getrandom::fill(&mut random)?;
        let signature = hmac::sign(&self.vault.derive(LABEL).await?, &random);
        Ok(Secret::new(URL_SAFE_NO_PAD.encode([&random, signature.as_ref()].concat())))
    }

    /// Which of these were made here, under the master key of today. How long that takes says nothing about where others
    /// differ.
    pub async fn are_ours(&self, said: &[&str]) -> Result<Vec<bool>, VaultError> {
        let check = |key: &hmac::Key| said.iter().map(|said| is_signed(key, said)).collect::<Vec<bool>>();
        let are = check(&self.key(Duration::MAX).await?);
        match are.contains(&false) {
            // It may have changed.
            true => Ok(check(&self.key(LOOK_AGAIN).await?)),
            false => Ok(are),
        }
    }

    async fn key(&self, oldest: Duration) -> Result<hmac::Key, VaultError> {
        let mut kept = self.key.lock().await;
        if let Some((at, key)) = &*kept
            && at.elapsed() < oldest
        {
            return Ok(key.clone());
        }
        let key = self.vault.derive(LABEL).await?;
        *kept = Some((Instant::now(), key.clone()));
        Ok(key)
    }
}

fn is_signed(key: &hmac::Key, said: &str) -> bool {
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(said) else { return false };
    bytes.split_at_checked(RANDOM).is_some_and(|(random, signature)| hmac::verify(key, random, signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_signed_whole_by_the_same_key_is_ours() {
        let key = |byte: u8| hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32]);
        let random = [7; RANDOM];
        let signed = [&random, hmac::sign(&key(1), &random).as_ref()].concat();
        let is = |bytes: &[u8]| is_signed(&key(1), &URL_SAFE_NO_PAD.encode(bytes));

        assert!(is(&signed));
        assert!(!is_signed(&key(2), &URL_SAFE_NO_PAD.encode(&signed)));
        for length in 0..signed.len() {
            assert!(!is(&signed[..length]), "{length}");
            let mut altered = signed.clone();
            altered[length] ^= 1;
            assert!(!is(&altered), "{length}");
        }
        assert!(!is(&[&*signed, &[0]].concat()) && !is_signed(&key(1), "") && !is_signed(&key(1), "é"));
    }
}
