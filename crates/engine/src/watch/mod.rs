//! Mailboxes whose servers tell by themselves when something happens are listened to, each by one process of all.
//!
//! Who listens to which is shared out by leases, one a mailbox. All leases of a process are renewed in one statement, for
//! there may be thousands. A process that cannot renew them stops listening by its own clock at two thirds of the lease.
//! Should two listen nevertheless, they ask for the same look at a mailbox twice, and it happens once.

mod asking;
mod listener;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{Account, NoAccess};
use domain::{MailboxId, Provider, TenantId};
use jobs::{Dice, Retry};
use store::StoreError;
use store::sql::sync::Key;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::sync::Syncer;
use asking::Ask;

/// With [`EVERY`]: a mailbox is listened to again within 15 s of the death of who did.
pub const LEASE: Duration = Duration::from_secs(10);

/// How often leases are renewed and shared out anew; within this a mailbox that is paused is left alone.
pub const EVERY: Duration = Duration::from_secs(3);

/// Over which many are begun with, lest a server is stormed when everything starts: so many a second, but not for longer
/// than this, for whoever died must be followed soon.
const BEGUN_A_SECOND: f64 = 200.0;
const LONGEST_SPREAD: f64 = 1.0;

#[derive(Debug, Clone)]
pub struct WatchSettings {
    /// Different for every process.
    pub holder: String,
    pub lease: Duration,
    pub every: Duration,
    /// How long one call listens: short enough to notice that a connection is dead, long enough to cost nothing.
    pub at_most: Duration,
    /// Who has listened for so long does listen by now, so that a look finds what came before.
    pub settled: Duration,
    /// When to try again where listening fails.
    pub retry: Retry,
    pub dice: Arc<dyn Dice>,
}

impl WatchSettings {
    pub fn new(holder: &str, dice: Arc<dyn Dice>) -> Self {
        Self {
            holder: holder.to_owned(),
            lease: LEASE,
            every: EVERY,
            at_most: Duration::from_secs(300),
            settled: Duration::from_secs(2),
            retry: Retry { retries: u32::MAX, first: Duration::from_secs(1), longest: Duration::from_secs(300) },
            dice,
        }
    }
}

/// Listens to this process's part of all mailboxes until `stop` ends.
pub async fn watch(syncer: &Syncer, settings: &WatchSettings, stop: impl Future<Output = ()>) {
    let providers = who_can_listen(syncer);
    if providers.is_empty() {
        return stop.await;
    }
    let (asks, asked) = mpsc::unbounded_channel();
    let _asking = Task(tokio::spawn(asking::ask(syncer.engine.clone(), asked)));
    let shared = Arc::new(Shared { syncer: syncer.clone(), settings: settings.clone(), asks });
    let mut watcher = Watcher { shared, providers, held: HashMap::new(), good_until: Instant::now() };
    tokio::pin!(stop);
    loop {
        let turn = async {
            let pause = watcher.turn().await;
            sleep(pause).await;
        };
        tokio::select! {
            () = &mut stop => break,
            () = turn => {}
        }
    }
    watcher.leave().await;
}

/// A call that nobody waits for does nothing, so any account will do to ask.
fn who_can_listen(syncer: &Syncer) -> Vec<Provider> {
    let clock = syncer.engine.store.clock();
    let nobody = Account {
        tenant: TenantId::SYSTEM,
        mailbox: MailboxId::new(clock),
        address: String::new(),
        settings: "{}".to_owned(),
        secret: None,
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoAccess),
    };
    let can_listen = syncer.connectors.values().filter(|connector| connector.listen(&nobody, Duration::ZERO).is_some());
    can_listen.map(|connector| connector.provider()).collect()
}

/// What all listeners of a process have in common.
#[derive(Debug)]
struct Shared {
    syncer: Syncer,
    settings: WatchSettings,
    asks: mpsc::UnboundedSender<Ask>,
}

struct Watcher {
    shared: Arc<Shared>,
    providers: Vec<Provider>,
    held: HashMap<Key, Listener>,
    /// Until when we may listen to them.
    good_until: Instant,
}

#[derive(Debug)]
struct Listener {
    token: u64,
    task: Task,
}

/// Ends with whoever holds it.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watcher {
    /// How long to wait for the next one.
    async fn turn(&mut self) -> Duration {
        let WatchSettings { lease, every, .. } = self.shared.settings;
        let good_until = self.good_until;
        let looked = match self.held.is_empty() {
            true => Ok(self.look().await),
            false => timeout_at(good_until, self.look()).await,
        };
        match looked {
            Ok(Ok(())) => return every,
            Ok(Err(e)) => tracing::warn!("cannot renew the right to listen to mailboxes: {e}"),
            Err(_) => tracing::warn!("no answer about the right to listen to mailboxes"),
        }
        if Instant::now() >= self.good_until {
            self.held.clear();
        }
        (lease / 12).min(every) // there is little time left
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let WatchSettings { holder, lease, .. } = &self.shared.settings;
        let system = self.shared.syncer.engine.store.system();
        let there = system.count_to_listen(holder, &self.providers).await?;
        if there.mailboxes == 0 && self.held.is_empty() {
            return Ok(());
        }
        // One that ended by itself met a fault of ours. When its lease has run out, it is tried again.
        self.held.retain(|_, listener| !listener.task.0.is_finished());
        let held: Vec<_> = self.held.iter().map(|(key, listener)| (*key, listener.token)).collect();
        let asked = Instant::now();
        let ours = system.renew_listening(holder, &held, *lease).await?;
        // Counted from when it was asked for, which is before it counts in the database.
        self.good_until = asked + *lease * 2 / 3;
        let lost = self.held.keys().copied().filter(|(_, mailbox)| !ours.contains(mailbox)).collect();
        self.give_back(lost).await?;
        let share = usize::try_from(there.mailboxes.div_ceil(there.others + 1)).unwrap_or(usize::MAX);
        if self.held.len() > share + share / 10 {
            let surplus = self.held.keys().copied().take(self.held.len() - share).collect();
            self.give_back(surplus).await
        } else if self.held.len() < share {
            self.take(share - self.held.len()).await
        } else {
            Ok(())
        }
    }

    async fn take(&mut self, most: usize) -> Result<(), StoreError> {
        let WatchSettings { holder, lease, dice, .. } = &self.shared.settings;
        let asked = Instant::now();
        let system = self.shared.syncer.engine.store.system();
        let taken = system.take_listening(holder, &self.providers, most as u64, *lease).await?;
        self.good_until = self.good_until.min(asked + *lease * 2 / 3);
        let spread = (taken.len() as f64 / BEGUN_A_SECOND).min(LONGEST_SPREAD);
        for (key, token) in taken {
            let delay = Duration::from_secs_f64(dice.fraction() * spread);
            let task = Task(tokio::spawn(listener::listen(self.shared.clone(), key, delay)));
            self.held.insert(key, Listener { token, task });
        }
        Ok(())
    }

    /// Whoever may listen to them need not wait until their leases run out. What is not ours any more is not given away.
    async fn give_back(&mut self, keys: Vec<Key>) -> Result<(), StoreError> {
        let mut given = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(listener) = self.held.remove(&key) {
                given.push((key, listener.token));
                listener.end().await;
            }
        }
        let system = self.shared.syncer.engine.store.system();
        system.release_listening(&self.shared.settings.holder, &given).await
    }

    async fn leave(&mut self) {
        let system = self.shared.syncer.engine.store.system();
        let left = async {
            self.give_back(self.held.keys().copied().collect()).await?;
            system.leave_listening(&self.shared.settings.holder).await
        };
        if let Err(e) = left.await {
            tracing::debug!("mailboxes are listened to elsewhere only when our leases run out: {e}");
        }
    }
}

impl Listener {
    /// It does not listen any more when this returns.
    async fn end(mut self) {
        self.task.0.abort();
        let _ = (&mut self.task.0).await; // that it was ended is no news
    }
}
