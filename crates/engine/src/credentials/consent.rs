//! The tickets and states of a consent, which a browser carries while a person grants us access to a mailbox.
//!
//! Nothing of it is stored: each payload is sealed by a key derived from the master key, so any process can continue
//! where another began, and nobody can read or alter it. A ticket allows a person to begin; the state comes back from
//! the provider, and belongs to the browser that began.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{Actor, Backfill, MailboxSettings, Provider, Secret, Sha256, TenantId};
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Engine;

/// The lifetime of a ticket and of a state: long enough to find one's password, too short for a link that lies around.
pub const CONSENT_LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// The purposes of the derived keys; no other key is derived under these names.
const TICKET_PURPOSE: &str = "mailroom consent ticket 1";
const STATE_PURPOSE: &str = "mailroom consent state 1";
const ADMIN_PURPOSE: &str = "mailroom admin consent 1";

/// The lifetime of an administrator's state: the link may be sent to another person by mail. It opens nothing here.
const ADMIN_CONSENT_LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The longest accepted payload; ours are shorter.
const MAX_PAYLOAD_CHARS: usize = 16 << 10;

/// The mailbox that a person is asked to grant access to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsentRequest {
    pub tenant: TenantId,
    pub provider: Provider,
    /// The actor who requested it, for the audit.
    pub actor: Actor,
    /// The only address that is accepted, if any.
    pub address: Option<String>,
    /// Settings of the mailbox, without a connection.
    pub settings: MailboxSettings,
    pub backfill: Backfill,
}

/// The values for sending a person to the provider.
#[derive(Debug)]
pub struct ConsentStart {
    pub state: String,
    /// The SHA-256 of the verifier, as the provider wants it.
    pub challenge: String,
    /// The name and value of the cookie for the browser.
    pub cookie: (String, Secret<String>),
}

/// The values of a person who has come back from the provider.
#[derive(Debug)]
pub struct ConsentReturn {
    pub request: ConsentRequest,
    pub verifier: Secret<String>,
    pub redirect_uri: String,
    /// The name of the browser's cookie.
    pub cookie: String,
}

/// Why a consent cannot be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsentError {
    /// Altered, made up, too old, or for something else.
    Invalid,
    OtherBrowser,
}

#[derive(Serialize, Deserialize)]
struct SealedPayload<T> {
    /// Unix time. The names of both fields are those that links on their way carry.
    #[serde(rename = "until")]
    expires_at: i64,
    #[serde(rename = "what")]
    payload: T,
}

#[derive(Serialize, Deserialize)]
struct ConsentState {
    #[serde(rename = "wish")]
    request: ConsentRequest,
    verifier: String,
    redirect_uri: String,
    /// The name of the cookie, and the hash of its value.
    cookie: String,
    browser: String,
}

impl Engine {
    /// Creates a ticket that allows its holder to begin a consent, and returns until when.
    pub async fn create_consent_ticket(&self, request: &ConsentRequest) -> anyhow::Result<(String, Timestamp)> {
        let expires_at = self.expires_at();
        Ok((self.seal_payload(TICKET_PURPOSE, request, expires_at).await?, expires_at))
    }

    /// Opens a ticket. Returns `None` if it is not ours or has expired.
    pub async fn open_ticket(&self, ticket: &str) -> anyhow::Result<Option<ConsentRequest>> {
        self.open_payload(TICKET_PURPOSE, ticket).await
    }

    pub async fn begin_consent(&self, request: ConsentRequest, redirect_uri: String) -> anyhow::Result<ConsentStart> {
        let (verifier, secret, name) = (random_text(32)?, random_text(32)?, random_text(6)?);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::of(verifier.as_bytes()).0);
        let browser = Sha256::of(secret.as_bytes()).hex();
        let cookie = format!("mailroom_consent_{name}");
        let state = ConsentState { request, verifier, redirect_uri, cookie: cookie.clone(), browser };
        let state = self.seal_payload(STATE_PURPOSE, &state, self.expires_at()).await?;
        Ok(ConsentStart { state, challenge, cookie: (cookie, Secret::new(secret)) })
    }

    /// Opens the state of a person who has come back. `cookies` returns the value of the browser's cookie of a name.
    pub async fn end_consent(
        &self,
        state: &str,
        cookies: impl Fn(&str) -> Option<String> + Send,
    ) -> anyhow::Result<Result<ConsentReturn, ConsentError>> {
        let Some(state) = self.open_payload::<ConsentState>(STATE_PURPOSE, state).await? else {
            return Ok(Err(ConsentError::Invalid));
        };
        let ConsentState { request, verifier, redirect_uri, cookie, browser } = state;
        let value = cookies(&cookie).map(|value| Sha256::of(value.as_bytes()).hex()).unwrap_or_default();
        if !constant_time_eq(value.as_bytes(), browser.as_bytes()) {
            return Ok(Err(ConsentError::OtherBrowser));
        }
        Ok(Ok(ConsentReturn { request, verifier: Secret::new(verifier), redirect_uri, cookie }))
    }

    /// Creates the state for the administrator of a directory who is asked to grant our app access.
    pub async fn begin_admin_consent(&self, directory: &str) -> anyhow::Result<String> {
        self.seal_payload(ADMIN_PURPOSE, &directory, self.after(ADMIN_CONSENT_LIFETIME)).await
    }

    /// Returns the directory of an administrator's state, or `None` if the state is not ours or has expired.
    pub async fn end_admin_consent(&self, state: &str) -> anyhow::Result<Option<String>> {
        self.open_payload(ADMIN_PURPOSE, state).await
    }

    fn expires_at(&self) -> Timestamp {
        self.after(CONSENT_LIFETIME)
    }

    fn after(&self, good_for: SignedDuration) -> Timestamp {
        let now = self.store.clock().now();
        let expires_at = now.checked_add(good_for).unwrap_or(now).as_second();
        Timestamp::from_second(expires_at).unwrap_or(now)
    }

    async fn seal_payload<T: Serialize + Sync>(
        &self,
        purpose: &str,
        payload: &T,
        expires_at: Timestamp,
    ) -> anyhow::Result<String> {
        let plain = Secret::new(serde_json::to_vec(&SealedPayload { expires_at: expires_at.as_second(), payload })?);
        Ok(URL_SAFE_NO_PAD.encode(self.vault.seal_portable(purpose, plain.expose()).await?))
    }

    async fn open_payload<T: DeserializeOwned>(&self, purpose: &str, text: &str) -> anyhow::Result<Option<T>> {
        let Some(sealed) = (text.len() <= MAX_PAYLOAD_CHARS).then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten()
        else {
            return Ok(None);
        };
        let Some(plain) = self.vault.open_portable(purpose, &sealed).await? else { return Ok(None) };
        let opened: Option<SealedPayload<T>> = serde_json::from_slice(plain.expose()).ok();
        let now = self.store.clock().now().as_second();
        Ok(opened.filter(|sealed| now < sealed.expires_at).map(|sealed| sealed.payload))
    }
}

/// Returns random URL-safe text: 43 characters from 32 bytes, the minimum of a verifier (RFC 7636).
pub(crate) fn random_text(bytes: usize) -> anyhow::Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random)?;
    Ok(URL_SAFE_NO_PAD.encode(random))
}

/// Compares in constant time: the duration does not reveal where the values differ.
pub(crate) fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_difference_is_noticed() {
        assert!(constant_time_eq(b"", b"") && constant_time_eq(b"abc", b"abc"));
        assert!(
            !constant_time_eq(b"abc", b"abd") && !constant_time_eq(b"abc", b"xbc") && !constant_time_eq(b"abc", b"ab")
        );
    }

    #[test]
    fn verifier_meets_rfc_7636() {
        let verifier = random_text(32).unwrap();

        assert_eq!(verifier.len(), 43);
        assert!(verifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)));
        assert_ne!(verifier, random_text(32).unwrap());
    }
}
