//! Those of Microsoft Graph, which come many at once, for mailboxes of any tenants. Who sends an item is known by what only
//! Graph and whoever subscribed know; of what comes, nothing else is believed, and what does not say it is not even looked
//! up.
//!
//! Graph wants an answer within three seconds, and calls again for four hours when it gets none that it likes. So what
//! cannot be recorded soon is refused, and as much waits at once as fits into little memory.

mod message;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::{Provider, Sha256};
use futures_util::future::try_join_all;
use store::sql::subscriptions::KnownSubscription;
use store::{Store, StoreError};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::record::{Told, record};
use super::{Outcome, Passwords, Seldom, count};
use crate::consent::is_same;
use crate::secrets::{Vault, VaultError};
use crate::together::{MOST, Together};
use message::Item;

const PROVIDER: Provider = Provider::Outlook;

/// Graph counts an answer after three seconds as none.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Items that wait for the database at once; each is some hundred bytes. With a thousand in a second, these are as many as
/// come while the patience lasts, four times over.
const ROOM: usize = 10_000;

/// Calls that wait at once; others are to be answered beside them.
const MOST_CALLS: usize = 100;

/// Why nothing of a call, or not all of it, was taken.
#[derive(Debug)]
pub enum NotTaken {
    /// It is nothing of Graph's.
    Malformed(&'static str),
    /// Not now: it is to come again.
    Later(&'static str),
    Store(StoreError),
}

/// Takes pushes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GraphPushes {
    store: Store,
    passwords: Passwords,
    recording: Together<Vec<Item>, Vec<Outcome>>,
    room: Arc<Semaphore>,
    told: Arc<Seldom>,
}

impl GraphPushes {
    pub fn new(store: Store, vault: Vault) -> Self {
        Self {
            store,
            passwords: Passwords::new(vault),
            recording: Together::weighing(Vec::len),
            room: Arc::new(Semaphore::new(ROOM)),
            told: Arc::default(),
        }
    }

    /// Records what is in it, item by item; everything that follows is durable when this returns.
    pub async fn take(&self, body: impl AsRef<[u8]>) -> Result<Vec<Outcome>, NotTaken> {
        let items = message::read(body.as_ref()).map_err(|why| {
            self.tell(Outcome::Malformed, why);
            NotTaken::Malformed(why)
        })?;
        // What is read of it is smaller, and waits alone.
        drop(body);
        let items = items.0;
        let enough = u32::try_from(items.len().max(ROOM / MOST_CALLS)).unwrap_or(u32::MAX);
        let Ok(_room) = self.room.try_acquire_many(enough) else {
            return Err(self.later("too much waits to be recorded"));
        };
        match timeout(PATIENCE, self.take_each(items)).await {
            Ok(taken) => taken,
            Err(_) => Err(self.later("what is stored cannot be reached in time")),
        }
    }

    async fn take_each(&self, items: Vec<Result<Item, &'static str>>) -> Result<Vec<Outcome>, NotTaken> {
        let said: Vec<&str> = items.iter().flatten().map(|item| &**item.password.expose()).collect();
        let mut are_ours = self.passwords.are_ours(&said).await.map_err(|e| self.closed(e))?.into_iter();
        let mut good = Vec::new();
        let mut outcomes = Vec::with_capacity(items.len());
        for item in items {
            outcomes.push(match item {
                Ok(item) if are_ours.next() == Some(true) => {
                    good.push(item);
                    None
                }
                // It is not worth a look at the database.
                Ok(_) => Some(Outcome::Forbidden),
                Err(why) => {
                    self.tell(Outcome::Malformed, why);
                    Some(Outcome::Malformed)
                }
            });
        }
        // Of a usual call all is recorded at once.
        let parts = good
            .chunks(MOST)
            .map(|part| self.recording.ask(part.to_vec(), |calls| recognise_all(self.store.clone(), calls)));
        let mut recorded = try_join_all(parts).await.map_err(NotTaken::Store)?.into_iter().flatten();
        // As many were recorded as had no outcome before.
        let outcome = |known: Option<Outcome>| known.or_else(|| recorded.next()).unwrap_or(Outcome::Unknown);
        let outcomes: Vec<Outcome> = outcomes.into_iter().map(outcome).collect();
        for outcome in &outcomes {
            match outcome {
                Outcome::Malformed => {}
                Outcome::Forbidden => self.tell(*outcome, "it does not say what was agreed upon (clientState)"),
                Outcome::Accepted | Outcome::Repeated | Outcome::Unknown => count(PROVIDER, outcome.as_str()),
            }
        }
        Ok(outcomes)
    }

    fn closed(&self, e: VaultError) -> NotTaken {
        match e {
            VaultError::Store(e) => NotTaken::Store(e),
            _ => self.later("the master key cannot be read"),
        }
    }

    fn tell(&self, outcome: Outcome, why: &'static str) {
        count(PROVIDER, outcome.as_str());
        if let Some(since) = self.told.may_tell(why) {
            tracing::warn!(provider = PROVIDER.as_str(), since, "a push is let go: {why}");
        }
    }

    fn later(&self, why: &'static str) -> NotTaken {
        count(PROVIDER, "put_off");
        if let Some(since) = self.told.may_tell(why) {
            tracing::warn!(provider = PROVIDER.as_str(), since, "pushes are refused, and come again: {why}");
        }
        NotTaken::Later(why)
    }
}

/// What several calls brought, together.
async fn recognise_all(store: Store, calls: Vec<Vec<Item>>) -> Result<Vec<Vec<Outcome>>, StoreError> {
    let sizes: Vec<usize> = calls.iter().map(Vec::len).collect();
    let mut outcomes = recognise(store, calls.concat()).await?.into_iter();
    Ok(sizes.into_iter().map(|size| outcomes.by_ref().take(size).collect()).collect())
}

/// Whose accounts items are of; those that are somebody's are recorded.
async fn recognise(store: Store, items: Vec<Item>) -> Result<Vec<Outcome>, StoreError> {
    let mut names: Vec<String> = items.iter().map(|item| item.subscription.clone()).collect();
    let hash = |item: &Item| Sha256::of(item.password.expose().as_bytes());
    let mut passwords: Vec<Sha256> = items.iter().map(hash).collect();
    names.sort_unstable();
    names.dedup();
    passwords.sort_unstable();
    passwords.dedup();
    let known = Known::new(store.system().list_subscriptions(PROVIDER, names, passwords).await?);
    let mut outcomes = Vec::with_capacity(items.len());
    let mut told = Vec::with_capacity(items.len());
    for item in items {
        let password = hash(&item);
        let Item { subscription, message, about, .. } = item;
        match known.find(&subscription, &password) {
            Ok(KnownSubscription { address, name, .. }) => {
                let names = name.is_none().then_some((password, subscription));
                told.push(Told { message, address: address.clone(), about, names });
                outcomes.push(None);
            }
            Err(outcome) => outcomes.push(Some(outcome)),
        }
    }
    let mut recorded = match told.is_empty() {
        true => Vec::new(),
        false => record(store, PROVIDER, told).await?,
    }
    .into_iter();
    // As many were recorded as had no outcome before.
    Ok(outcomes.into_iter().map(|outcome| outcome.or_else(|| recorded.next()).unwrap_or(Outcome::Unknown)).collect())
}

/// Subscriptions, by what they are called and by what is said for those whose name nobody knows yet.
struct Known {
    by_name: HashMap<String, KnownSubscription>,
    nameless: HashMap<Sha256, KnownSubscription>,
}

impl Known {
    fn new(known: Vec<KnownSubscription>) -> Self {
        let (mut by_name, mut nameless) = (HashMap::new(), HashMap::new());
        for known in known {
            match known.name.clone() {
                Some(name) => drop(by_name.insert(name, known)),
                None => drop(nameless.insert(known.password, known)),
            }
        }
        Self { by_name, nameless }
    }

    fn find(&self, name: &str, password: &Sha256) -> Result<&KnownSubscription, Outcome> {
        if let Some(known) = self.by_name.get(name) {
            return if is_same(&known.password.0, &password.0) { Ok(known) } else { Err(Outcome::Forbidden) };
        }
        self.nameless.get(password).ok_or(Outcome::Unknown)
    }
}
