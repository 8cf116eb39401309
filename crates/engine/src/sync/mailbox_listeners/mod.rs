//! Listens to mailboxes whose servers report changes over an open connection (IMAP IDLE), each in one process.
//!
//! Mailboxes are shared out among processes by leases, one per mailbox. All leases of a process are renewed in one
//! statement, because there may be thousands. A process that cannot renew them stops listening by its own clock at two
//! thirds of the lease. Should two listen nevertheless, they enqueue the same sync twice, and it runs once.

mod listener;
mod sync_requests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{ConnectorAccount, NoApiAccess};
use domain::{MailboxId, Provider, TenantId, redact_for_log};
use jobs::{RandomSource, RetryPolicy};
use store::StoreError;
use store::sql::sync::MailboxKey;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::retry_policies::LISTEN_RETRY;
use crate::sync::Syncer;
use sync_requests::SyncRequest;

/// The lease of a listener. With [`LEASE_RENEW_INTERVAL`], a mailbox has a listener again within 15 s of a process's
/// death.
pub const LISTEN_LEASE: Duration = Duration::from_secs(10);

/// How often leases are renewed and shared out anew; within this time a paused mailbox loses its listener.
pub const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(3);

/// Listeners are started at this rate, so that servers are not stormed after a restart, but spread over at most this
/// time, because the listeners of a dead process must be replaced soon.
const STARTS_PER_SECOND: f64 = 200.0;
const MAX_START_SPREAD_SECONDS: f64 = 1.0;

#[derive(Debug, Clone)]
pub struct ListenSettings {
    /// The name of the lease holder, different for every process.
    pub holder: String,
    pub lease: Duration,
    pub renew_interval: Duration,
    /// How long one call listens: short enough to notice a dead connection, long enough to cost nothing.
    pub max_listen: Duration,
    /// After this time a connection listens for certain, so that a sync finds what came before.
    pub settle_delay: Duration,
    /// When listening is tried again after an error.
    pub retry: RetryPolicy,
    pub random: Arc<dyn RandomSource>,
}

impl ListenSettings {
    pub fn new(holder: &str, random: Arc<dyn RandomSource>) -> Self {
        Self {
            holder: holder.to_owned(),
            lease: LISTEN_LEASE,
            renew_interval: LEASE_RENEW_INTERVAL,
            max_listen: Duration::from_secs(300),
            settle_delay: Duration::from_secs(2),
            retry: LISTEN_RETRY,
            random,
        }
    }
}

/// Listens to this process's share of all mailboxes until `stop` completes.
pub async fn listen_to_mailboxes(syncer: &Syncer, settings: &ListenSettings, stop: impl Future<Output = ()>) {
    let providers = listening_providers(syncer);
    if providers.is_empty() {
        return stop.await;
    }
    let (requests, requested) = mpsc::unbounded_channel();
    let _enqueuing = AbortOnDrop(tokio::spawn(sync_requests::enqueue_requests(syncer.engine.clone(), requested)));
    let shared = Arc::new(ListenerContext { syncer: syncer.clone(), settings: settings.clone(), requests });
    let mut pool = ListenerPool { shared, providers, listeners: HashMap::new(), lease_until: Instant::now() };
    tokio::pin!(stop);
    loop {
        let round = async {
            let pause = pool.renew_and_share().await;
            sleep(pause).await;
        };
        tokio::select! {
            () = &mut stop => break,
            () = round => {}
        }
    }
    pool.release_all().await;
}

/// Returns the providers that support listening. A future that is not awaited does nothing, so any account will do.
fn listening_providers(syncer: &Syncer) -> Vec<Provider> {
    let clock = syncer.engine.store.clock();
    let nobody = ConnectorAccount {
        tenant: TenantId::SYSTEM,
        mailbox: MailboxId::new(clock),
        address: String::new(),
        settings: "{}".to_owned(),
        secret: None,
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoApiAccess),
    };
    let can_listen = syncer.connectors.values().filter(|connector| connector.listen(&nobody, Duration::ZERO).is_some());
    can_listen.map(|connector| connector.provider()).collect()
}

/// What all listeners of a process share.
#[derive(Debug)]
struct ListenerContext {
    syncer: Syncer,
    settings: ListenSettings,
    requests: mpsc::UnboundedSender<SyncRequest>,
}

struct ListenerPool {
    shared: Arc<ListenerContext>,
    providers: Vec<Provider>,
    listeners: HashMap<MailboxKey, Listener>,
    /// Until when our leases hold, by our own clock.
    lease_until: Instant,
}

#[derive(Debug)]
struct Listener {
    token: u64,
    task: AbortOnDrop,
}

/// A task that is aborted when this is dropped.
#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ListenerPool {
    /// Renews the leases and shares out mailboxes, and returns how long to wait until the next time.
    async fn renew_and_share(&mut self) -> Duration {
        let ListenSettings { lease, renew_interval, .. } = self.shared.settings;
        let lease_until = self.lease_until;
        let shared_out = if self.listeners.is_empty() {
            Ok(self.share_out().await)
        } else {
            timeout_at(lease_until, self.share_out()).await
        };
        match shared_out {
            Ok(Ok(())) => return renew_interval,
            Ok(Err(e)) => tracing::warn!(error = redact_for_log(&e), "listener leases not renewed"),
            Err(_) => tracing::warn!(error = "the database did not answer in time", "listener leases not renewed"),
        }
        if Instant::now() >= self.lease_until {
            self.listeners.clear();
        }
        (lease / 12).min(renew_interval) // there is little time left
    }

    async fn share_out(&mut self) -> Result<(), StoreError> {
        let ListenSettings { holder, lease, .. } = &self.shared.settings;
        let system = self.shared.syncer.engine.store.system();
        let demand = system.find_listen_demand(holder, &self.providers).await?;
        if demand.mailboxes == 0 && self.listeners.is_empty() {
            return Ok(());
        }
        // A listener that ended by itself met a fault of ours. It is started again when its lease has expired.
        self.listeners.retain(|_, listener| !listener.task.0.is_finished());
        let listeners: Vec<_> = self.listeners.iter().map(|(key, listener)| (*key, listener.token)).collect();
        let requested = Instant::now();
        let ours = system.renew_listening(holder, &listeners, *lease).await?;
        // Counted from before the request, so it ends before the lease in the database does.
        self.lease_until = requested + *lease * 2 / 3;
        let lost = self.listeners.keys().copied().filter(|(_, mailbox)| !ours.contains(mailbox)).collect();
        self.release(lost).await?;
        let share = usize::try_from(demand.mailboxes.div_ceil(demand.other_listeners + 1)).unwrap_or(usize::MAX);
        if self.listeners.len() > share + share / 10 {
            let surplus = self.listeners.keys().copied().take(self.listeners.len() - share).collect();
            self.release(surplus).await
        } else if self.listeners.len() < share {
            self.acquire(share - self.listeners.len()).await
        } else {
            Ok(())
        }
    }

    async fn acquire(&mut self, most: usize) -> Result<(), StoreError> {
        let ListenSettings { holder, lease, random, .. } = &self.shared.settings;
        let requested = Instant::now();
        let system = self.shared.syncer.engine.store.system();
        let acquired = system.acquire_listening(holder, &self.providers, most as u64, *lease).await?;
        self.lease_until = self.lease_until.min(requested + *lease * 2 / 3);
        let spread = (acquired.len() as f64 / STARTS_PER_SECOND).min(MAX_START_SPREAD_SECONDS);
        for (key, token) in acquired {
            let delay = Duration::from_secs_f64(random.next_fraction() * spread);
            let task = AbortOnDrop(tokio::spawn(listener::listen(self.shared.clone(), key, delay)));
            self.listeners.insert(key, Listener { token, task });
        }
        Ok(())
    }

    /// Stops listeners and releases their leases, so that other processes need not wait. A lease that is no longer ours
    /// is not released.
    async fn release(&mut self, keys: Vec<MailboxKey>) -> Result<(), StoreError> {
        let mut released = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(listener) = self.listeners.remove(&key) {
                released.push((key, listener.token));
                listener.end().await;
            }
        }
        let system = self.shared.syncer.engine.store.system();
        system.release_listening(&self.shared.settings.holder, &released).await
    }

    async fn release_all(&mut self) {
        let system = self.shared.syncer.engine.store.system();
        let left = async {
            self.release(self.listeners.keys().copied().collect()).await?;
            system.stop_listening(&self.shared.settings.holder).await
        };
        if let Err(e) = left.await {
            tracing::debug!(error = redact_for_log(&e), "listener leases not released; they expire by themselves");
        }
    }
}

impl Listener {
    /// Stops listening; complete when this returns.
    async fn end(mut self) {
        self.task.0.abort();
        let _ = (&mut self.task.0).await; // it was aborted
    }
}
