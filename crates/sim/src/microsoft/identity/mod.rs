//! The identity platform: who may read whose mail, and for how long.

mod admin_consent;
mod assertion;
mod authorize;
mod certificate;
mod client;
mod discovery;
mod error;
mod grants;
mod token;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::{Value, json};

use super::world::{Mailbox, World};
use crate::consent::Granted;
use crate::mail::rng::Rng;
use crate::signing::Keys;

pub use admin_consent::{ask as ask_admin, decide as decide_as_admin};
pub use authorize::{decide, show};
pub use client::{
    CLIENT_ID, CLIENT_SECRET, Client, certificate_key_pem, certificate_pem, certificate_thumbprint, sign_as_client,
};
pub use discovery::{configuration, keys};
pub use error::Wrong;
pub use grants::{Access, Asked, Counts};
pub use token::{permissions, token, whose};

use grants::Grants;

const GRAPH: &str = "https://graph.microsoft.com/";

/// What `grant` asks for unless it is told.
pub const SCOPES: [&str; 5] = [
    "offline_access",
    "openid",
    "email",
    "https://graph.microsoft.com/User.Read",
    "https://graph.microsoft.com/Mail.Read",
];

#[derive(Debug)]
pub struct Identity {
    clients: RwLock<HashMap<String, Client>>,
    grants: RwLock<Grants>,
    keys: RwLock<Keys>,
    rng: Mutex<Rng>,
    /// Names of assertions that have come.
    assertions: Mutex<HashSet<String>>,
    /// How many refreshes of an account are under way.
    refreshing: Mutex<HashMap<String, u32>>,
}

impl Identity {
    pub fn new(seed: u64) -> Self {
        let client = Client::for_tests();
        Self {
            clients: RwLock::new(HashMap::from([(client.id.clone(), client)])),
            grants: RwLock::new(Grants::new(Rng::for_part(seed, 11))),
            keys: RwLock::default(),
            rng: Mutex::new(Rng::for_part(seed, 12)),
            assertions: Mutex::default(),
            refreshing: Mutex::default(),
        }
    }

    pub fn register(&self, client: Client) {
        self.clients.write().unwrap_or_else(PoisonError::into_inner).insert(client.id.clone(), client);
    }

    pub fn client(&self, id: &str) -> Option<Client> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner).get(&id.to_lowercase()).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, Grants> {
        self.grants.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Grants> {
        self.grants.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_lifetime(&self, seconds: i64) {
        self.write().lifetime_seconds = seconds;
    }

    pub fn set_strict(&self, is_strict: bool) {
        self.write().is_strict = is_strict;
    }

    pub fn open(&self, token: &str, now_ms: i64) -> Option<Access> {
        self.read().open(token, now_ms)
    }

    /// As if the account's owner had just consented.
    pub fn grant(&self, asked: &Asked, now_ms: i64) -> Granted {
        self.write().grant(asked, now_ms)
    }

    pub fn revoke_account(&self, account: &str) {
        self.write().revoke_account(account);
    }

    pub fn expire_access_tokens(&self, account: Option<&str>) {
        self.write().expire_access_tokens(account);
    }

    pub fn counts(&self) -> std::collections::BTreeMap<String, Counts> {
        self.read().counts.clone()
    }

    pub fn rotate_keys(&self, is_old_forgotten: bool) -> String {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.rotate(is_old_forgotten);
        keys.key_id()
    }

    fn published(&self) -> Value {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).published()
    }

    fn id_token(&self, world: &World, mailbox: &Mailbox, client: &str, nonce: Option<&str>) -> String {
        let now = world.now_ms() / 1_000;
        let person = world.person(mailbox);
        let mut claims = json!({
            "ver": "2.0", "iss": format!("{}/{}/v2.0", world.url(), mailbox.directory), "aud": client,
            "sub": super::directory::guid(&format!("subject {client} {}", mailbox.address)),
            "oid": mailbox.id, "tid": mailbox.directory, "email": person.address, "name": person.full_name(),
            "preferred_username": person.address, "iat": now, "nbf": now, "exp": now + 3_600,
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = json!(nonce);
        }
        self.keys.read().unwrap_or_else(PoisonError::into_inner).sign(&claims)
    }

    /// Until it is dropped, a refresh of the account is under way.
    pub fn refreshing<'a>(&'a self, account: &str) -> Refreshing<'a> {
        let mut all = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = all.entry(account.to_owned()).or_default();
        *under_way += 1;
        if *under_way > 1 {
            self.write().counts.entry(account.to_owned()).or_default().overlapping += 1;
        }
        Refreshing { identity: self, account: account.to_owned() }
    }
}

#[derive(Debug)]
pub struct Refreshing<'a> {
    identity: &'a Identity,
    account: String,
}

impl Drop for Refreshing<'_> {
    fn drop(&mut self) {
        let mut all = self.identity.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = all.get_mut(&self.account) {
            *under_way -= 1;
        }
        all.retain(|_, under_way| *under_way > 0);
    }
}

/// `Mail.Read` and `https://graph.microsoft.com/Mail.Read` are the same.
pub fn permission(scope: &str) -> &str {
    scope.strip_prefix(GRAPH).unwrap_or(scope)
}

/// What there is to ask for.
const KNOWN_SCOPES: [&str; 14] = [
    "openid",
    "email",
    "profile",
    "offline_access",
    "Mail.Read",
    "Mail.ReadBasic",
    "Mail.ReadWrite",
    "User.Read",
    "User.Read.All",
    "User.ReadBasic.All",
    "Directory.Read.All",
    "GroupMember.Read.All",
    "Group.Read.All",
    ".default",
];

/// The first scope that there is none of.
pub fn unknown_scope<'a>(mut scopes: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    scopes.find(|scope| !KNOWN_SCOPES.iter().any(|known| known.eq_ignore_ascii_case(permission(scope))))
}
