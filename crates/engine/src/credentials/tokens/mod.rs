//! Access tokens of mailboxes.
//!
//! A token is in memory, else sealed in the database, where every process finds it; else it is refreshed. One process
//! at a time refreshes the token of a mailbox under a lease, and the token is stored only while the lease holds.
//! [`apps`] handles rejections, which may concern all mailboxes at once.

mod apps;
mod credential;
mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::connector::{ConnectorAccount, TokenGrant};
use domain::metrics as catalogue;
use domain::{Connector, ConnectorError, MailboxId, MailboxState, Secret, SecretId, SecretKind, redact_for_log};
use store::failpoint::{self, Guard};
use store::sql::access_tokens::NewAccessToken;
use store::sql::schedules::LeaseToken;
use store::sql::secrets::SealedSecret;
use store::{Precondition, StoreError};
use tokio::time::{Instant, sleep, timeout_at};

use crate::Engine;
use crate::credentials::secrets::VaultError;
use crate::retry_policies::TOKEN_STORE_RETRY;
use apps::{ProviderApp, ProviderApps};
use credential::{Credential, PendingGrant, impersonated_user};
use token::AccessToken;

/// The prefix of the names of its leases.
pub(crate) const LEASE_PREFIX: &str = "token:";

/// Credentials in memory; above this number, those whose token has expired are dropped.
const MAX_IDLE_CREDENTIALS: usize = 10_000;

/// The longest pause between two reads while another process refreshes a token.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// When a call is tried again after the database was unavailable.
const DATABASE_RETRY_DELAY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub struct TokenSettings {
    /// The lease for a refresh. The call has two thirds of it, so that it never runs under an expired lease.
    pub lease: Duration,
    /// The first pause between two reads while another process refreshes a token.
    pub poll_interval: Duration,
}

impl TokenSettings {
    /// Returns settings that match the lease of a sync, as far as a call leaves time for it.
    pub fn for_lease(lease: Duration) -> Self {
        let lease = lease.clamp(Duration::from_secs(3), Duration::from_secs(30));
        Self { lease, ..Self::default() }
    }
}

impl Default for TokenSettings {
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), poll_interval: Duration::from_millis(20) }
    }
}

/// Gets and refreshes tokens. Cheap to clone; clones share their state.
#[derive(Debug, Clone)]
pub struct Tokens {
    inner: Arc<TokensInner>,
}

#[derive(Debug)]
struct TokensInner {
    engine: Engine,
    holder: String,
    settings: TokenSettings,
    apps: ProviderApps,
    credentials: Mutex<HashMap<MailboxId, Arc<Credential>>>,
}

/// The account that a token is for, and the connector that refreshes it.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    pub connector: Arc<dyn Connector>,
    pub account: ConnectorAccount,
}

impl Tokens {
    /// Creates the tokens of a process. `holder` is the name of the lease holder, for people.
    pub fn new(engine: Engine, holder: &str, settings: TokenSettings) -> Self {
        let (apps, credentials) = (ProviderApps::default(), Mutex::default());
        Self { inner: Arc::new(TokensInner { engine, holder: holder.to_owned(), settings, apps, credentials }) }
    }

    /// Gets a token that should be valid and is not the `refused` one.
    pub async fn get(
        &self,
        request: &TokenRequest,
        refused: Option<&Secret<String>>,
    ) -> Result<Secret<String>, ConnectorError> {
        let credential = self.credential(request.account.mailbox);
        if let Some(token) = credential.find_valid(&self.inner.engine, &request.account, refused) {
            return Ok(token);
        }
        let started = Instant::now();
        let turn = credential.refresh_lock.clone().lock_owned().await;
        // A separate task: a cancelled caller must not lose what a provider has just granted.
        let (tokens, request, refused) = (self.clone(), request.clone(), refused.cloned());
        let task = tokio::spawn(async move {
            let _turn = turn;
            if let Some(known) =
                credential.find_since(&tokens.inner.engine, &request.account, refused.as_ref(), started)
            {
                return known;
            }
            let outcome = tokens.find_or_refresh(&request, &credential, refused.as_ref()).await;
            credential.remember(&request.account, &outcome);
            outcome.map(|token| token.token)
        });
        task.await.unwrap_or_else(|_| Err(unavailable("the token refresh was interrupted")))
    }

    async fn find_or_refresh(
        &self,
        request: &TokenRequest,
        credential: &Credential,
        refused: Option<&Secret<String>>,
    ) -> Result<AccessToken, ConnectorError> {
        let TokensInner { engine, settings, apps, holder, .. } = &*self.inner;
        let name = format!("{LEASE_PREFIX}{}", request.account.mailbox);
        let app = apps.of(request);
        let give_up_at = Instant::now() + settings.lease * 3;
        let mut pause = settings.poll_interval;
        loop {
            if let Some(token) = self.stored(request, refused).await? {
                return Ok(token);
            }
            let permit = app.acquire().await?;
            let started = Instant::now();
            let lease = if failpoint::is_off(Guard::TokenLease) {
                Some(None)
            } else {
                let taken = engine.store.system().acquire_lease(&name, holder, settings.lease).await;
                taken.map_err(|e| store_error(&request.account, &e))?.map(Some)
            };
            if let Some(token) = lease {
                let (until, ends) = (started + settings.lease * 2 / 3, started + settings.lease);
                let lease =
                    TokenLease { tokens: self, request, credential, app: &app, name: &name, token, until, ends };
                let outcome = lease.refresh(refused).await;
                if !matches!(outcome, Ok(Some(_))) {
                    lease.release().await;
                }
                if let Some(token) = outcome? {
                    return Ok(token);
                }
            }
            drop(permit);
            if Instant::now() >= give_up_at {
                return Err(unavailable("another process is refreshing the token and has not finished in time"));
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// Returns the stored token, if it is valid and not the one that was refused.
    async fn stored(
        &self,
        request: &TokenRequest,
        refused: Option<&Secret<String>>,
    ) -> Result<Option<AccessToken>, ConnectorError> {
        let (engine, account) = (&self.inner.engine, &request.account);
        let id = SecretId::of_access_token(account.mailbox);
        let sealed = match engine.vault.open(account.tenant, id, SecretKind::AccessToken).await {
            // A token that cannot be decrypted is refreshed.
            Err(VaultError::Damaged(_)) => None,
            impersonated_user => impersonated_user.map_err(|e| vault_error(account, &e))?,
        };
        let token =
            sealed.as_ref().and_then(AccessToken::from_json).filter(|token| token.is_of(&impersonated_user(account)));
        Ok(token.filter(|token| token.is_valid(engine.store.clock().now(), refused)))
    }

    fn credential(&self, mailbox: MailboxId) -> Arc<Credential> {
        let mut credentials = self.inner.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        if credentials.len() >= MAX_IDLE_CREDENTIALS && !credentials.contains_key(&mailbox) {
            let now = self.inner.engine.store.clock().now();
            credentials.retain(|_, credential| Arc::strong_count(credential) > 1 || credential.is_in_use(now));
        }
        credentials.entry(mailbox).or_default().clone()
    }
}

/// The lease for refreshing a mailbox's token.
struct TokenLease<'a> {
    tokens: &'a Tokens,
    request: &'a TokenRequest,
    credential: &'a Credential,
    app: &'a ProviderApp,
    name: &'a str,
    /// The fence token; `None`: a test runs without the lease.
    token: Option<u64>,
    /// The deadline of the call.
    until: Instant,
    /// When the lease expires.
    ends: Instant,
}

impl TokenLease<'_> {
    /// Refreshes the token. Returns `None` if something has changed meanwhile and the caller should start over.
    async fn refresh(&self, refused: Option<&Secret<String>>) -> Result<Option<AccessToken>, ConnectorError> {
        // Another process may have stored one between our read and our lease.
        if let Some(token) = self.tokens.stored(self.request, refused).await? {
            self.release().await;
            return Ok(Some(token));
        }
        let (account, sealed) = self.reread_account().await?;
        let clock = self.tokens.inner.engine.store.clock();
        if let Some(PendingGrant { grant, asked_at, .. }) = self.credential.pending(&account) {
            let token = self
                .store_with_retries(
                    &account,
                    sealed,
                    AccessToken::new(&grant, impersonated_user(&account), asked_at),
                    &grant,
                )
                .await?;
            // It may have expired meanwhile; with the secret that is stored now another can be had.
            return Ok(token.filter(|token| token.is_valid(clock.now(), refused)));
        }
        let before = clock.now();
        match self.call(&account).await {
            Ok(grant) => {
                if grant.secret.is_some() && sealed.is_some() {
                    self.credential.keep_pending(&account, &grant, before);
                }
                self.store_with_retries(
                    &account,
                    sealed,
                    AccessToken::new(&grant, impersonated_user(&account), before),
                    &grant,
                )
                .await
            }
            Err(e @ ConnectorError::Unauthorized(_)) => {
                // A person may have replaced the secret during the call; then the new one is tried.
                let (now, _) = self.reread_account().await?;
                if has_same_credential(&now, &account) { Err(e) } else { Ok(None) }
            }
            Err(e) => Err(e),
        }
    }

    /// Reads the account as it is now, with its sealed secret.
    async fn reread_account(&self) -> Result<(ConnectorAccount, Option<SealedSecret>), ConnectorError> {
        let (engine, account) = (&self.tokens.inner.engine, &self.request.account);
        let store = engine.store.tenant(account.tenant);
        let mailbox = store.find_mailbox(&account.mailbox.to_string()).await.map_err(|e| store_error(account, &e))?;
        let mailbox = mailbox.filter(|mailbox| mailbox.state != MailboxState::Disconnected);
        let Some(mailbox) = mailbox else { return Err(unauthorized("the mailbox is disconnected")) };
        if mailbox.state == MailboxState::NeedsReauth {
            return Err(unauthorized(mailbox.state_reason.as_deref().unwrap_or("the mailbox needs new credentials")));
        }
        let sealed = match mailbox.secret_ref.as_deref().map(str::parse::<SecretId>) {
            Some(Ok(id)) => store.find_secret(id).await.map_err(|e| store_error(account, &e))?,
            _ => None,
        };
        let secret = engine.open_secret(&mailbox, sealed.as_ref()).await.map_err(|e| {
            let error = redact_for_log(&format_args!("{e:#}"));
            tracing::error!(tenant.id = %mailbox.tenant_id, mailbox.id = %mailbox.id, error, "mailbox secret not opened");
            ConnectorError::RateLimited(DATABASE_RETRY_DELAY)
        })?;
        let settings = mailbox.settings.connection_json();
        Ok((ConnectorAccount { address: mailbox.address, secret, settings, ..account.clone() }, sealed))
    }

    async fn call(&self, account: &ConnectorAccount) -> Result<TokenGrant, ConnectorError> {
        let Some(call) = self.request.connector.obtain_token(account) else {
            return Err(unauthorized("the provider does not issue tokens"));
        };
        let outcome = timeout_at(self.until, call).await;
        let outcome = outcome.unwrap_or_else(|_| Err(unavailable("the token refresh timed out")));
        if let Err(e) = &outcome {
            let provider = self.request.connector.provider().as_str();
            metrics::counter!(catalogue::TOKEN_REFRESH_FAILURES, "provider" => provider).increment(1);
            self.app.record_refusal(e);
        }
        outcome
    }

    /// Stores a token, waiting for an unavailable database while the lease lasts if the grant has a new secret, which
    /// comes only once. After that it is kept in memory; see [`PendingGrant`].
    async fn store_with_retries(
        &self,
        account: &ConnectorAccount,
        mut by: Option<SealedSecret>,
        token: AccessToken,
        grant: &TokenGrant,
    ) -> Result<Option<AccessToken>, ConnectorError> {
        let mut pause = TOKEN_STORE_RETRY.first_delay;
        loop {
            match self.store_once(account, &mut by, &token, grant).await {
                Err(ConnectorError::RateLimited(_)) if grant.secret.is_some() && Instant::now() + pause < self.ends => {
                }
                outcome => return outcome,
            }
            sleep(pause).await;
            pause = (pause * 2).min(TOKEN_STORE_RETRY.max_delay);
        }
    }

    /// Stores a token, once more if the secret was only re-sealed meanwhile by a key rotation.
    async fn store_once(
        &self,
        account: &ConnectorAccount,
        by: &mut Option<SealedSecret>,
        token: &AccessToken,
        grant: &TokenGrant,
    ) -> Result<Option<AccessToken>, ConnectorError> {
        loop {
            match self.store(account, by.as_ref(), token, grant).await? {
                StoreOutcome::Yes => {
                    self.credential.clear_pending();
                    return Ok(Some(token.clone()));
                }
                StoreOutcome::LeaseLost => return Ok(None),
                StoreOutcome::SecretChanged => {}
            }
            let (now, sealed) = self.reread_account().await?;
            if !has_same_credential(&now, account) || sealed == *by {
                return Ok(None);
            }
            *by = sealed;
        }
    }

    /// Stores a token before its first use, together with the new secret if the provider issued one.
    async fn store(
        &self,
        account: &ConnectorAccount,
        by: Option<&SealedSecret>,
        token: &AccessToken,
        grant: &TokenGrant,
    ) -> Result<StoreOutcome, ConnectorError> {
        let engine = &self.tokens.inner.engine;
        let (tenant, mailbox, vault) = (account.tenant, account.mailbox, &engine.vault);
        let id = SecretId::of_access_token(mailbox);
        let sealed = vault
            .seal(tenant, id, SecretKind::AccessToken, &token.to_json())
            .await
            .map_err(|e| vault_error(account, &e))?;
        let rotated = match (&grant.secret, by) {
            (Some(secret), Some(by)) => {
                let kind = self.request.connector.provider().capabilities().secret_kind;
                Some(vault.seal(tenant, by.id, kind, secret).await.map_err(|e| vault_error(account, &e))?)
            }
            _ => None,
        };
        let lease = self.token.map(|token| LeaseToken { name: self.name, token });
        let new = NewAccessToken { mailbox, token: &sealed, obtained_with: by, rotated: rotated.as_ref() };
        match engine.store.system().store_access_token(tenant, lease, new).await {
            Ok(()) => Ok(StoreOutcome::Yes),
            Err(StoreError::Precondition(Precondition::LeaseTakenOver)) => Ok(StoreOutcome::LeaseLost),
            Err(StoreError::Precondition(Precondition::SecretChanged)) => Ok(StoreOutcome::SecretChanged),
            Err(e) => Err(store_error(account, &e)),
        }
    }

    /// Releases the lease, so that others need not wait until it expires.
    async fn release(&self) {
        let Some(token) = self.token else { return };
        let TokensInner { engine, holder, .. } = &*self.tokens.inner;
        if let Err(e) = engine.store.system().release_lease(self.name, holder, token).await {
            let ConnectorAccount { tenant, mailbox, .. } = &self.request.account;
            let error = redact_for_log(&e);
            tracing::debug!(tenant.id = %tenant, mailbox.id = %mailbox, error, "token lease not released; it expires by itself");
        }
    }
}

/// The outcome of storing a token.
enum StoreOutcome {
    Yes,
    /// Another process has the lease by now.
    LeaseLost,
    /// The mailbox has another secret, or the same one was re-sealed.
    SecretChanged,
}

fn has_same_credential(one: &ConnectorAccount, other: &ConnectorAccount) -> bool {
    let (secret, other_secret) = (one.secret.as_ref(), other.secret.as_ref());
    secret.map(domain::Secret::expose) == other_secret.map(domain::Secret::expose)
        && impersonated_user(one) == impersonated_user(other)
}

fn unavailable(what: &str) -> ConnectorError {
    ConnectorError::Unavailable(what.to_owned())
}

fn unauthorized(what: &str) -> ConnectorError {
    ConnectorError::Unauthorized(what.to_owned())
}

/// Logs an error of our own database and returns a rate limit: it says nothing about the provider.
fn store_error(account: &ConnectorAccount, e: &StoreError) -> ConnectorError {
    let ConnectorAccount { tenant, mailbox, .. } = account;
    tracing::warn!(tenant.id = %tenant, mailbox.id = %mailbox, error = redact_for_log(e), "token not read or stored");
    ConnectorError::RateLimited(DATABASE_RETRY_DELAY)
}

fn vault_error(account: &ConnectorAccount, e: &VaultError) -> ConnectorError {
    match e {
        VaultError::Store(e) => store_error(account, e),
        other => {
            let ConnectorAccount { tenant, mailbox, .. } = account;
            let error = redact_for_log(other);
            tracing::error!(tenant.id = %tenant, mailbox.id = %mailbox, error, "token not opened or sealed");
            ConnectorError::RateLimited(DATABASE_RETRY_DELAY)
        }
    }
}
