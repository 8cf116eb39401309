//! Watches: the requests to a provider to push changes of a mailbox. Requested when a mailbox is connected, renewed
//! every day, at once when pushes stop, and ended once the last tenant that has the account has disconnected it.

use std::sync::Arc;
use std::time::Duration;

use domain::RandomSource;
use domain::connector::{ConnectorAccount, NoApiAccess, WatchRequest};
use domain::metrics as catalogue;
use domain::redact_for_log;
use domain::{Connector, ConnectorError, MailboxId, MailboxState, Provider, SecretId, TenantId};
use jiff::Timestamp;
use store::TenantUnit;
use store::sql::mailboxes::Mailbox;
use store::sql::watches::{WatchOutcome, WatchState};

use crate::Engine;
use crate::credentials::access::TrialAccess;
use crate::retry_policies::WATCH_RETRY;
use crate::sync::target::target_of;
use crate::sync::{Syncer, WatchMailbox};

/// How often a watch is renewed. Gmail's lasts for seven days, and Google asks to renew it daily.
pub(super) const RENEW_INTERVAL: Duration = Duration::from_secs(86_400);

/// The same while no pushes come.
pub(super) const SILENT_RENEW_INTERVAL: Duration = Duration::from_secs(3600);

/// When a provider is called again that asks to wait without saying how long.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Requests a watch in this unit, if the provider pushes. An earlier request is superseded.
pub(crate) fn request_watch(
    unit: &mut TenantUnit,
    engine: &Engine,
    mailbox: MailboxId,
    provider: Provider,
) -> anyhow::Result<()> {
    if provider.capabilities().supports_push {
        unit.request_watch(mailbox);
        unit.enqueue(vec![WatchMailbox::request(engine.store.clock(), mailbox)?]);
    }
    Ok(())
}

/// Requests the watch that was postponed, in this unit.
pub(crate) fn request_watch_again(unit: &mut TenantUnit, engine: &Engine, mailbox: MailboxId) -> anyhow::Result<()> {
    unit.make_watch_due(mailbox);
    unit.enqueue(vec![WatchMailbox::request(engine.store.clock(), mailbox)?]);
    Ok(())
}

/// The outcome of renewing a watch.
#[derive(Debug)]
pub(crate) struct WatchRenewal {
    /// The unit that records it, to be committed.
    pub unit: TenantUnit,
    /// The credentials are refused; a sync finds out what that means for the mailbox.
    pub is_unauthorized: bool,
}

impl Syncer {
    /// Requests or renews the watch of a mailbox. Returns `None` if there is none to request.
    pub(crate) async fn renew_watch(
        &self,
        tenant: TenantId,
        mailbox: MailboxId,
        random: &dyn RandomSource,
    ) -> anyhow::Result<Option<WatchRenewal>> {
        let store = self.engine.store.tenant(tenant);
        // Read before the call: a request that comes later is answered by a later call.
        let Some(watch) = store.find_watch(mailbox).await? else { return Ok(None) };
        let Some(session) = self.open(tenant, mailbox).await? else { return Ok(None) };
        // It is not known yet whose mailbox its secret opens, and a subscription belongs to all tenants that have the
        // address. The first successful sync requests it.
        if session.mailbox.provider.capabilities().has_named_subscription
            && session.mailbox.state == MailboxState::Connecting
        {
            let mut unit = store.write();
            unit.record_watch(mailbox, watch.version, WatchOutcome::Deferred, DEFAULT_RETRY_DELAY);
            return Ok(Some(WatchRenewal { unit, is_unauthorized: false }));
        }
        if watch.lost_at.is_some() && watch.lost_at > watch.renewed_at {
            let provider = session.mailbox.provider.as_str();
            tracing::warn!(tenant.id = %tenant, mailbox.id = %mailbox, provider, "mail came without pushes; renewing the watch");
        }
        let request = WatchRequest::without_client_state();
        // A future does nothing before it is awaited.
        let answer = match session.connector.watch(&session.account, &request) {
            Some(_) if session.mailbox.provider.capabilities().has_named_subscription => {
                Some(self.subscribe(&session, &watch).await?)
            }
            Some(call) => Some(self.gateway.make(&session.target, call).await),
            None => None,
        };
        let now = self.engine.store.system().now().await?;
        let outcome = match &answer {
            Some(Ok(_)) => "renewed",
            Some(Err(ConnectorError::Throttled { .. } | ConnectorError::RateLimited(_))) => "put_off",
            Some(Err(_)) => "failed",
            None => "off",
        };
        let provider = session.mailbox.provider.as_str();
        metrics::counter!(catalogue::WATCHES, "provider" => provider, "outcome" => outcome).increment(1);
        let mut unit = store.write();
        let reason =
            answer.as_ref().and_then(|answer| answer.as_ref().err()).map(ToString::to_string).unwrap_or_default();
        let (outcome, delay) = match &answer {
            Some(Ok(granted)) => {
                (WatchOutcome::Until(granted.expires_at), renew_delay(&watch, granted.expires_at, now, random))
            }
            None => (WatchOutcome::Off, with_jitter(RENEW_INTERVAL, random)),
            Some(Err(ConnectorError::Throttled { retry_after })) => {
                (WatchOutcome::Deferred, retry_after.unwrap_or(DEFAULT_RETRY_DELAY))
            }
            Some(Err(ConnectorError::RateLimited(wait))) => (WatchOutcome::Deferred, *wait),
            Some(Err(_)) => {
                if watch.problem.as_ref() != Some(&reason) {
                    let error = redact_for_log(&reason);
                    tracing::warn!(tenant.id = %tenant, mailbox.id = %mailbox, provider, error, "watch failed; the mailbox is only polled");
                }
                let delay = WATCH_RETRY.delay(watch.failures.min(31), random).unwrap_or(SILENT_RENEW_INTERVAL);
                (WatchOutcome::Failed(&reason), delay.max(DEFAULT_RETRY_DELAY))
            }
        };
        unit.record_watch(mailbox, watch.version, outcome, delay);
        let is_unauthorized = matches!(answer, Some(Err(ConnectorError::Unauthorized(_))));
        Ok(Some(WatchRenewal { unit, is_unauthorized }))
    }

    /// Ends the watch of an account that no mailbox has any more. If one was connected meanwhile, its watch is
    /// requested anew.
    pub(crate) async fn stop_watch(&self, mailbox: Mailbox, secret: Option<SecretId>) -> Result<(), StopWatchError> {
        let system = self.engine.store.system();
        let (provider, address) = (mailbox.provider, mailbox.account().to_owned());
        // The watch is the account's, not the tenant's.
        if system.is_account_connected(provider, &address).await.map_err(anyhow::Error::from)? {
            // A process that ended it and died may have left another mailbox of the account without a watch.
            return Ok(system.request_watches_of_account(provider, &address).await.map_err(anyhow::Error::from)?);
        }
        let Some((mailbox, account, connector)) = self.reopen(mailbox, secret).await? else { return Ok(()) };
        if connector.unwatch(&account, None).is_none() {
            return Ok(());
        }
        let target = target_of(&mailbox, self.gateway.settings());
        let end = async |name: Option<&str>| match connector.unwatch(&account, name) {
            Some(call) => self.gateway.make(&target, call).await,
            None => Ok(()),
        };
        let stopped = if provider.capabilities().has_named_subscription {
            self.unsubscribe(provider, &address, end).await?
        } else {
            end(None).await
        };
        if stopped.is_ok() {
            let outcome = "stopped";
            metrics::counter!(catalogue::WATCHES, "provider" => provider.as_str(), "outcome" => outcome).increment(1);
        }
        // Also when the outcome is not known: the account may have been connected during the call.
        system.request_watches_of_account(provider, &address).await.map_err(anyhow::Error::from)?;
        stopped.map_err(StopWatchError::Provider)
    }

    /// Opens a disconnected mailbox with the secret that it had. Returns `None` if the secret is gone.
    async fn reopen(
        &self,
        mailbox: Mailbox,
        secret: Option<SecretId>,
    ) -> anyhow::Result<Option<(Arc<Mailbox>, ConnectorAccount, Arc<dyn Connector>)>> {
        let Some(connector) = self.connectors.get(&mailbox.provider).cloned() else { return Ok(None) };
        // The mailbox may have another secret by now.
        let mailbox = Mailbox { secret_ref: secret.map(|id| id.to_string()), ..mailbox };
        let sealed = match secret {
            Some(id) => self.engine.store.tenant(mailbox.tenant_id).find_secret(id).await?,
            None => None,
        };
        if secret.is_some() && sealed.is_none() {
            return Ok(None);
        }
        let secret = self.engine.open_secret(&mailbox, sealed.as_ref()).await?;
        let mailbox = Arc::new(mailbox);
        let account = ConnectorAccount {
            tenant: mailbox.tenant_id,
            mailbox: mailbox.id,
            address: mailbox.address.clone(),
            settings: mailbox.settings.connection_json(),
            secret,
            folders: Vec::new(),
            sweep_since: None,
            access: Arc::new(NoApiAccess),
        };
        // As for a mailbox that is not connected yet: its tokens are not stored.
        let access = Arc::new(TrialAccess::new(connector.clone(), account.clone()));
        Ok(Some((mailbox, ConnectorAccount { access, ..account }, connector)))
    }
}

/// Why a watch was not ended.
#[derive(Debug)]
pub(crate) enum StopWatchError {
    Provider(ConnectorError),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for StopWatchError {
    fn from(e: anyhow::Error) -> Self {
        Self::Other(e)
    }
}

/// Returns when to renew a watch, well before it expires.
fn renew_delay(watch: &WatchState, expires_at: Timestamp, now: Timestamp, random: &dyn RandomSource) -> Duration {
    let usual = if watch.lost_at.is_some() { SILENT_RENEW_INTERVAL } else { RENEW_INTERVAL };
    let lasts = Duration::try_from(expires_at.duration_since(now)).unwrap_or_default();
    with_jitter(usual.min(lasts / 2), random).max(DEFAULT_RETRY_DELAY)
}

/// Subtracts up to a fifth, so that watches that were requested together drift apart.
fn with_jitter(duration: Duration, random: &dyn RandomSource) -> Duration {
    duration.mul_f64(1.0 - random.next_fraction() / 5.0)
}
