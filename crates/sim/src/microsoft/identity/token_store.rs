//! The store of issued codes and tokens.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::MicrosoftClient;
use crate::consent::IssuedTokens;
use crate::mail::rng::Rng;
use crate::sign_in::{AuthorizationCode, TokenStore};

/// The lifetime of an authorization code.
const CODE_LIFETIME_MS: i64 = 10 * 60_000;

/// The lifetime of an unused refresh token.
const REFRESH_TOKEN_LIFETIME_MS: i64 = 90 * 24 * 3_600_000;

/// The number of access tokens at which expired ones are dropped.
const MAX_ACCESS_TOKENS: usize = 100_000;

/// A grant: the account, the client and the scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MicrosoftGrant {
    /// `None`: app-only access to the directory.
    pub account: Option<String>,
    /// The directory's id.
    pub directory: String,
    pub client: String,
    /// The scopes as requested.
    pub scopes: Vec<String>,
}

impl MicrosoftGrant {
    fn is_offline(&self) -> bool {
        self.scopes.iter().any(|scope| scope == "offline_access")
    }

    fn is_of(&self, account: &str) -> bool {
        self.account.as_deref() == Some(account)
    }

    /// Returns the account or directory under which tokens are counted.
    fn counted_as(&self) -> String {
        self.account.clone().unwrap_or_else(|| self.directory.clone())
    }
}

/// An authorization code and whether it was redeemed.
#[derive(Debug)]
struct IssuedCode {
    code: AuthorizationCode<MicrosoftGrant>,
    is_used: bool,
}

/// The record of an access token.
#[derive(Debug, Clone)]
pub struct MicrosoftAccessToken {
    pub grant: MicrosoftGrant,
    expires_ms: i64,
}

/// The reason why a code or refresh token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRejection {
    Unknown,
    Expired,
    /// The code was redeemed before.
    Used,
    Revoked,
    /// The refresh token was used before in strict mode, which revokes its family.
    Reused,
}

/// The number of tokens issued to one account, or to the apps of one directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MicrosoftTokenCounts {
    /// By a code, or by the control API.
    pub granted: u64,
    pub refreshed: u64,
    /// App-only tokens.
    pub app_only: u64,
    /// Refresh tokens that began a family.
    pub families: u64,
    pub families_revoked: u64,
    /// Refreshes that overlapped another one of the account.
    pub overlapping: u64,
}

#[derive(Debug)]
struct RefreshTokenFamily {
    grant: MicrosoftGrant,
    is_revoked: bool,
}

#[derive(Debug)]
struct RefreshToken {
    family: usize,
    is_used: bool,
    issued_ms: i64,
}

#[derive(Debug)]
pub struct MicrosoftTokenStore {
    rng: Rng,
    lifetime_seconds: i64,
    /// Whether a refresh token can be used only once.
    pub is_strict: bool,
    codes: HashMap<String, IssuedCode>,
    access: HashMap<String, MicrosoftAccessToken>,
    refresh: HashMap<String, RefreshToken>,
    families: Vec<RefreshTokenFamily>,
    counts: BTreeMap<String, MicrosoftTokenCounts>,
}

impl MicrosoftTokenStore {
    pub fn new(rng: Rng) -> Self {
        Self {
            rng,
            lifetime_seconds: 3_600,
            is_strict: false,
            codes: HashMap::new(),
            access: HashMap::new(),
            refresh: HashMap::new(),
            families: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    pub fn give_code(
        &mut self,
        grant: MicrosoftGrant,
        redirect_uri: &str,
        challenge: &str,
        nonce: Option<&str>,
        now_ms: i64,
    ) -> String {
        let code = format!("0.Sim{}", self.rng.token(60));
        let issued = AuthorizationCode {
            grant,
            redirect_uri: redirect_uri.to_owned(),
            challenge: challenge.to_owned(),
            nonce: nonce.map(str::to_owned),
            expires_ms: now_ms + CODE_LIFETIME_MS,
        };
        self.codes.insert(code.clone(), IssuedCode { code: issued, is_used: false });
        code
    }

    /// Redeems a code, once and before it expires.
    pub fn take_code(&mut self, code: &str, now_ms: i64) -> Result<AuthorizationCode<MicrosoftGrant>, TokenRejection> {
        let issued = self.codes.get_mut(code).ok_or(TokenRejection::Unknown)?;
        if now_ms >= issued.code.expires_ms {
            return Err(TokenRejection::Expired);
        }
        if std::mem::replace(&mut issued.is_used, true) {
            return Err(TokenRejection::Used);
        }
        Ok(issued.code.clone())
    }

    /// Finds the account that a code or token belongs to.
    pub fn find_account(&self, text: &str) -> Option<String> {
        self.codes
            .get(text)
            .map(|issued| issued.code.grant.counted_as())
            .or_else(|| self.refresh.get(text).map(|refresh| self.families[refresh.family].grant.counted_as()))
    }

    /// Returns whether the account has granted all scopes to the client before, without revoking them.
    pub fn has_granted(&self, grant: &MicrosoftGrant) -> bool {
        self.families.iter().any(|family| {
            !family.is_revoked
                && (&family.grant.account, &family.grant.client) == (&grant.account, &grant.client)
                && grant.scopes.iter().all(|scope| family.grant.scopes.contains(scope))
        })
    }

    pub fn grant(&mut self, grant: &MicrosoftGrant, now_ms: i64) -> IssuedTokens {
        let counts = self.counts.entry(grant.counted_as()).or_default();
        counts.granted += 1;
        let is_offline = grant.is_offline();
        counts.families += u64::from(is_offline);
        let refresh_token = is_offline.then(|| {
            self.families.push(RefreshTokenFamily { grant: grant.clone(), is_revoked: false });
            self.refresh_token(self.families.len() - 1, now_ms)
        });
        IssuedTokens { refresh_token, ..self.access(grant, now_ms) }
    }

    fn refresh_token(&mut self, family: usize, now_ms: i64) -> String {
        let token = format!("1.Sim{}", self.rng.token(80));
        self.refresh.insert(token.clone(), RefreshToken { family, is_used: false, issued_ms: now_ms });
        token
    }

    /// Returns the grant of a live refresh token.
    pub fn grant_of_refresh_token(
        &self,
        token: &str,
        client: &str,
        now_ms: i64,
    ) -> Result<MicrosoftGrant, TokenRejection> {
        let refresh = self.refresh.get(token).ok_or(TokenRejection::Unknown)?;
        let family = &self.families[refresh.family];
        if family.grant.client != client {
            return Err(TokenRejection::Unknown);
        }
        if family.is_revoked {
            return Err(TokenRejection::Revoked);
        }
        if now_ms >= refresh.issued_ms + REFRESH_TOKEN_LIFETIME_MS {
            return Err(TokenRejection::Expired);
        }
        Ok(family.grant.clone())
    }

    /// Issues tokens for a refresh token. The old one stays valid, except in strict mode.
    pub fn refresh(
        &mut self,
        token: &str,
        grant: &MicrosoftGrant,
        now_ms: i64,
    ) -> Result<IssuedTokens, TokenRejection> {
        let refresh = self.refresh.get_mut(token).ok_or(TokenRejection::Unknown)?;
        let (family, was_used) = (refresh.family, std::mem::replace(&mut refresh.is_used, true));
        let counts = self.counts.entry(grant.counted_as()).or_default();
        if was_used && self.is_strict {
            self.families[family].is_revoked = true;
            counts.families_revoked += 1;
            return Err(TokenRejection::Reused);
        }
        counts.refreshed += 1;
        let refresh_token = Some(self.refresh_token(family, now_ms));
        Ok(IssuedTokens { refresh_token, ..self.access(grant, now_ms) })
    }

    /// Issues an app-only access token.
    pub fn issue_app_only(&mut self, grant: &MicrosoftGrant, now_ms: i64) -> IssuedTokens {
        self.counts.entry(grant.counted_as()).or_default().app_only += 1;
        self.access(grant, now_ms)
    }

    fn access(&mut self, grant: &MicrosoftGrant, now_ms: i64) -> IssuedTokens {
        if self.access.len() >= MAX_ACCESS_TOKENS {
            self.access.retain(|_, access| now_ms < access.expires_ms);
        }
        let access_token = format!("EwSim.{}", self.rng.token(80));
        let expires_ms = now_ms + self.lifetime_seconds * 1_000;
        self.access.insert(access_token.clone(), MicrosoftAccessToken { grant: grant.clone(), expires_ms });
        let scopes = grant.scopes.iter().filter(|scope| *scope != "offline_access").cloned().collect();
        IssuedTokens { access_token, refresh_token: None, expires_in: self.lifetime_seconds, scopes }
    }

    /// Counts a refresh that overlaps another one of the account.
    pub fn count_overlap(&mut self, account: &str) {
        self.counts.entry(account.to_owned()).or_default().overlapping += 1;
    }
}

impl TokenStore for MicrosoftTokenStore {
    type Client = MicrosoftClient;
    type AccessToken = MicrosoftAccessToken;
    type Counts = MicrosoftTokenCounts;

    fn set_lifetime(&mut self, seconds: i64) {
        self.lifetime_seconds = seconds;
    }

    fn open(&self, token: &str, now_ms: i64) -> Option<MicrosoftAccessToken> {
        self.access.get(token).filter(|access| now_ms < access.expires_ms).cloned()
    }

    fn revoke_account(&mut self, account: &str) {
        self.families
            .iter_mut()
            .filter(|family| family.grant.is_of(account))
            .for_each(|family| family.is_revoked = true);
        self.access.retain(|_, access| !access.grant.is_of(account));
    }

    fn expire_access_tokens(&mut self, account: Option<&str>) {
        self.access.retain(|_, access| account.is_some() && access.grant.account.as_deref() != account);
    }

    fn counts(&self) -> &BTreeMap<String, MicrosoftTokenCounts> {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> MicrosoftGrant {
        let scopes = ["offline_access", "Mail.Read"].map(str::to_owned).to_vec();
        MicrosoftGrant {
            account: Some("a@x.test".to_owned()),
            directory: "d".to_owned(),
            client: "c".to_owned(),
            scopes,
        }
    }

    #[test]
    fn strict_reuse_revokes_the_token_family() {
        let mut grants = MicrosoftTokenStore::new(Rng::new(1));
        let first = grants.grant(&grant(), 0).refresh_token.unwrap();

        let second = grants.refresh(&first, &grant(), 0).unwrap().refresh_token.unwrap();
        assert_ne!(first, second);
        assert!(grants.refresh(&first, &grant(), 0).is_ok());

        grants.is_strict = true;
        assert!(grants.refresh(&second, &grant(), 0).is_ok(), "it was not used yet");
        assert_eq!(grants.refresh(&second, &grant(), 0), Err(TokenRejection::Reused));
        assert_eq!(
            grants.grant_of_refresh_token(&first, "c", 0),
            Err(TokenRejection::Revoked),
            "the whole family ends"
        );
        assert_eq!(grants.counts["a@x.test"].families_revoked, 1);
    }

    #[test]
    fn code_is_redeemed_once_and_in_time() {
        let mut grants = MicrosoftTokenStore::new(Rng::new(1));
        let code = grants.give_code(grant(), "http://localhost/", "c", None, 0);

        assert_eq!(grants.take_code(&code, CODE_LIFETIME_MS).map(|_| ()), Err(TokenRejection::Expired));
        assert!(grants.take_code(&code, CODE_LIFETIME_MS - 1).is_ok());
        assert_eq!(grants.take_code(&code, 1).map(|_| ()), Err(TokenRejection::Used));
        assert_eq!(grants.take_code("other", 1).map(|_| ()), Err(TokenRejection::Unknown));
    }

    #[test]
    fn unused_refresh_token_expires_after_90_days() {
        let mut grants = MicrosoftTokenStore::new(Rng::new(1));
        let token = grants.grant(&grant(), 0).refresh_token.unwrap();

        assert!(grants.grant_of_refresh_token(&token, "c", REFRESH_TOKEN_LIFETIME_MS - 1).is_ok());
        assert_eq!(grants.grant_of_refresh_token(&token, "c", REFRESH_TOKEN_LIFETIME_MS), Err(TokenRejection::Expired));
        assert_eq!(grants.grant_of_refresh_token(&token, "other", 0), Err(TokenRejection::Unknown));
    }
}
