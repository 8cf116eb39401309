//! What a provider is asked for, so that it calls us: asked when a mailbox is connected, again every day, at once when
//! nothing comes any more, and no longer once the last tenant that has the account has let it go.

use std::sync::Arc;
use std::time::Duration;

use domain::connector::{Account, NoAccess, WatchWish};
use domain::{Connector, ConnectorError, MailboxId, MailboxState, Provider, SecretId, TenantId};
use jiff::Timestamp;
use jobs::Dice;
use store::TenantUnit;
use store::sql::mailboxes::Mailbox;
use store::sql::watches::{Asked, WatchState};

use crate::Engine;
use crate::access::Trial;
use crate::jobs::WatchMailbox;
use crate::sync::{Syncer, connection};

/// How often a watch is renewed. Gmail's lasts for seven days, and wants it daily.
pub(super) const DAILY: Duration = Duration::from_secs(86_400);

/// The same while nothing comes.
pub(super) const HOURLY: Duration = Duration::from_secs(3600);

/// What was refused is tried after one minute, two, four, and at last every hour. It costs a mailbox nothing but speed.
const AGAIN: jobs::Retry = jobs::Retry { retries: u32::MAX, first: Duration::from_secs(60), longest: HOURLY };

/// When somebody asks to wait and does not say for how long.
const LATER: Duration = Duration::from_secs(60);

/// The provider of a mailbox is asked as soon as may be, from the commit of this unit on.
pub(crate) fn watch_soon(
    unit: &mut TenantUnit,
    engine: &Engine,
    mailbox: MailboxId,
    provider: Provider,
) -> anyhow::Result<()> {
    if provider.pushes() {
        unit.want_watch(mailbox);
        unit.enqueue(vec![WatchMailbox::now(engine.store.clock(), mailbox)?]);
    }
    Ok(())
}

/// The same once what was wanted before is in nobody's way.
pub(crate) fn watch_at_last(unit: &mut TenantUnit, engine: &Engine, mailbox: MailboxId) -> anyhow::Result<()> {
    unit.hurry_watch(mailbox);
    unit.enqueue(vec![WatchMailbox::now(engine.store.clock(), mailbox)?]);
    Ok(())
}

/// What came of asking a provider.
#[derive(Debug)]
pub(crate) struct Renewed {
    /// To be committed.
    pub unit: TenantUnit,
    /// The credentials are refused; a look at the mailbox finds out what that means for it.
    pub is_unauthorized: bool,
}

impl Syncer {
    /// `None`: there is nothing to ask for.
    pub(crate) async fn renew_watch(
        &self,
        tenant: TenantId,
        mailbox: MailboxId,
        dice: &dyn Dice,
    ) -> anyhow::Result<Option<Renewed>> {
        let store = self.engine.store.tenant(tenant);
        // Before the call: what is wanted from then on is wanted after it.
        let Some(watch) = store.find_watch(mailbox).await? else { return Ok(None) };
        let Some(opened) = self.open(tenant, mailbox).await? else { return Ok(None) };
        // Nobody has looked yet whose mailbox its secret opens, and a subscription is that of all who have the address. The
        // first look that finds everything in order asks for it.
        if opened.mailbox.provider.subscribes() && opened.mailbox.state == MailboxState::Connecting {
            let mut unit = store.write();
            unit.record_watch(mailbox, watch.version, Asked::Later, LATER);
            return Ok(Some(Renewed { unit, is_unauthorized: false }));
        }
        if watch.lost_at.is_some() && watch.lost_at > watch.renewed_at {
            tracing::warn!(mailbox.id = %mailbox, "mail has come again and again of which no push told; its provider is asked anew to tell us");
        }
        let wish = WatchWish::plain();
        // Nothing is asked before it is waited for.
        let answer = match opened.connector.watch(&opened.account, &wish) {
            Some(_) if opened.mailbox.provider.subscribes() => Some(self.subscribe(&opened, &watch).await?),
            Some(call) => Some(self.calls.make(&opened.mailbox, call).await),
            None => None,
        };
        let now = self.engine.store.system().now().await?;
        let outcome = match &answer {
            Some(Ok(_)) => "renewed",
            Some(Err(ConnectorError::Throttled { .. } | ConnectorError::NotYet(_))) => "put_off",
            Some(Err(_)) => "failed",
            None => "off",
        };
        let provider = opened.mailbox.provider.as_str();
        metrics::counter!("mailroom_watches_total", "provider" => provider, "outcome" => outcome).increment(1);
        let mut unit = store.write();
        let mut record = |asked, again| unit.record_watch(mailbox, watch.version, asked, again);
        match &answer {
            Some(Ok(agreed)) => record(Asked::Until(agreed.expires_at), next(&watch, agreed.expires_at, now, dice)),
            None => record(Asked::Off, jittered(DAILY, dice)),
            Some(Err(ConnectorError::Throttled { retry_after })) => {
                record(Asked::Later, retry_after.unwrap_or(LATER));
            }
            Some(Err(ConnectorError::NotYet(wait))) => record(Asked::Later, *wait),
            Some(Err(e)) => {
                let reason = e.to_string();
                if watch.problem.as_ref() != Some(&reason) {
                    tracing::warn!(mailbox.id = %mailbox, "a mailbox is looked at by the clock alone, for its provider does not tell us of news: {reason}");
                }
                record(Asked::Failed(&reason), AGAIN.delay(watch.failures.min(31), dice).unwrap_or(HOURLY).max(LATER));
            }
        }
        let is_unauthorized = matches!(answer, Some(Err(ConnectorError::Unauthorized(_))));
        Ok(Some(Renewed { unit, is_unauthorized }))
    }

    /// A provider stops telling us of an account that nobody has any more. What was told to whoever has it since is put
    /// right: they are asked for anew.
    pub(crate) async fn stop_watch(&self, mailbox: Mailbox, secret: Option<SecretId>) -> Result<(), Unstopped> {
        let system = self.engine.store.system();
        let (provider, address) = (mailbox.provider, mailbox.address.clone());
        // The watch is the account's, not the tenant's.
        if system.is_connected(provider, &address).await.map_err(anyhow::Error::from)? {
            // Who stopped it and died left it to whoever has the account now.
            return Ok(system.want_watches(provider, &address).await.map_err(anyhow::Error::from)?);
        }
        let Some((mailbox, account, connector)) = self.reopen(mailbox, secret).await? else { return Ok(()) };
        if connector.unwatch(&account, None).is_none() {
            return Ok(());
        }
        let end = async |name: Option<&str>| match connector.unwatch(&account, name) {
            Some(call) => self.calls.make(&mailbox, call).await,
            None => Ok(()),
        };
        let stopped = match provider.subscribes() {
            true => self.unsubscribe(provider, &address, end).await?,
            false => end(None).await,
        };
        if stopped.is_ok() {
            let outcome = "stopped";
            metrics::counter!("mailroom_watches_total", "provider" => provider.as_str(), "outcome" => outcome)
                .increment(1);
        }
        // Also when nobody knows whether it was: somebody may have connected it while we asked.
        system.want_watches(provider, &address).await.map_err(anyhow::Error::from)?;
        stopped.map_err(Unstopped::Provider)
    }

    /// A mailbox that was let go, with the secret that it had. `None`: that is gone.
    async fn reopen(
        &self,
        mailbox: Mailbox,
        secret: Option<SecretId>,
    ) -> anyhow::Result<Option<(Arc<Mailbox>, Account, Arc<dyn Connector>)>> {
        let Some(connector) = self.connectors.get(&mailbox.provider).cloned() else { return Ok(None) };
        // It may have another by now.
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
        let account = Account {
            tenant: mailbox.tenant_id,
            mailbox: mailbox.id,
            address: mailbox.address.clone(),
            settings: connection(&mailbox.settings),
            secret,
            folders: Vec::new(),
            sweep_since: None,
            access: Arc::new(NoAccess),
        };
        // As of one that is not connected yet: nothing is stored of what is got for it.
        let access = Arc::new(Trial::new(connector.clone(), account.clone()));
        Ok(Some((mailbox, Account { access, ..account }, connector)))
    }
}

/// Why a provider was not stopped.
#[derive(Debug)]
pub(crate) enum Unstopped {
    Provider(ConnectorError),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Unstopped {
    fn from(e: anyhow::Error) -> Self {
        Self::Other(e)
    }
}

/// Well before it ends.
fn next(watch: &WatchState, expires_at: Timestamp, now: Timestamp, dice: &dyn Dice) -> Duration {
    let usual = if watch.lost_at.is_some() { HOURLY } else { DAILY };
    let lasts = Duration::try_from(expires_at.duration_since(now)).unwrap_or_default();
    jittered(usual.min(lasts / 2), dice).max(LATER)
}

/// Up to a fifth sooner, so that those that were connected together drift apart.
fn jittered(duration: Duration, dice: &dyn Dice) -> Duration {
    duration.mul_f64(1.0 - dice.fraction() / 5.0)
}
