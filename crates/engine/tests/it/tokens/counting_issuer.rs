//! An issuer of tokens that counts its callers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::connector::{ConnectorAccount, ConnectorFuture, TokenGrant};
use domain::{ConnectorError, Provider, Secret};

use super::TokenIssuer;

/// A provider with tokens.
#[derive(Debug)]
pub struct CountingIssuer {
    /// The refresh token that is good.
    pub secret: Mutex<String>,
    /// What a call for a token is told.
    pub refusal: Mutex<Option<ConnectorError>>,
    rotates: bool,
    /// The token that is good, by its number.
    pub current: AtomicU32,
    pub in_flight: AtomicU32,
    pub most_in_flight: AtomicU32,
    asked: AtomicU32,
    pub revoked: Mutex<Vec<String>>,
    takes: Duration,
    /// No call ends while a test has it.
    pub gate: tokio::sync::Mutex<()>,
}

impl CountingIssuer {
    pub fn new(takes: Duration, rotates: bool) -> Self {
        Self {
            secret: Mutex::new("r0".into()),
            refusal: Mutex::default(),
            rotates,
            current: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            most_in_flight: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            revoked: Mutex::default(),
            takes,
            gate: tokio::sync::Mutex::default(),
        }
    }

    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    pub fn is_good(&self, token: &Secret<String>) -> bool {
        *token.expose() == format!("t{}", self.current.load(Ordering::SeqCst))
    }

    async fn count(&self, account: &ConnectorAccount) -> Result<TokenGrant, ConnectorError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(self.takes).await;
        drop(self.gate.lock().await);
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Some(e) = self.refusal.lock().unwrap().clone() {
            return Err(e);
        }
        let mut good = self.secret.lock().unwrap();
        if account.secret.as_ref().is_none_or(|secret| *secret.expose() != *good) {
            return Err(ConnectorError::Unauthorized("invalid_grant".into()));
        }
        let number = self.current.fetch_add(1, Ordering::SeqCst) + 1;
        let secret = self.rotates.then(|| {
            *good = format!("r{number}");
            Secret::new(good.clone())
        });
        Ok(TokenGrant { token: Secret::new(format!("t{number}")), expires_in: Duration::from_secs(3600), secret })
    }
}

impl TokenIssuer for CountingIssuer {
    const PROVIDER: Provider = Provider::Gmail;

    fn first_secret(&self) -> String {
        "r0".to_owned()
    }

    fn give<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, TokenGrant> {
        Box::pin(self.count(account))
    }

    fn take_back<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            if let Some(e) = self.refusal.lock().unwrap().clone() {
                return Err(e);
            }
            let secret = account.secret.as_ref().map(|secret| secret.expose().clone());
            self.revoked.lock().unwrap().push(secret.unwrap_or_default());
            Ok(())
        })
    }

    fn takes<'a>(&'a self, token: &'a Secret<String>) -> ConnectorFuture<'a, bool> {
        Box::pin(async { Ok(self.is_good(token)) })
    }
}
