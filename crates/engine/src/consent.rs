//! What is carried through a browser while a person lets us into a mailbox.
//!
//! Nothing of it is stored: each piece is sealed by a key that follows from the master key, so any process can go on where
//! another began, and nobody can read or alter it. A ticket lets somebody begin; the state comes back from the provider,
//! and belongs to the browser that began.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{Provider, Secret, Sha256, TenantId};
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Engine;
use crate::mailboxes::Backfill;

/// Long enough to find one's password, and too short for a link that lies around.
pub const GOOD_FOR: SignedDuration = SignedDuration::from_mins(10);

/// Nothing else is derived under these names.
const TICKET: &str = "mailroom consent ticket 1";
const STATE: &str = "mailroom consent state 1";
const ADMIN: &str = "mailroom admin consent 1";

/// An administrator is somebody else, who gets the link by mail. It opens nothing here.
const GOOD_FOR_ADMINISTRATORS: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Longer than any of ours.
const LONGEST: usize = 16 << 10;

/// What somebody wants who has sent a person to say yes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    pub tenant: TenantId,
    pub provider: Provider,
    /// Who it was, for the audit.
    pub actor: String,
    /// Whose mailbox is wanted, if only that one.
    pub address: Option<String>,
    /// What is wanted of it: `folders`, `exclude`, `interval_seconds`.
    pub settings: Map<String, Value>,
    pub backfill: Backfill,
}

/// A person is on the way to the provider.
#[derive(Debug)]
pub struct Begun {
    pub state: String,
    /// The SHA-256 of the verifier, as the provider wants it.
    pub challenge: String,
    /// What the browser keeps, under this name.
    pub cookie: (String, Secret<String>),
}

/// And has come back.
#[derive(Debug)]
pub struct Returned {
    pub wish: Wish,
    pub verifier: Secret<String>,
    pub redirect_uri: String,
    /// The name of what the browser kept.
    pub cookie: String,
}

/// Why nobody goes on with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strange {
    /// Altered, made up, too old, or for something else.
    NotOurs,
    OtherBrowser,
}

#[derive(Serialize, Deserialize)]
struct Sealed<T> {
    until: i64,
    what: T,
}

#[derive(Serialize, Deserialize)]
struct State {
    wish: Wish,
    verifier: String,
    redirect_uri: String,
    /// Which cookie, and the hash of what is in it.
    cookie: String,
    browser: String,
}

impl Engine {
    /// Leave to begin, for whoever has it, and until when.
    pub async fn consent_ticket(&self, wish: &Wish) -> anyhow::Result<(String, Timestamp)> {
        let until = self.until();
        Ok((self.carry(TICKET, wish, until).await?, until))
    }

    /// `None`: it is not ours, or too old.
    pub async fn open_ticket(&self, ticket: &str) -> anyhow::Result<Option<Wish>> {
        self.uncarry(TICKET, ticket).await
    }

    pub async fn begin_consent(&self, wish: Wish, redirect_uri: String) -> anyhow::Result<Begun> {
        let (verifier, secret, name) = (random_text(32)?, random_text(32)?, random_text(6)?);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::of(verifier.as_bytes()).0);
        let browser = Sha256::of(secret.as_bytes()).hex();
        let cookie = format!("mailroom_consent_{name}");
        let state = State { wish, verifier, redirect_uri, cookie: cookie.clone(), browser };
        let state = self.carry(STATE, &state, self.until()).await?;
        Ok(Begun { state, challenge, cookie: (cookie, Secret::new(secret)) })
    }

    /// `cookies` gives what the browser keeps under a name.
    pub async fn end_consent(
        &self,
        state: &str,
        cookies: impl Fn(&str) -> Option<String> + Send,
    ) -> anyhow::Result<Result<Returned, Strange>> {
        let Some(state) = self.uncarry::<State>(STATE, state).await? else { return Ok(Err(Strange::NotOurs)) };
        let State { wish, verifier, redirect_uri, cookie, browser } = state;
        let kept = cookies(&cookie).map(|kept| Sha256::of(kept.as_bytes()).hex()).unwrap_or_default();
        if !is_same(kept.as_bytes(), browser.as_bytes()) {
            return Ok(Err(Strange::OtherBrowser));
        }
        Ok(Ok(Returned { wish, verifier: Secret::new(verifier), redirect_uri, cookie }))
    }

    /// What comes back with the administrator of a directory who was asked to let our app in.
    pub async fn begin_admin_consent(&self, directory: &str) -> anyhow::Result<String> {
        self.carry(ADMIN, &directory, self.after(GOOD_FOR_ADMINISTRATORS)).await
    }

    /// Which directory it was; `None`: it is not that, or too old.
    pub async fn end_admin_consent(&self, state: &str) -> anyhow::Result<Option<String>> {
        self.uncarry(ADMIN, state).await
    }

    fn until(&self) -> Timestamp {
        self.after(GOOD_FOR)
    }

    fn after(&self, good_for: SignedDuration) -> Timestamp {
        let now = self.store.clock().now();
        let until = now.checked_add(good_for).unwrap_or(now).as_second();
        Timestamp::from_second(until).unwrap_or(now)
    }

    async fn carry<T: Serialize + Sync>(&self, purpose: &str, what: &T, until: Timestamp) -> anyhow::Result<String> {
        let plain = Secret::new(serde_json::to_vec(&Sealed { until: until.as_second(), what })?);
        Ok(URL_SAFE_NO_PAD.encode(self.vault.seal_carried(purpose, plain.expose()).await?))
    }

    async fn uncarry<T: DeserializeOwned>(&self, purpose: &str, text: &str) -> anyhow::Result<Option<T>> {
        let Some(sealed) = (text.len() <= LONGEST).then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten() else {
            return Ok(None);
        };
        let Some(plain) = self.vault.open_carried(purpose, &sealed).await? else { return Ok(None) };
        let opened: Option<Sealed<T>> = serde_json::from_slice(plain.expose()).ok();
        let now = self.store.clock().now().as_second();
        Ok(opened.filter(|sealed| now < sealed.until).map(|sealed| sealed.what))
    }
}

/// 43 characters from 32 bytes, which is what a verifier has at least (RFC 7636).
pub(crate) fn random_text(bytes: usize) -> anyhow::Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random)?;
    Ok(URL_SAFE_NO_PAD.encode(random))
}

/// How long it takes says nothing about where they differ.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_anywhere_is_not_the_same() {
        assert!(is_same(b"", b"") && is_same(b"abc", b"abc"));
        assert!(!is_same(b"abc", b"abd") && !is_same(b"abc", b"xbc") && !is_same(b"abc", b"ab"));
    }

    #[test]
    fn a_verifier_is_as_long_as_the_rules_want_and_of_their_letters() {
        let verifier = random_text(32).unwrap();

        assert_eq!(verifier.len(), 43);
        assert!(verifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)));
        assert_ne!(verifier, random_text(32).unwrap());
    }
}
