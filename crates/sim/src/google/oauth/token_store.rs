//! The store of issued codes and tokens.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::GoogleClient;
use crate::consent::IssuedTokens;
use crate::mail::rng::Rng;
use crate::sign_in::{AuthorizationCode, TokenStore};

/// The maximum number of live refresh tokens per account and client; one more revokes the oldest.
const MAX_REFRESH_TOKENS: usize = 100;

/// The lifetime of an authorization code.
const CODE_LIFETIME_MS: i64 = 10 * 60_000;

/// The number of access tokens at which expired ones are dropped.
const MAX_ACCESS_TOKENS: usize = 100_000;

/// A grant: the account, the client and the scopes.
#[derive(Debug, Clone)]
pub struct GoogleGrant {
    pub account: String,
    pub client: String,
    pub scopes: Vec<String>,
    /// `access_type=offline`: a refresh token is issued.
    pub is_offline: bool,
    /// `prompt=consent`: a refresh token is issued even if there was one before.
    pub is_forced: bool,
}

/// The record of an access token.
#[derive(Debug, Clone)]
pub struct GoogleAccessToken {
    pub account: String,
    pub client: String,
    pub scopes: Vec<String>,
    expires_ms: i64,
}

/// The number of tokens issued to one account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoogleTokenCounts {
    /// By a code, or by the control API.
    pub granted: u64,
    pub refreshed: u64,
    /// By the service account.
    pub delegated: u64,
}

type AccountAndClient = (String, String);

#[derive(Debug)]
pub struct GoogleTokenStore {
    rng: Rng,
    lifetime_seconds: i64,
    codes: HashMap<String, AuthorizationCode<GoogleGrant>>,
    access: HashMap<String, GoogleAccessToken>,
    refresh: HashMap<String, GoogleGrant>,
    /// Oldest first.
    refresh_of: HashMap<AccountAndClient, VecDeque<String>>,
    /// All scopes granted so far.
    granted: HashMap<AccountAndClient, BTreeSet<String>>,
    counts: BTreeMap<String, GoogleTokenCounts>,
}

impl GoogleTokenStore {
    pub fn new(rng: Rng) -> Self {
        Self {
            rng,
            lifetime_seconds: 3_599,
            codes: HashMap::new(),
            access: HashMap::new(),
            refresh: HashMap::new(),
            refresh_of: HashMap::new(),
            granted: HashMap::new(),
            counts: BTreeMap::new(),
        }
    }

    pub fn give_code(
        &mut self,
        grant: GoogleGrant,
        redirect_uri: &str,
        challenge: &str,
        nonce: Option<&str>,
        now_ms: i64,
    ) -> String {
        let code = format!("4/0Sim{}", self.rng.token(40));
        let waiting = AuthorizationCode {
            grant,
            redirect_uri: redirect_uri.to_owned(),
            challenge: challenge.to_owned(),
            nonce: nonce.map(str::to_owned),
            expires_ms: now_ms + CODE_LIFETIME_MS,
        };
        self.codes.insert(code.clone(), waiting);
        code
    }

    /// Redeems a code, once and before it expires.
    pub fn take_code(&mut self, code: &str, now_ms: i64) -> Option<AuthorizationCode<GoogleGrant>> {
        self.codes.remove(code).filter(|code| now_ms < code.expires_ms)
    }

    /// Finds the account that a code or token belongs to.
    pub fn find_account(&self, text: &str) -> Option<&str> {
        let of_code = self.codes.get(text).map(|code| &code.grant.account);
        of_code
            .or_else(|| self.refresh.get(text).map(|grant| &grant.account))
            .or_else(|| self.access.get(text).map(|access| &access.account))
            .map(String::as_str)
    }

    /// Finds the scopes that the account has granted to the client before.
    pub fn granted(&self, account: &str, client: &str) -> Option<&BTreeSet<String>> {
        self.granted.get(&(account.to_owned(), client.to_owned()))
    }

    pub fn grant(&mut self, grant: &GoogleGrant, now_ms: i64) -> IssuedTokens {
        self.counts.entry(grant.account.clone()).or_default().granted += 1;
        let pair = (grant.account.clone(), grant.client.clone());
        let is_first = !self.granted.contains_key(&pair);
        self.granted.entry(pair.clone()).or_default().extend(grant.scopes.iter().cloned());
        let refresh_token = (grant.is_offline && (is_first || grant.is_forced)).then(|| {
            let token = format!("1//0sim{}", self.rng.token(60));
            self.refresh.insert(token.clone(), grant.clone());
            let live = self.refresh_of.entry(pair).or_default();
            live.push_back(token.clone());
            if live.len() > MAX_REFRESH_TOKENS
                && let Some(oldest) = live.pop_front()
            {
                self.refresh.remove(&oldest);
            }
            token
        });
        IssuedTokens { refresh_token, ..self.access(grant, now_ms) }
    }

    /// Issues an access token for a refresh token. Returns `None` if it was revoked or belongs to another client.
    pub fn refresh(&mut self, token: &str, client: &str, now_ms: i64) -> Option<(GoogleGrant, IssuedTokens)> {
        let grant = self.refresh.get(token).filter(|grant| grant.client == client)?.clone();
        self.counts.entry(grant.account.clone()).or_default().refreshed += 1;
        let granted = self.access(&grant, now_ms);
        Some((grant, granted))
    }

    /// Issues an access token for an assertion of the service account.
    pub fn delegate(&mut self, grant: &GoogleGrant, now_ms: i64) -> IssuedTokens {
        self.counts.entry(grant.account.clone()).or_default().delegated += 1;
        self.access(grant, now_ms)
    }

    fn access(&mut self, grant: &GoogleGrant, now_ms: i64) -> IssuedTokens {
        if self.access.len() >= MAX_ACCESS_TOKENS {
            self.access.retain(|_, access| now_ms < access.expires_ms);
        }
        let access_token = format!("ya29.sim-{}", self.rng.token(60));
        let access = GoogleAccessToken {
            account: grant.account.clone(),
            client: grant.client.clone(),
            scopes: grant.scopes.clone(),
            expires_ms: now_ms + self.lifetime_seconds * 1_000,
        };
        self.access.insert(access_token.clone(), access);
        let scopes = grant.scopes.clone();
        IssuedTokens { access_token, refresh_token: None, expires_in: self.lifetime_seconds, scopes }
    }

    /// Revokes the grant of an access or refresh token. Returns whether the token exists.
    pub fn revoke(&mut self, token: &str) -> bool {
        let of_refresh = self.refresh.get(token).map(|grant| (grant.account.clone(), grant.client.clone()));
        match of_refresh
            .or_else(|| self.access.get(token).map(|access| (access.account.clone(), access.client.clone())))
        {
            Some(pair) => self.end(&pair),
            None => return false,
        }
        true
    }

    fn end(&mut self, pair: &AccountAndClient) {
        self.refresh_of.remove(pair);
        self.granted.remove(pair);
        self.refresh.retain(|_, grant| (&grant.account, &grant.client) != (&pair.0, &pair.1));
        self.access.retain(|_, access| (&access.account, &access.client) != (&pair.0, &pair.1));
    }
}

impl TokenStore for GoogleTokenStore {
    type Client = GoogleClient;
    type AccessToken = GoogleAccessToken;
    type Counts = GoogleTokenCounts;

    fn set_lifetime(&mut self, seconds: i64) {
        self.lifetime_seconds = seconds;
    }

    fn open(&self, token: &str, now_ms: i64) -> Option<GoogleAccessToken> {
        self.access.get(token).filter(|access| now_ms < access.expires_ms).cloned()
    }

    fn revoke_account(&mut self, account: &str) {
        let pairs: BTreeSet<AccountAndClient> = self
            .access
            .values()
            .map(|access| (access.account.clone(), access.client.clone()))
            .chain(self.refresh.values().map(|grant| (grant.account.clone(), grant.client.clone())))
            .filter(|(of, _)| of == account)
            .collect();
        pairs.iter().for_each(|pair| self.end(pair));
    }

    fn expire_access_tokens(&mut self, account: Option<&str>) {
        self.access.retain(|_, access| account.is_some_and(|account| access.account != account));
    }

    fn counts(&self) -> &BTreeMap<String, GoogleTokenCounts> {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(is_forced: bool) -> GoogleGrant {
        let (account, client) = ("a@x.test".to_owned(), "c".to_owned());
        GoogleGrant { account, client, scopes: vec!["s".to_owned()], is_offline: true, is_forced }
    }

    #[test]
    fn refresh_token_101_revokes_the_first() {
        let mut grants = GoogleTokenStore::new(Rng::new(1));
        let tokens: Vec<String> = (0..101).filter_map(|_| grants.grant(&grant(true), 0).refresh_token).collect();

        assert!(grants.refresh(&tokens[0], "c", 0).is_none());
        assert!(tokens[1..].iter().all(|token| grants.refresh(token, "c", 0).is_some()));
        assert!(grants.refresh(&tokens[1], "other", 0).is_none());
    }

    #[test]
    fn second_consent_needs_prompt_for_refresh_token() {
        let mut grants = GoogleTokenStore::new(Rng::new(1));

        assert!(grants.grant(&grant(false), 0).refresh_token.is_some());
        assert!(grants.grant(&grant(false), 0).refresh_token.is_none());
        assert!(grants.grant(&grant(true), 0).refresh_token.is_some());
    }

    #[test]
    fn tokens_expire_and_are_revoked() {
        let mut grants = GoogleTokenStore::new(Rng::new(1));
        let granted = grants.grant(&grant(true), 0);
        let open = |grants: &GoogleTokenStore, now| grants.open(&granted.access_token, now).is_some();

        assert!(open(&grants, 3_598_999) && !open(&grants, 3_599_000));
        assert!(grants.revoke(&granted.access_token) && !grants.revoke(&granted.access_token));
        assert!(!open(&grants, 0));
        assert!(grants.refresh(&granted.refresh_token.clone().unwrap(), "c", 0).is_none());
    }
}
