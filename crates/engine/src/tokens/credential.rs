//! What this process knows of one mailbox's token.

use std::sync::{Arc, Mutex, PoisonError};

use domain::connector::Account;
use domain::{ConnectorError, Secret, Sha256};
use jiff::Timestamp;
use tokio::time::Instant;

use super::token::Token;
use crate::Engine;

#[derive(Debug, Default)]
pub struct Credential {
    /// Who asks for all others of this process.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// With what opened the mailbox when it came: for a mailbox that was connected anew it is another's.
    token: Option<(Option<Sha256>, Token)>,
    failed: Option<(Instant, ConnectorError)>,
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
            Ok(token) => *last = Last { token: Some((opener(account), token.clone())), failed: None },
            Err(e) => last.failed = Some((Instant::now(), e.clone())),
        }
    }

    pub fn is_of_use(&self, now: Timestamp) -> bool {
        self.last().token.as_ref().is_some_and(|(_, token)| token.is_good(now, None))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn opener(account: &Account) -> Option<Sha256> {
    account.secret.as_ref().map(|secret| Sha256::of(secret.expose().as_bytes()))
}
