//! The Microsoft identity platform: clients, consent, tokens, keys.

mod admin_consent;
mod assertion;
mod authorize;
mod certificate;
mod client;
mod discovery;
mod error;
mod token;
mod token_store;

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::world::{MicrosoftMailbox, MicrosoftWorld};
use crate::mail::rng::Rng;
use crate::sign_in::SignIn;

pub use admin_consent::{ask as ask_admin, decide as decide_as_admin};
pub use authorize::{decide, show};
pub use client::{
    CLIENT_ID, CLIENT_SECRET, MicrosoftClient, certificate_key_pem, certificate_pem, certificate_thumbprint,
    sign_as_client,
};
pub use discovery::{configuration, keys};
pub use error::IdentityError;
pub use token::{account_of_form, permissions, token};
pub use token_store::{MicrosoftAccessToken, MicrosoftGrant, MicrosoftTokenCounts, MicrosoftTokenStore};

const GRAPH: &str = "https://graph.microsoft.com/";

/// The default scopes of `grant`.
pub const SCOPES: [&str; 5] = [
    "offline_access",
    "openid",
    "email",
    "https://graph.microsoft.com/User.Read",
    "https://graph.microsoft.com/Mail.Read",
];

#[derive(Debug)]
pub struct Identity {
    sign_in: SignIn<MicrosoftTokenStore>,
    rng: Mutex<Rng>,
    /// Ids of used assertions.
    assertions: Mutex<HashSet<String>>,
    /// The number of concurrent refreshes by account.
    refreshing: Mutex<HashMap<String, u32>>,
}

impl Deref for Identity {
    type Target = SignIn<MicrosoftTokenStore>;

    fn deref(&self) -> &Self::Target {
        &self.sign_in
    }
}

impl Identity {
    pub fn new(seed: u64) -> Self {
        let client = MicrosoftClient::for_tests();
        let tokens = MicrosoftTokenStore::new(Rng::for_part(seed, 11));
        Self {
            sign_in: SignIn::new(client.id.clone(), client, tokens),
            rng: Mutex::new(Rng::for_part(seed, 12)),
            assertions: Mutex::default(),
            refreshing: Mutex::default(),
        }
    }

    /// Finds a client by id, whatever its case.
    pub fn find_client(&self, id: &str) -> Option<MicrosoftClient> {
        self.client(&id.to_lowercase())
    }

    fn id_token(
        &self,
        world: &MicrosoftWorld,
        mailbox: &MicrosoftMailbox,
        client: &str,
        nonce: Option<&str>,
    ) -> String {
        let now = world.now_ms() / 1_000;
        let person = world.person(mailbox);
        let mut claims = json!({
            "ver": "2.0", "iss": format!("{}/{}/v2.0", world.url(), mailbox.state.directory), "aud": client,
            "sub": super::directory::guid(&format!("subject {client} {}", mailbox.address)),
            "oid": mailbox.id, "tid": mailbox.state.directory, "email": person.address, "name": person.full_name(),
            "preferred_username": person.address, "iat": now, "nbf": now, "exp": now + 3_600,
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = json!(nonce);
        }
        self.sign(&claims)
    }

    /// Counts a refresh of the account as running until the guard is dropped.
    pub fn begin_refresh<'a>(&'a self, account: &str) -> RefreshGuard<'a> {
        let mut all = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = all.entry(account.to_owned()).or_default();
        *under_way += 1;
        if *under_way > 1 {
            self.tokens_mut().count_overlap(account);
        }
        RefreshGuard { identity: self, account: account.to_owned() }
    }
}

#[derive(Debug)]
pub struct RefreshGuard<'a> {
    identity: &'a Identity,
    account: String,
}

impl Drop for RefreshGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.identity.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = all.get_mut(&self.account) {
            *under_way -= 1;
        }
        all.retain(|_, under_way| *under_way > 0);
    }
}

/// Strips the resource: `https://graph.microsoft.com/Mail.Read` is `Mail.Read`.
pub fn permission(scope: &str) -> &str {
    scope.strip_prefix(GRAPH).unwrap_or(scope)
}

/// All scopes.
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

/// Finds the first unknown scope.
pub fn unknown_scope<'a>(mut scopes: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    scopes.find(|scope| !KNOWN_SCOPES.iter().any(|known| known.eq_ignore_ascii_case(permission(scope))))
}
