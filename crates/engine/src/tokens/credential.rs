//! What this process knows of one mailbox's token.

use std::sync::{Arc, Mutex, PoisonError};

use domain::connector::{Account, Grant};
use domain::{ConnectorError, Secret, Sha256};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::token::Token;
use crate::Engine;

/// A mailbox whose token nobody has asked for since is let go, or another process asks for it.
const UNSTORED_FOR: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Default)]
pub struct Credential {
    /// Who asks for all others of this process.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// With what opened the mailbox when it came: for a mailbox that was connected anew it is another's.
    token: Option<(Sha256, Token)>,
    failed: Option<(Instant, ConnectorError)>,
    unstored: Option<Unstored>,
}

/// What a provider gave us to use from now on and the database has not taken yet. It comes only once, and what it replaces
/// may be good no longer.
#[derive(Debug, Clone)]
pub struct Unstored {
    /// By what it was got.
    by: Sha256,
    pub grant: Grant,
    pub asked_at: Timestamp,
}

impl Credential {
    pub fn good(&self, engine: &Engine, account: &Account, refused: Option<&Secret<String>>) -> Option<Secret<String>> {
        let now = engine.store.clock().now();
        let last = self.last();
        let (by, token) = last.token.as_ref()?;
        (*by == opener(account) && token.is_good(now, refused)).then(|| token.token.clone())
    }

    /// What became of it while we waited for our turn.
    pub fn known(
        &self,
        engine: &Engine,
        account: &Account,
        refused: Option<&Secret<String>>,
        asked: Instant,
    ) -> Option<Result<Secret<String>, ConnectorError>> {
        if let Some(token) = self.good(engine, account, refused) {
            return Some(Ok(token));
        }
        // Those who waited for it share a refusal, so that it is not asked for by each of them.
        let last = self.last();
        last.failed.as_ref().filter(|(at, _)| *at > asked).map(|(_, e)| Err(e.clone()))
    }

    pub fn remember(&self, account: &Account, outcome: &Result<Token, ConnectorError>) {
        let mut last = self.last();
        match outcome {
            Ok(token) => {
                last.token = Some((opener(account), token.clone()));
                last.failed = None;
            }
            Err(e) => last.failed = Some((Instant::now(), e.clone())),
        }
    }

    /// Until it is stored, or something else opens the mailbox.
    pub fn keep_unstored(&self, account: &Account, grant: &Grant, asked_at: Timestamp) {
        self.last().unstored = Some(Unstored { by: opener(account), grant: grant.clone(), asked_at });
    }

    pub fn forget_unstored(&self) {
        self.last().unstored = None;
    }

    /// What came for this account as it is now, and is stored nowhere.
    pub fn unstored(&self, account: &Account) -> Option<Unstored> {
        let mut last = self.last();
        if last.unstored.as_ref().is_some_and(|unstored| unstored.by != opener(account)) {
            last.unstored = None;
        }
        last.unstored.clone()
    }

    pub fn is_of_use(&self, now: Timestamp) -> bool {
        let last = self.last();
        let is_wanted = |unstored: &Unstored| now.duration_since(unstored.asked_at) < UNSTORED_FOR;
        last.unstored.as_ref().is_some_and(is_wanted)
            || last.token.as_ref().is_some_and(|(_, token)| token.is_good(now, None))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its secret, and where our app opens it by itself, for whom.
fn opener(account: &Account) -> Sha256 {
    let secret = account.secret.as_ref().map(|secret| Sha256::of(secret.expose().as_bytes()));
    Sha256::of(format!("{secret:?} {}", opened(account)).as_bytes())
}

/// Whose mailbox our app opens. Nobody's in particular where a secret says itself what it opens.
pub fn opened(account: &Account) -> String {
    let settings: Value = serde_json::from_str(&account.settings).unwrap_or_default();
    let named = || ["user", "account"].iter().find_map(|name| settings[name].as_str());
    match settings["app_only"] == true {
        true => named().unwrap_or(&account.address).to_owned(),
        false => String::new(),
    }
}
