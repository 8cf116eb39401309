//! The state of one mailbox's token in this process.

use std::sync::{Arc, Mutex, PoisonError};

use domain::connector::{ConnectorAccount, TokenGrant};
use domain::{ConnectorError, Secret, Sha256};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::token::AccessToken;
use crate::Engine;

/// How long a grant is kept that could not be stored: a mailbox that was not used since is disconnected, or another
/// process uses it.
const PENDING_GRANT_TTL: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Default)]
pub struct Credential {
    /// Held by the task that refreshes the token for all callers of this process.
    pub refresh_lock: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<CredentialState>,
}

#[derive(Debug, Default)]
struct CredentialState {
    /// The token with the hash of the credential that it was granted for: a mailbox that was connected anew has another
    /// one.
    token: Option<(Sha256, AccessToken)>,
    failed: Option<(Instant, ConnectorError)>,
    pending: Option<PendingGrant>,
}

/// A grant with a new secret that is not stored yet. It comes only once, and the secret that it replaces may be invalid.
#[derive(Debug, Clone)]
pub struct PendingGrant {
    /// The hash of the credential that it was granted for.
    by: Sha256,
    pub grant: TokenGrant,
    pub asked_at: Timestamp,
}

impl Credential {
    pub fn find_valid(
        &self,
        engine: &Engine,
        account: &ConnectorAccount,
        refused: Option<&Secret<String>>,
    ) -> Option<Secret<String>> {
        let now = engine.store.clock().now();
        let state = self.state();
        let (by, token) = state.token.as_ref()?;
        (*by == credential_hash(account) && token.is_valid(now, refused)).then(|| token.token.clone())
    }

    /// Returns the outcome of a refresh that ended while we waited for the lock.
    pub fn find_since(
        &self,
        engine: &Engine,
        account: &ConnectorAccount,
        refused: Option<&Secret<String>>,
        since: Instant,
    ) -> Option<Result<Secret<String>, ConnectorError>> {
        if let Some(token) = self.find_valid(engine, account, refused) {
            return Some(Ok(token));
        }
        // All waiting callers share an error, so that they do not each repeat the call.
        let state = self.state();
        state.failed.as_ref().filter(|(at, _)| *at > since).map(|(_, e)| Err(e.clone()))
    }

    pub fn remember(&self, account: &ConnectorAccount, outcome: &Result<AccessToken, ConnectorError>) {
        let mut state = self.state();
        match outcome {
            Ok(token) => {
                state.token = Some((credential_hash(account), token.clone()));
                state.failed = None;
            }
            Err(e) => state.failed = Some((Instant::now(), e.clone())),
        }
    }

    /// Keeps a grant until it is stored, or the mailbox has another credential.
    pub fn keep_pending(&self, account: &ConnectorAccount, grant: &TokenGrant, asked_at: Timestamp) {
        self.state().pending = Some(PendingGrant { by: credential_hash(account), grant: grant.clone(), asked_at });
    }

    pub fn clear_pending(&self) {
        self.state().pending = None;
    }

    /// Returns the grant of this account that is not stored yet.
    pub fn pending(&self, account: &ConnectorAccount) -> Option<PendingGrant> {
        let mut state = self.state();
        if state.pending.as_ref().is_some_and(|pending| pending.by != credential_hash(account)) {
            state.pending = None;
        }
        state.pending.clone()
    }

    pub fn is_in_use(&self, now: Timestamp) -> bool {
        let state = self.state();
        state.pending.as_ref().is_some_and(|pending| now.duration_since(pending.asked_at) < PENDING_GRANT_TTL)
            || state.token.as_ref().is_some_and(|(_, token)| token.is_valid(now, None))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, CredentialState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the hash of an account's secret and, for app-only access, of the impersonated user.
fn credential_hash(account: &ConnectorAccount) -> Sha256 {
    let secret = account.secret.as_ref().map(|secret| Sha256::of(secret.expose().as_bytes()));
    Sha256::of(format!("{secret:?} {}", impersonated_user(account)).as_bytes())
}

/// Returns the user that our app impersonates, or an empty text where the secret itself determines the account.
pub fn impersonated_user(account: &ConnectorAccount) -> String {
    let settings: Value = serde_json::from_str(&account.settings).unwrap_or_default();
    if settings["app_only"] != true {
        return String::new();
    }
    let named = ["user", "account"].iter().find_map(|name| settings[name].as_str());
    named.unwrap_or(&account.address).to_owned()
}
