//! Google's OAuth server: clients, consent, tokens, service account.

mod authorize;
mod service_account;
mod token;
mod token_store;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::mail::rng::Rng;

pub use crate::consent::IssuedTokens;
pub use authorize::{decide, show};
pub use service_account::ServiceAccount;
pub use token::{account_of_form, revoke, token};
pub use token_store::{GoogleAccessToken, GoogleGrant, GoogleTokenCounts, GoogleTokenStore};

use crate::sign_in::SignIn;

pub const CLIENT_ID: &str = "mailroom-test.apps.googleusercontent.com";
pub const CLIENT_SECRET: &str = "sim-secret";
pub const READONLY: &str = "https://www.googleapis.com/auth/gmail.readonly";

/// An OAuth client registered with Google.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoogleClient {
    pub id: String,
    pub secret: String,
    /// Exact redirect URIs; those on a loopback host need no registration.
    #[serde(default)]
    pub redirect_uris: Vec<String>,
    /// The project that topics of watches must belong to. `None`: any.
    #[serde(default)]
    pub project: Option<String>,
}

/// The scopes that administrators have delegated to the service account.
#[derive(Debug, Default)]
struct DelegatedScopes {
    /// `None`: every scope.
    everywhere: Option<Vec<String>>,
    /// Overrides by organisation.
    by_organisation: HashMap<String, Vec<String>>,
}

#[derive(Debug)]
pub struct OAuth {
    sign_in: SignIn<GoogleTokenStore>,
    service_account: ServiceAccount,
    delegated: RwLock<DelegatedScopes>,
}

impl Deref for OAuth {
    type Target = SignIn<GoogleTokenStore>;

    fn deref(&self) -> &Self::Target {
        &self.sign_in
    }
}

impl OAuth {
    pub fn new(seed: u64) -> Self {
        let client = GoogleClient {
            id: CLIENT_ID.to_owned(),
            secret: CLIENT_SECRET.to_owned(),
            redirect_uris: Vec::new(),
            project: None,
        };
        let tokens = GoogleTokenStore::new(Rng::for_part(seed, 1));
        Self {
            sign_in: SignIn::new(client.id.clone(), client, tokens),
            service_account: ServiceAccount::default(),
            delegated: RwLock::default(),
        }
    }

    pub fn set_delegated(&self, organisation: Option<&str>, scopes: Option<Vec<String>>) {
        let mut delegated = self.delegated.write().unwrap_or_else(PoisonError::into_inner);
        match (organisation, scopes) {
            (None, scopes) => delegated.everywhere = scopes,
            (Some(one), Some(scopes)) => drop(delegated.by_organisation.insert(one.to_owned(), scopes)),
            (Some(one), None) => drop(delegated.by_organisation.remove(one)),
        }
    }

    fn is_delegated(&self, scope: &str, organisation: &str) -> bool {
        let delegated = self.delegated.read().unwrap_or_else(PoisonError::into_inner);
        let scopes = delegated.by_organisation.get(organisation).or(delegated.everywhere.as_ref());
        scopes.is_none_or(|scopes| scopes.iter().any(|known| known == scope))
    }

    /// Signs claims with the service account's key.
    pub fn sign_as_service_account(&self, claims: &Value) -> String {
        self.service_account.sign(claims)
    }

    fn id_token(&self, account: &str, client: &str, nonce: Option<&str>, now_ms: i64) -> String {
        let now = now_ms / 1_000;
        let mut claims = json!({
            "iss": "https://accounts.google.com", "aud": client, "azp": client, "sub": subject(account),
            "email": account, "email_verified": true, "iat": now, "exp": now + 3_600,
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = json!(nonce);
        }
        self.sign(&claims)
    }
}

/// Returns the Google user id of an account, which stays when the address changes.
pub fn subject(account: &str) -> String {
    let sum = account.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("1{:020}", Rng::new(sum).next_u64())
}
