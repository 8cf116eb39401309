//! Codes and tokens that were given out.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::consent::Granted;
use crate::mail::rng::Rng;

/// How long a code can be redeemed.
const CODE_MS: i64 = 10 * 60_000;

/// How long a refresh token that nobody uses is good for.
const REFRESH_MS: i64 = 90 * 24 * 3_600_000;

/// Expired access tokens are thrown away when there are so many tokens.
const MANY: usize = 100_000;

/// What was asked for, and by whom it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Nothing: a program for itself, in the directory.
    pub account: Option<String>,
    /// The directory's id.
    pub directory: String,
    pub client: String,
    /// As they were asked for.
    pub scopes: Vec<String>,
}

impl Asked {
    fn is_offline(&self) -> bool {
        self.scopes.iter().any(|scope| scope == "offline_access")
    }

    /// Whose tokens they are counted as.
    fn whose(&self) -> String {
        self.account.clone().unwrap_or_else(|| self.directory.clone())
    }
}

/// A code waiting to be redeemed.
#[derive(Debug, Clone)]
pub struct Code {
    pub asked: Asked,
    pub redirect_uri: String,
    pub challenge: String,
    pub nonce: Option<String>,
    expires_ms: i64,
    is_used: bool,
}

/// What an access token lets in to.
#[derive(Debug, Clone)]
pub struct Access {
    pub asked: Asked,
    expires_ms: i64,
}

/// What is wrong with a code or a refresh token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dead {
    Unknown,
    Expired,
    /// A code comes once.
    Used,
    Revoked,
    /// A refresh token that was used before, where that is not allowed: with it all of its family ends.
    Reused,
}

/// Tokens of one account, or of the programs of one directory, since the beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// By a code, or by a script.
    pub granted: u64,
    pub refreshed: u64,
    /// By programs for themselves.
    pub app_only: u64,
    /// Refresh tokens that were not made out of others.
    pub families: u64,
    pub families_revoked: u64,
    /// Refreshes that began while another one of the account was under way.
    pub overlapping: u64,
}

#[derive(Debug)]
struct Family {
    asked: Asked,
    is_revoked: bool,
}

#[derive(Debug)]
struct Refresh {
    family: usize,
    is_used: bool,
    issued_ms: i64,
}

#[derive(Debug)]
pub struct Grants {
    rng: Rng,
    pub lifetime_seconds: i64,
    /// A refresh token is good for one use.
    pub is_strict: bool,
    codes: HashMap<String, Code>,
    access: HashMap<String, Access>,
    refresh: HashMap<String, Refresh>,
    families: Vec<Family>,
    pub counts: BTreeMap<String, Counts>,
}

impl Grants {
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
        asked: Asked,
        redirect_uri: &str,
        challenge: &str,
        nonce: Option<&str>,
        now_ms: i64,
    ) -> String {
        let code = format!("0.Sim{}", self.rng.token(60));
        let waiting = Code {
            asked,
            redirect_uri: redirect_uri.to_owned(),
            challenge: challenge.to_owned(),
            nonce: nonce.map(str::to_owned),
            expires_ms: now_ms + CODE_MS,
            is_used: false,
        };
        self.codes.insert(code.clone(), waiting);
        code
    }

    /// Once, and in time.
    pub fn take_code(&mut self, code: &str, now_ms: i64) -> Result<Code, Dead> {
        let code = self.codes.get_mut(code).ok_or(Dead::Unknown)?;
        if now_ms >= code.expires_ms {
            return Err(Dead::Expired);
        }
        if std::mem::replace(&mut code.is_used, true) {
            return Err(Dead::Used);
        }
        Ok(code.clone())
    }

    /// Whose code or token it is.
    pub fn whose(&self, text: &str) -> Option<String> {
        let of_refresh = || self.refresh.get(text).map(|refresh| self.families[refresh.family].asked.whose());
        self.codes.get(text).map(|code| code.asked.whose()).or_else(of_refresh)
    }

    /// Whether the account has granted all of this to the client before, and it was not taken back.
    pub fn has_granted(&self, asked: &Asked) -> bool {
        self.families.iter().any(|family| {
            !family.is_revoked
                && (&family.asked.account, &family.asked.client) == (&asked.account, &asked.client)
                && asked.scopes.iter().all(|scope| family.asked.scopes.contains(scope))
        })
    }

    pub fn grant(&mut self, asked: &Asked, now_ms: i64) -> Granted {
        let counts = self.counts.entry(asked.whose()).or_default();
        counts.granted += 1;
        let is_offline = asked.is_offline();
        counts.families += u64::from(is_offline);
        let refresh_token = is_offline.then(|| {
            self.families.push(Family { asked: asked.clone(), is_revoked: false });
            self.refresh_token(self.families.len() - 1, now_ms)
        });
        Granted { refresh_token, ..self.access(asked, now_ms) }
    }

    fn refresh_token(&mut self, family: usize, now_ms: i64) -> String {
        let token = format!("1.Sim{}", self.rng.token(80));
        self.refresh.insert(token.clone(), Refresh { family, is_used: false, issued_ms: now_ms });
        token
    }

    /// What a refresh token was granted for, while it lives.
    pub fn asked_by(&self, token: &str, client: &str, now_ms: i64) -> Result<Asked, Dead> {
        let refresh = self.refresh.get(token).ok_or(Dead::Unknown)?;
        let family = &self.families[refresh.family];
        if family.asked.client != client {
            return Err(Dead::Unknown);
        }
        if family.is_revoked {
            return Err(Dead::Revoked);
        }
        if now_ms >= refresh.issued_ms + REFRESH_MS {
            return Err(Dead::Expired);
        }
        Ok(family.asked.clone())
    }

    /// Another refresh token comes with it. The old one stays good, unless each is good for one use.
    pub fn refresh(&mut self, token: &str, asked: &Asked, now_ms: i64) -> Result<Granted, Dead> {
        let refresh = self.refresh.get_mut(token).ok_or(Dead::Unknown)?;
        let (family, was_used) = (refresh.family, std::mem::replace(&mut refresh.is_used, true));
        let counts = self.counts.entry(asked.whose()).or_default();
        if was_used && self.is_strict {
            self.families[family].is_revoked = true;
            counts.families_revoked += 1;
            return Err(Dead::Reused);
        }
        counts.refreshed += 1;
        let refresh_token = Some(self.refresh_token(family, now_ms));
        Ok(Granted { refresh_token, ..self.access(asked, now_ms) })
    }

    /// For a program itself.
    pub fn give_to_program(&mut self, asked: &Asked, now_ms: i64) -> Granted {
        self.counts.entry(asked.whose()).or_default().app_only += 1;
        self.access(asked, now_ms)
    }

    fn access(&mut self, asked: &Asked, now_ms: i64) -> Granted {
        if self.access.len() >= MANY {
            self.access.retain(|_, access| now_ms < access.expires_ms);
        }
        let access_token = format!("EwSim.{}", self.rng.token(80));
        let expires_ms = now_ms + self.lifetime_seconds * 1_000;
        self.access.insert(access_token.clone(), Access { asked: asked.clone(), expires_ms });
        let scopes = asked.scopes.iter().filter(|scope| *scope != "offline_access").cloned().collect();
        Granted { access_token, refresh_token: None, expires_in: self.lifetime_seconds, scopes }
    }

    pub fn open(&self, token: &str, now_ms: i64) -> Option<Access> {
        self.access.get(token).filter(|access| now_ms < access.expires_ms).cloned()
    }

    pub fn revoke_account(&mut self, account: &str) {
        let is_of = |asked: &Asked| asked.account.as_deref() == Some(account);
        self.families.iter_mut().filter(|family| is_of(&family.asked)).for_each(|family| family.is_revoked = true);
        self.access.retain(|_, access| !is_of(&access.asked));
    }

    pub fn expire_access_tokens(&mut self, account: Option<&str>) {
        self.access.retain(|_, access| account.is_some() && access.asked.account.as_deref() != account);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        let scopes = ["offline_access", "Mail.Read"].map(str::to_owned).to_vec();
        Asked { account: Some("a@x.test".to_owned()), directory: "d".to_owned(), client: "c".to_owned(), scopes }
    }

    #[test]
    fn a_used_refresh_token_stays_good_unless_each_is_for_one_use() {
        let mut grants = Grants::new(Rng::new(1));
        let first = grants.grant(&asked(), 0).refresh_token.unwrap();

        let second = grants.refresh(&first, &asked(), 0).unwrap().refresh_token.unwrap();
        assert_ne!(first, second);
        assert!(grants.refresh(&first, &asked(), 0).is_ok());

        grants.is_strict = true;
        assert!(grants.refresh(&second, &asked(), 0).is_ok(), "it was not used yet");
        assert_eq!(grants.refresh(&second, &asked(), 0), Err(Dead::Reused));
        assert_eq!(grants.asked_by(&first, "c", 0), Err(Dead::Revoked), "the whole family ends");
        assert_eq!(grants.counts["a@x.test"].families_revoked, 1);
    }

    #[test]
    fn a_code_comes_once_and_in_time() {
        let mut grants = Grants::new(Rng::new(1));
        let code = grants.give_code(asked(), "http://localhost/", "c", None, 0);

        assert_eq!(grants.take_code(&code, CODE_MS).map(|_| ()), Err(Dead::Expired));
        assert!(grants.take_code(&code, CODE_MS - 1).is_ok());
        assert_eq!(grants.take_code(&code, 1).map(|_| ()), Err(Dead::Used));
        assert_eq!(grants.take_code("other", 1).map(|_| ()), Err(Dead::Unknown));
    }

    #[test]
    fn a_refresh_token_that_nobody_uses_ends_after_ninety_days() {
        let mut grants = Grants::new(Rng::new(1));
        let token = grants.grant(&asked(), 0).refresh_token.unwrap();

        assert!(grants.asked_by(&token, "c", REFRESH_MS - 1).is_ok());
        assert_eq!(grants.asked_by(&token, "c", REFRESH_MS), Err(Dead::Expired));
        assert_eq!(grants.asked_by(&token, "other", 0), Err(Dead::Unknown));
    }
}
