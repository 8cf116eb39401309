//! Tokens that mailboxes are called with.
//!
//! A token is in memory, else in the database, sealed, where every process finds it; else it is asked for. Of all processes
//! one at a time asks for the token of a mailbox: it holds a lease, and its token is stored only while it does. What
//! follows from a refusal is in [`apps`], for it may concern all mailboxes at once.

mod apps;
mod credential;
mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::connector::{Account, Grant};
use domain::{Connector, ConnectorError, MailboxId, MailboxState, Secret, SecretId, SecretKind};
use store::StoreError;
use store::failpoint::{self, Guard};
use store::sql::leases::NO_LONGER_LEADER;
use store::sql::schedules::LeaseToken;
use store::sql::secrets::SealedSecret;
use store::sql::tokens::{NewToken, SECRET_CHANGED};
use tokio::time::{Instant, sleep, timeout_at};

use crate::Engine;
use crate::secrets::VaultError;
use apps::{App, Apps};
use credential::{Credential, Unstored, opened};
use token::Token;

/// How the names of its leases begin.
pub(crate) const LEASE: &str = "token:";

/// Credentials in memory. Beyond it those are forgotten whose token has ended.
const MANY: usize = 10_000;

/// Whoever waits for somebody else's token looks so often at last.
const LOOK_AT_LAST: Duration = Duration::from_millis(500);

/// When to come back after the database was away.
const DATABASE_AWAY: Duration = Duration::from_secs(5);

/// How soon it is tried again to store what comes only once, for the first time; and each time later, up to the time above.
const STORE_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
pub struct TokenSettings {
    /// Of the right to ask. A call for a token has two thirds of it, so nobody asks in the name of one that has run out.
    pub lease: Duration,
    /// How soon somebody who waits for another's token looks for the first time.
    pub look: Duration,
}

impl TokenSettings {
    /// Who follows sooner in listing a mailbox also follows sooner here, as far as a call leaves time for it.
    pub fn following(lease: Duration) -> Self {
        let lease = lease.clamp(Duration::from_secs(3), Duration::from_secs(30));
        Self { lease, ..Self::default() }
    }
}

impl Default for TokenSettings {
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), look: Duration::from_millis(20) }
    }
}

/// Cheap to clone; clones are one.
#[derive(Debug, Clone)]
pub struct Tokens {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    holder: String,
    settings: TokenSettings,
    apps: Apps,
    credentials: Mutex<HashMap<MailboxId, Arc<Credential>>>,
}

/// For whom a token is, and who gives it.
#[derive(Debug, Clone)]
pub struct Asker {
    pub connector: Arc<dyn Connector>,
    pub account: Account,
}

impl Tokens {
    /// `holder` is who asks, for people.
    pub fn new(engine: Engine, holder: &str, settings: TokenSettings) -> Self {
        let (apps, credentials) = (Apps::default(), Mutex::default());
        Self { inner: Arc::new(Inner { engine, holder: holder.to_owned(), settings, apps, credentials }) }
    }

    /// A token that should be good, and is not this one.
    pub async fn get(&self, asker: &Asker, refused: Option<&Secret<String>>) -> Result<Secret<String>, ConnectorError> {
        let credential = self.credential(asker.account.mailbox);
        if let Some(token) = credential.good(&self.inner.engine, &asker.account, refused) {
            return Ok(token);
        }
        let asked = Instant::now();
        let turn = credential.turn.clone().lock_owned().await;
        // A task of its own: whoever stops waiting must not lose what a provider has just given.
        let (tokens, asker, refused) = (self.clone(), asker.clone(), refused.cloned());
        let task = tokio::spawn(async move {
            let _turn = turn;
            if let Some(known) = credential.known(&tokens.inner.engine, &asker.account, refused.as_ref(), asked) {
                return known;
            }
            let outcome = tokens.find_or_ask(&asker, &credential, refused.as_ref()).await;
            credential.remember(&asker.account, &outcome);
            outcome.map(|token| token.token)
        });
        task.await.unwrap_or_else(|_| Err(unavailable("a call for a token broke off")))
    }

    async fn find_or_ask(
        &self,
        asker: &Asker,
        credential: &Credential,
        refused: Option<&Secret<String>>,
    ) -> Result<Token, ConnectorError> {
        let Inner { engine, settings, apps, holder, .. } = &*self.inner;
        let name = format!("{LEASE}{}", asker.account.mailbox);
        let app = apps.of(asker);
        let give_up_at = Instant::now() + settings.lease * 3;
        let mut pause = settings.look;
        loop {
            if let Some(token) = self.stored(asker, refused).await? {
                return Ok(token);
            }
            let place = app.place().await?;
            let asked = Instant::now();
            let lease = if failpoint::is_off(Guard::TokenLease) {
                Some(None)
            } else {
                let taken = engine.store.system().acquire_lease(&name, holder, settings.lease).await;
                taken.map_err(|e| away(&e))?.map(Some)
            };
            if let Some(token) = lease {
                let (until, ends) = (asked + settings.lease * 2 / 3, asked + settings.lease);
                let held = Held { tokens: self, asker, credential, app: &app, name: &name, token, until, ends };
                let outcome = held.ask(refused).await;
                if !matches!(outcome, Ok(Some(_))) {
                    held.release().await;
                }
                if let Some(token) = outcome? {
                    return Ok(token);
                }
            }
            drop(place);
            if Instant::now() >= give_up_at {
                return Err(unavailable("others ask for its token, and none comes"));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LOOK_AT_LAST);
        }
    }

    /// What somebody has stored, if it is good and not the one that was refused.
    async fn stored(&self, asker: &Asker, refused: Option<&Secret<String>>) -> Result<Option<Token>, ConnectorError> {
        let (engine, account) = (&self.inner.engine, &asker.account);
        let id = SecretId::of_access_token(account.mailbox);
        let sealed = match engine.vault.open(account.tenant, id, SecretKind::AccessToken).await {
            // What cannot be read is asked for anew.
            Err(VaultError::Damaged(_)) => None,
            opened => opened.map_err(|e| closed(&e))?,
        };
        let token = sealed.as_ref().and_then(Token::read).filter(|token| token.is_of(&opened(account)));
        Ok(token.filter(|token| token.is_good(engine.store.clock().now(), refused)))
    }

    fn credential(&self, mailbox: MailboxId) -> Arc<Credential> {
        let mut credentials = self.inner.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        if credentials.len() >= MANY && !credentials.contains_key(&mailbox) {
            let now = self.inner.engine.store.clock().now();
            credentials.retain(|_, credential| Arc::strong_count(credential) > 1 || credential.is_of_use(now));
        }
        credentials.entry(mailbox).or_default().clone()
    }
}

/// The right to ask for a mailbox's token.
struct Held<'a> {
    tokens: &'a Tokens,
    asker: &'a Asker,
    credential: &'a Credential,
    app: &'a App,
    name: &'a str,
    /// `None`: a test wants to see what happens without.
    token: Option<u64>,
    /// For calls.
    until: Instant,
    /// When somebody else may have it.
    ends: Instant,
}

impl Held<'_> {
    /// `None`: something has changed meanwhile, and it is worth another look.
    async fn ask(&self, refused: Option<&Secret<String>>) -> Result<Option<Token>, ConnectorError> {
        // Somebody may have stored one between our look and our turn.
        if let Some(token) = self.tokens.stored(self.asker, refused).await? {
            self.release().await;
            return Ok(Some(token));
        }
        let (account, sealed) = self.present().await?;
        let clock = self.tokens.inner.engine.store.clock();
        if let Some(Unstored { grant, asked_at, .. }) = self.credential.unstored(&account) {
            let token =
                self.store_steadily(&account, sealed, Token::new(&grant, opened(&account), asked_at), &grant).await?;
            // It may have ended meanwhile; by what is stored now there is another.
            return Ok(token.filter(|token| token.is_good(clock.now(), refused)));
        }
        let before = clock.now();
        match self.call(&account).await {
            Ok(grant) => {
                if grant.secret.is_some() && sealed.is_some() {
                    self.credential.keep_unstored(&account, &grant, before);
                }
                self.store_steadily(&account, sealed, Token::new(&grant, opened(&account), before), &grant).await
            }
            Err(e @ ConnectorError::Unauthorized(_)) => {
                // Somebody may have put another in its place while we asked; that one is tried.
                let (now, _) = self.present().await?;
                if is_opened_alike(&now, &account) { Err(e) } else { Ok(None) }
            }
            Err(e) => Err(e),
        }
    }

    /// The account as it is now, and what opens it as it is stored.
    async fn present(&self) -> Result<(Account, Option<SealedSecret>), ConnectorError> {
        let (engine, account) = (&self.tokens.inner.engine, &self.asker.account);
        let store = engine.store.tenant(account.tenant);
        let mailbox = store.find_mailbox(&account.mailbox.to_string()).await.map_err(|e| away(&e))?;
        let mailbox = mailbox.filter(|mailbox| mailbox.state != MailboxState::Disconnected);
        let Some(mailbox) = mailbox else { return Err(unauthorized("it is disconnected")) };
        if mailbox.state == MailboxState::NeedsReauth {
            return Err(unauthorized(mailbox.state_reason.as_deref().unwrap_or("it waits to be connected again")));
        }
        let sealed = match mailbox.secret_ref.as_deref().map(str::parse::<SecretId>) {
            Some(Ok(id)) => store.find_secret(id).await.map_err(|e| away(&e))?,
            _ => None,
        };
        let secret = engine.open_secret(&mailbox, sealed.as_ref()).await.map_err(|e| {
            tracing::error!(mailbox.id = %mailbox.id, "the secret of a mailbox cannot be opened: {e:#}");
            ConnectorError::NotYet(DATABASE_AWAY)
        })?;
        let settings = crate::sync::connection(&mailbox.settings);
        Ok((Account { address: mailbox.address, secret, settings, ..account.clone() }, sealed))
    }

    async fn call(&self, account: &Account) -> Result<Grant, ConnectorError> {
        let Some(call) = self.asker.connector.grant(account) else {
            return Err(unauthorized("its provider has no tokens"));
        };
        let outcome = timeout_at(self.until, call).await;
        let outcome = outcome.unwrap_or_else(|_| Err(unavailable("no token in time")));
        if let Err(e) = &outcome {
            let provider = self.asker.connector.provider().as_str();
            metrics::counter!("mailroom_token_refresh_failures_total", "provider" => provider).increment(1);
            self.app.was_refused(e);
        }
        outcome
    }

    /// What a provider gave in the place of a secret comes only once, so a database that is away is waited for while nobody
    /// else may ask. It is kept in memory after that; see [`Unstored`].
    async fn store_steadily(
        &self,
        account: &Account,
        mut by: Option<SealedSecret>,
        token: Token,
        grant: &Grant,
    ) -> Result<Option<Token>, ConnectorError> {
        let mut pause = STORE_AGAIN;
        loop {
            match self.store_once(account, &mut by, &token, grant).await {
                Err(ConnectorError::NotYet(_)) if grant.secret.is_some() && Instant::now() + pause < self.ends => {}
                outcome => return outcome,
            }
            sleep(pause).await;
            pause = (pause * 2).min(DATABASE_AWAY);
        }
    }

    /// Once more when the secret was only sealed anew meanwhile, as keys are rotated.
    async fn store_once(
        &self,
        account: &Account,
        by: &mut Option<SealedSecret>,
        token: &Token,
        grant: &Grant,
    ) -> Result<Option<Token>, ConnectorError> {
        loop {
            match self.store(account, by.as_ref(), token, grant).await? {
                Stored::Yes => {
                    self.credential.forget_unstored();
                    return Ok(Some(token.clone()));
                }
                Stored::NotOurTurn => return Ok(None),
                Stored::OtherSecret => {}
            }
            let (now, sealed) = self.present().await?;
            if !is_opened_alike(&now, account) || sealed == *by {
                return Ok(None);
            }
            *by = sealed;
        }
    }

    /// Before its first use, and with it what the provider wants us to use from now on.
    async fn store(
        &self,
        account: &Account,
        by: Option<&SealedSecret>,
        token: &Token,
        grant: &Grant,
    ) -> Result<Stored, ConnectorError> {
        let engine = &self.tokens.inner.engine;
        let (tenant, mailbox, vault) = (account.tenant, account.mailbox, &engine.vault);
        let id = SecretId::of_access_token(mailbox);
        let sealed = vault.seal(tenant, id, SecretKind::AccessToken, &token.write()).await.map_err(|e| closed(&e))?;
        let rotated = match (&grant.secret, by) {
            (Some(secret), Some(by)) => {
                let kind = self.asker.connector.provider().secret_kind();
                Some(vault.seal(tenant, by.id, kind, secret).await.map_err(|e| closed(&e))?)
            }
            _ => None,
        };
        let lease = self.token.map(|token| LeaseToken { name: self.name, token });
        let new = NewToken { mailbox, token: &sealed, by, rotated: rotated.as_ref() };
        match engine.store.system().store_token(tenant, lease, new).await {
            Ok(()) => Ok(Stored::Yes),
            Err(StoreError::Precondition(NO_LONGER_LEADER)) => Ok(Stored::NotOurTurn),
            Err(StoreError::Precondition(SECRET_CHANGED)) => Ok(Stored::OtherSecret),
            Err(e) => Err(away(&e)),
        }
    }

    /// Others need not wait until it runs out.
    async fn release(&self) {
        let Some(token) = self.token else { return };
        let Inner { engine, holder, .. } = &*self.tokens.inner;
        if let Err(e) = engine.store.system().release_lease(self.name, holder, token).await {
            tracing::debug!("the right to ask for a token runs out by itself: {e}");
        }
    }
}

/// What became of a token that came.
enum Stored {
    Yes,
    /// Somebody else asks by now.
    NotOurTurn,
    /// The mailbox is opened by something else than it was got by, or that is sealed anew.
    OtherSecret,
}

fn is_opened_alike(one: &Account, other: &Account) -> bool {
    let secret = |account: &Account| account.secret.as_ref().map(|secret| secret.expose().clone());
    secret(one) == secret(other) && opened(one) == opened(other)
}

fn unavailable(what: &str) -> ConnectorError {
    ConnectorError::Unavailable(what.to_owned())
}

fn unauthorized(what: &str) -> ConnectorError {
    ConnectorError::Unauthorized(what.to_owned())
}

/// Our own database, which says nothing about the provider.
fn away(e: &StoreError) -> ConnectorError {
    tracing::warn!("a token cannot be read or stored: {e}");
    ConnectorError::NotYet(DATABASE_AWAY)
}

fn closed(e: &VaultError) -> ConnectorError {
    match e {
        VaultError::Store(e) => away(e),
        other => {
            tracing::error!("a token cannot be opened or sealed: {other}");
            ConnectorError::NotYet(DATABASE_AWAY)
        }
    }
}
