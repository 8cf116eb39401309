//! Google's sign-in: who may read whose mail, and for how long.

mod authorize;
mod grants;
mod service_account;
mod token;

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::mail::rng::Rng;

pub use crate::consent::Granted;
pub use authorize::{decide, show};
pub use grants::{Access, Counts};
pub use service_account::ServiceAccount;
pub use token::{revoke, token, whose};

use crate::signing::Keys;
use grants::{Asked, Grants};

pub const CLIENT_ID: &str = "mailroom-test.apps.googleusercontent.com";
pub const CLIENT_SECRET: &str = "sim-secret";
pub const READONLY: &str = "https://www.googleapis.com/auth/gmail.readonly";

/// A program that was registered with Google.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    pub id: String,
    pub secret: String,
    /// Exactly these; those on a loopback host need not be named.
    #[serde(default)]
    pub redirect_uris: Vec<String>,
    /// Topics of watches must be this project's; nothing: any.
    #[serde(default)]
    pub project: Option<String>,
}

/// What administrators have allowed the service account.
#[derive(Debug, Default)]
struct Delegated {
    /// Nothing: every scope.
    everywhere: Option<Vec<String>>,
    /// By organisation, where that is something else.
    by_organisation: HashMap<String, Vec<String>>,
}

#[derive(Debug)]
pub struct OAuth {
    clients: RwLock<HashMap<String, Client>>,
    grants: RwLock<Grants>,
    keys: RwLock<Keys>,
    service_account: ServiceAccount,
    delegated: RwLock<Delegated>,
}

impl OAuth {
    pub fn new(seed: u64) -> Self {
        let client = Client {
            id: CLIENT_ID.to_owned(),
            secret: CLIENT_SECRET.to_owned(),
            redirect_uris: Vec::new(),
            project: None,
        };
        Self {
            clients: RwLock::new(HashMap::from([(client.id.clone(), client)])),
            grants: RwLock::new(Grants::new(Rng::for_part(seed, 1))),
            keys: RwLock::default(),
            service_account: ServiceAccount::default(),
            delegated: RwLock::default(),
        }
    }

    pub fn register(&self, client: Client) {
        self.clients.write().unwrap_or_else(PoisonError::into_inner).insert(client.id.clone(), client);
    }

    pub fn client(&self, id: &str) -> Option<Client> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
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

    pub fn rotate_keys(&self, is_old_forgotten: bool) -> String {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.rotate(is_old_forgotten);
        keys.key_id()
    }

    pub fn certs(&self) -> Value {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).published()
    }

    pub fn key_id(&self) -> String {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).key_id()
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).sign(claims)
    }

    /// Signs what a service account's key signs.
    pub fn sign_as_service_account(&self, claims: &Value) -> String {
        self.service_account.sign(claims)
    }

    pub fn set_lifetime(&self, seconds: i64) {
        self.grants.write().unwrap_or_else(PoisonError::into_inner).lifetime_seconds = seconds;
    }

    /// Who an access token was given to, while it lives.
    pub fn open(&self, token: &str, now_ms: i64) -> Option<Access> {
        self.grants.read().unwrap_or_else(PoisonError::into_inner).open(token, now_ms)
    }

    /// As if the account's owner had just consented.
    pub fn grant(&self, account: &str, client: &str, scopes: &[&str], now_ms: i64) -> Granted {
        let asked = Asked {
            account: account.to_owned(),
            client: client.to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            is_offline: true,
            is_forced: true,
        };
        self.grants.write().unwrap_or_else(PoisonError::into_inner).grant(&asked, now_ms)
    }

    pub fn revoke_account(&self, account: &str) {
        self.grants.write().unwrap_or_else(PoisonError::into_inner).revoke_account(account);
    }

    /// All of them, or one account's.
    pub fn expire_access_tokens(&self, account: Option<&str>) {
        self.grants.write().unwrap_or_else(PoisonError::into_inner).expire_access_tokens(account);
    }

    pub fn counts(&self) -> std::collections::BTreeMap<String, Counts> {
        self.grants.read().unwrap_or_else(PoisonError::into_inner).counts.clone()
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

/// The number that Google has for a person, which stays when the address changes.
pub fn subject(account: &str) -> String {
    let sum = account.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("1{:020}", Rng::new(sum).next_u64())
}
