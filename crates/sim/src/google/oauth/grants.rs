//! Codes and tokens that were given out.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::consent::Granted;
use crate::mail::rng::Rng;

/// The most live refresh tokens of one account and client; one more, and the oldest dies.
const MOST_REFRESH: usize = 100;

/// How long a code can be redeemed.
const CODE_MS: i64 = 10 * 60_000;

/// Expired access tokens are thrown away when there are so many tokens.
const MANY: usize = 100_000;

/// What was asked for, and by whom it was granted.
#[derive(Debug, Clone)]
pub struct Asked {
    pub account: String,
    pub client: String,
    pub scopes: Vec<String>,
    /// `access_type=offline`: there is a refresh token.
    pub is_offline: bool,
    /// `prompt=consent`: there is one even if there was one before.
    pub is_forced: bool,
}

/// A code waiting to be redeemed.
#[derive(Debug, Clone)]
pub struct Code {
    pub asked: Asked,
    pub redirect_uri: String,
    pub challenge: String,
    pub nonce: Option<String>,
    expires_ms: i64,
}

/// What an access token lets in to.
#[derive(Debug, Clone)]
pub struct Access {
    pub account: String,
    pub client: String,
    pub scopes: Vec<String>,
    expires_ms: i64,
}

/// Tokens of one account, since the beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// By a code, or by a script.
    pub granted: u64,
    pub refreshed: u64,
    /// By the service account.
    pub delegated: u64,
}

type Pair = (String, String);

#[derive(Debug)]
pub struct Grants {
    rng: Rng,
    pub lifetime_seconds: i64,
    codes: HashMap<String, Code>,
    access: HashMap<String, Access>,
    refresh: HashMap<String, Asked>,
    /// Oldest first.
    refresh_of: HashMap<Pair, VecDeque<String>>,
    /// What was granted so far.
    granted: HashMap<Pair, BTreeSet<String>>,
    pub counts: BTreeMap<String, Counts>,
}

impl Grants {
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
        asked: Asked,
        redirect_uri: &str,
        challenge: &str,
        nonce: Option<&str>,
        now_ms: i64,
    ) -> String {
        let code = format!("4/0Sim{}", self.rng.token(40));
        let waiting = Code {
            asked,
            redirect_uri: redirect_uri.to_owned(),
            challenge: challenge.to_owned(),
            nonce: nonce.map(str::to_owned),
            expires_ms: now_ms + CODE_MS,
        };
        self.codes.insert(code.clone(), waiting);
        code
    }

    /// Once, and in time.
    pub fn take_code(&mut self, code: &str, now_ms: i64) -> Option<Code> {
        self.codes.remove(code).filter(|code| now_ms < code.expires_ms)
    }

    /// Whose code or token it is.
    pub fn whose(&self, text: &str) -> Option<&str> {
        let of_code = self.codes.get(text).map(|code| &code.asked.account);
        let of_refresh = || self.refresh.get(text).map(|asked| &asked.account);
        let of_access = || self.access.get(text).map(|access| &access.account);
        of_code.or_else(of_refresh).or_else(of_access).map(String::as_str)
    }

    /// What the account has granted to the client before.
    pub fn granted(&self, account: &str, client: &str) -> Option<&BTreeSet<String>> {
        self.granted.get(&(account.to_owned(), client.to_owned()))
    }

    pub fn grant(&mut self, asked: &Asked, now_ms: i64) -> Granted {
        self.counts.entry(asked.account.clone()).or_default().granted += 1;
        let pair = (asked.account.clone(), asked.client.clone());
        let is_first = !self.granted.contains_key(&pair);
        self.granted.entry(pair.clone()).or_default().extend(asked.scopes.iter().cloned());
        let refresh_token = (asked.is_offline && (is_first || asked.is_forced)).then(|| {
            let token = format!("1//0sim{}", self.rng.token(60));
            self.refresh.insert(token.clone(), asked.clone());
            let live = self.refresh_of.entry(pair).or_default();
            live.push_back(token.clone());
            if live.len() > MOST_REFRESH
                && let Some(oldest) = live.pop_front()
            {
                self.refresh.remove(&oldest);
            }
            token
        });
        Granted { refresh_token, ..self.access(asked, now_ms) }
    }

    /// Nothing: the token has expired or was revoked, or is another client's.
    pub fn refresh(&mut self, token: &str, client: &str, now_ms: i64) -> Option<(Asked, Granted)> {
        let asked = self.refresh.get(token).filter(|asked| asked.client == client)?.clone();
        self.counts.entry(asked.account.clone()).or_default().refreshed += 1;
        let granted = self.access(&asked, now_ms);
        Some((asked, granted))
    }

    /// For what a service account's key has signed.
    pub fn delegate(&mut self, asked: &Asked, now_ms: i64) -> Granted {
        self.counts.entry(asked.account.clone()).or_default().delegated += 1;
        self.access(asked, now_ms)
    }

    fn access(&mut self, asked: &Asked, now_ms: i64) -> Granted {
        if self.access.len() >= MANY {
            self.access.retain(|_, access| now_ms < access.expires_ms);
        }
        let access_token = format!("ya29.sim-{}", self.rng.token(60));
        let access = Access {
            account: asked.account.clone(),
            client: asked.client.clone(),
            scopes: asked.scopes.clone(),
            expires_ms: now_ms + self.lifetime_seconds * 1_000,
        };
        self.access.insert(access_token.clone(), access);
        let scopes = asked.scopes.clone();
        Granted { access_token, refresh_token: None, expires_in: self.lifetime_seconds, scopes }
    }

    pub fn open(&self, token: &str, now_ms: i64) -> Option<Access> {
        self.access.get(token).filter(|access| now_ms < access.expires_ms).cloned()
    }

    /// An access or a refresh token; the whole grant ends with either. Whether there was such a token.
    pub fn revoke(&mut self, token: &str) -> bool {
        let of_refresh = self.refresh.get(token).map(|asked| (asked.account.clone(), asked.client.clone()));
        let of_access = || self.access.get(token).map(|access| (access.account.clone(), access.client.clone()));
        match of_refresh.or_else(of_access) {
            Some(pair) => self.end(&pair),
            None => return false,
        }
        true
    }

    pub fn revoke_account(&mut self, account: &str) {
        let pairs: BTreeSet<Pair> = self
            .access
            .values()
            .map(|access| (access.account.clone(), access.client.clone()))
            .chain(self.refresh.values().map(|asked| (asked.account.clone(), asked.client.clone())))
            .filter(|(of, _)| of == account)
            .collect();
        pairs.iter().for_each(|pair| self.end(pair));
    }

    fn end(&mut self, pair: &Pair) {
        self.refresh_of.remove(pair);
        self.granted.remove(pair);
        self.refresh.retain(|_, asked| (&asked.account, &asked.client) != (&pair.0, &pair.1));
        self.access.retain(|_, access| (&access.account, &access.client) != (&pair.0, &pair.1));
    }

    pub fn expire_access_tokens(&mut self, account: Option<&str>) {
        self.access.retain(|_, access| account.is_some_and(|account| access.account != account));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(is_forced: bool) -> Asked {
        let (account, client) = ("a@x.test".to_owned(), "c".to_owned());
        Asked { account, client, scopes: vec!["s".to_owned()], is_offline: true, is_forced }
    }

    #[test]
    fn the_hundred_and_first_refresh_token_kills_the_first() {
        let mut grants = Grants::new(Rng::new(1));
        let tokens: Vec<String> = (0..101).filter_map(|_| grants.grant(&asked(true), 0).refresh_token).collect();

        assert!(grants.refresh(&tokens[0], "c", 0).is_none());
        assert!(tokens[1..].iter().all(|token| grants.refresh(token, "c", 0).is_some()));
        assert!(grants.refresh(&tokens[1], "other", 0).is_none());
    }

    #[test]
    fn a_second_consent_brings_no_refresh_token_unless_it_is_forced() {
        let mut grants = Grants::new(Rng::new(1));

        assert!(grants.grant(&asked(false), 0).refresh_token.is_some());
        assert!(grants.grant(&asked(false), 0).refresh_token.is_none());
        assert!(grants.grant(&asked(true), 0).refresh_token.is_some());
    }

    #[test]
    fn tokens_end_in_time_and_when_they_are_revoked() {
        let mut grants = Grants::new(Rng::new(1));
        let granted = grants.grant(&asked(true), 0);
        let open = |grants: &Grants, now| grants.open(&granted.access_token, now).is_some();

        assert!(open(&grants, 3_598_999) && !open(&grants, 3_599_000));
        assert!(grants.revoke(&granted.access_token) && !grants.revoke(&granted.access_token));
        assert!(!open(&grants, 0));
        assert!(grants.refresh(&granted.refresh_token.clone().unwrap(), "c", 0).is_none());
    }
}
