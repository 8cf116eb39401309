//! What the OAuth servers of the simulated providers share: clients, the token store, signing keys.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use crate::consent::IssuedTokens;
use crate::form::decode;
use crate::mailbox_registry::ProviderMailbox;
use crate::signing::SigningKeys;
use crate::world::{Provider, ProviderWorld};

/// The store of issued codes and tokens.
pub trait TokenStore: Send + Sync + 'static {
    type Client: Clone + Send + Sync;
    type AccessToken;
    type Counts: Clone + Serialize;

    fn set_lifetime(&mut self, seconds: i64);

    /// Finds the record of a live access token.
    fn open(&self, token: &str, now_ms: i64) -> Option<Self::AccessToken>;

    fn revoke_account(&mut self, account: &str);

    /// Expires the access tokens of one account, or of all.
    fn expire_access_tokens(&mut self, account: Option<&str>);

    /// Returns the number of issued tokens by account.
    fn counts(&self) -> &BTreeMap<String, Self::Counts>;
}

/// An OAuth server.
#[derive(Debug)]
pub struct SignIn<S: TokenStore> {
    clients: RwLock<HashMap<String, S::Client>>,
    tokens: RwLock<S>,
    keys: RwLock<SigningKeys>,
}

impl<S: TokenStore> SignIn<S> {
    pub fn new(client_id: String, client: S::Client, tokens: S) -> Self {
        Self {
            clients: RwLock::new(HashMap::from([(client_id, client)])),
            tokens: RwLock::new(tokens),
            keys: RwLock::default(),
        }
    }

    pub fn register(&self, id: String, client: S::Client) {
        self.clients.write().unwrap_or_else(PoisonError::into_inner).insert(id, client);
    }

    pub fn client(&self, id: &str) -> Option<S::Client> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub fn tokens(&self) -> RwLockReadGuard<'_, S> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tokens_mut(&self) -> RwLockWriteGuard<'_, S> {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the record of a live access token.
    pub fn open(&self, token: &str, now_ms: i64) -> Option<S::AccessToken> {
        self.tokens().open(token, now_ms)
    }

    /// Switches to the other signing key and returns its id.
    pub fn rotate_keys(&self, is_old_forgotten: bool) -> String {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.rotate(is_old_forgotten);
        keys.key_id()
    }

    pub fn published_keys(&self) -> Value {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).published()
    }

    pub fn key_id(&self) -> String {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).key_id()
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).sign(claims)
    }
}

/// A provider whose mailboxes are read with OAuth tokens.
pub trait SignInProvider: Provider {
    type Tokens: TokenStore;

    /// The client that [`ProviderWorld::grant`] issues tokens to.
    const CLIENT_ID: &'static str;
    /// The scopes that [`ProviderWorld::grant`] grants.
    const SCOPES: &'static [&'static str];

    fn sign_in(&self) -> &SignIn<Self::Tokens>;

    /// Issues tokens as if the mailbox's owner had just consented.
    fn issue(
        world: &ProviderWorld<Self>,
        mailbox: &ProviderMailbox<Self>,
        client: &str,
        scopes: Vec<String>,
    ) -> IssuedTokens;
}

impl<P: SignInProvider> ProviderWorld<P> {
    /// Issues tokens as if the account's owner had just consented to the default client.
    pub fn grant(&self, address: &str) -> Option<IssuedTokens> {
        self.grant_to(address, P::CLIENT_ID, P::SCOPES)
    }

    pub fn grant_to(&self, address: &str, client: &str, scopes: &[&str]) -> Option<IssuedTokens> {
        let mailbox = self.find(address)?;
        Some(P::issue(self, &mailbox, client, scopes.iter().map(|scope| (*scope).to_owned()).collect()))
    }

    /// Revokes all tokens of an account, as after a password change or a withdrawn consent.
    pub fn revoke_tokens(&self, address: &str) {
        self.provider.sign_in().tokens_mut().revoke_account(&address.to_lowercase());
    }

    /// Expires the access tokens of one account, or of all. Refresh tokens stay.
    pub fn expire_access_tokens(&self, address: Option<&str>) {
        self.provider.sign_in().tokens_mut().expire_access_tokens(address.map(str::to_lowercase).as_deref());
    }

    pub fn set_access_token_lifetime(&self, seconds: i64) {
        self.provider.sign_in().tokens_mut().set_lifetime(seconds);
    }

    pub fn token_counts(&self) -> BTreeMap<String, <P::Tokens as TokenStore>::Counts> {
        self.provider.sign_in().tokens().counts().clone()
    }

    /// Rotates the signing key and returns the new key's id.
    pub fn rotate_keys(&self, is_old_forgotten: bool) -> String {
        self.provider.sign_in().rotate_keys(is_old_forgotten)
    }
}

/// An authorization code that can be redeemed.
#[derive(Debug, Clone)]
pub struct AuthorizationCode<G> {
    pub grant: G,
    pub redirect_uri: String,
    pub challenge: String,
    pub nonce: Option<String>,
    pub expires_ms: i64,
}

/// Parses the client id and secret of HTTP basic authentication.
pub fn basic_credentials(authorization: Option<&str>) -> Option<(String, String)> {
    let encoded = authorization?.strip_prefix("Basic ")?;
    let text = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((decode(id), decode(secret)))
}
