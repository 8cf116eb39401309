//! Receives the notifications of Microsoft Graph, which come many at once, for mailboxes of any tenants. A notification
//! is authenticated by its clientState, which only Graph and the process that subscribed know; nothing else of it is
//! trusted, and one without it is not even looked up.
//!
//! Graph wants an answer within three seconds, and repeats a call for four hours otherwise. So what cannot be recorded
//! soon is refused, and only as much waits at once as fits into little memory.

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

use super::record::{PushMessage, record};
use super::{ClientStates, LogThrottle, PushOutcome, count};
use crate::batcher::{Batcher, MAX_BATCH_WEIGHT};
use crate::credentials::consent::constant_time_eq;
use crate::credentials::secrets::{Vault, VaultError};
use message::GraphNotification;

const PROVIDER: Provider = Provider::Outlook;

/// How long a call may take: Graph counts an answer after three seconds as none.
const RECORD_TIMEOUT: Duration = Duration::from_millis(2500);

/// Notifications that wait for the database at once, of some hundred bytes each. At a thousand per second this is four
/// times what comes within [`RECORD_TIMEOUT`].
const MAX_WAITING_NOTIFICATIONS: usize = 10_000;

/// Calls that wait at once; other requests are to be served beside them.
const MAX_WAITING_CALLS: usize = 100;

/// Why a call was not recorded, or only in part.
#[derive(Debug)]
pub enum GraphPushError {
    /// The body is not a notification of Graph.
    Malformed(&'static str),
    /// It cannot be recorded now; Graph repeats the call.
    RetryLater(&'static str),
    Store(StoreError),
}

/// Authenticates and records notifications of Graph. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GraphPushes {
    store: Store,
    client_states: ClientStates,
    record_batcher: Batcher<Vec<GraphNotification>, Vec<PushOutcome>>,
    waiting_permits: Arc<Semaphore>,
    log_throttle: Arc<LogThrottle>,
}

impl GraphPushes {
    pub fn new(store: Store, vault: Vault) -> Self {
        Self {
            store,
            client_states: ClientStates::new(vault),
            record_batcher: Batcher::with_weights(Vec::len),
            waiting_permits: Arc::new(Semaphore::new(MAX_WAITING_NOTIFICATIONS)),
            log_throttle: Arc::default(),
        }
    }

    /// Records each notification of a call; everything that follows from them is durable when this returns.
    pub async fn receive(&self, body: impl AsRef<[u8]>) -> Result<Vec<PushOutcome>, GraphPushError> {
        let notifications = message::read(body.as_ref()).map_err(|why| {
            self.log_dropped(PushOutcome::Malformed, why);
            GraphPushError::Malformed(why)
        })?;
        // The parsed form is smaller, and waits alone.
        drop(body);
        let notifications = notifications.0;
        let enough =
            u32::try_from(notifications.len().max(MAX_WAITING_NOTIFICATIONS / MAX_WAITING_CALLS)).unwrap_or(u32::MAX);
        let Ok(_permits) = self.waiting_permits.try_acquire_many(enough) else {
            return Err(self.retry_later("too many notifications wait to be recorded"));
        };
        match timeout(RECORD_TIMEOUT, self.record_each(notifications)).await {
            Ok(taken) => taken,
            Err(_) => Err(self.retry_later("the database did not answer in time")),
        }
    }

    async fn record_each(
        &self,
        notifications: Vec<Result<GraphNotification, &'static str>>,
    ) -> Result<Vec<PushOutcome>, GraphPushError> {
        let said: Vec<&str> =
            notifications.iter().flatten().map(|notification| &**notification.client_state.expose()).collect();
        let mut are_ours = self.client_states.are_ours(&said).await.map_err(|e| self.vault_error(e))?.into_iter();
        let mut good = Vec::new();
        let mut outcomes = Vec::with_capacity(notifications.len());
        for notification in notifications {
            outcomes.push(match notification {
                Ok(notification) if are_ours.next() == Some(true) => {
                    good.push(notification);
                    None
                }
                // Not worth a query.
                Ok(_) => Some(PushOutcome::Forbidden),
                Err(why) => {
                    self.log_dropped(PushOutcome::Malformed, why);
                    Some(PushOutcome::Malformed)
                }
            });
        }
        // An ordinary call is one batch.
        let parts = good
            .chunks(MAX_BATCH_WEIGHT)
            .map(|part| self.record_batcher.get(part.to_vec(), |calls| record_batch(self.store.clone(), calls)));
        let mut recorded = try_join_all(parts).await.map_err(GraphPushError::Store)?.into_iter().flatten();
        // As many were recorded as had no outcome before.
        let outcomes =
            outcomes.into_iter().map(|known| known.or_else(|| recorded.next()).unwrap_or(PushOutcome::Unknown));
        let outcomes: Vec<PushOutcome> = outcomes.collect();
        for outcome in &outcomes {
            match outcome {
                PushOutcome::Malformed => {}
                PushOutcome::Forbidden => self.log_dropped(*outcome, "clientState does not match"),
                PushOutcome::Accepted | PushOutcome::Repeated | PushOutcome::Unknown => {
                    count(PROVIDER, outcome.as_str());
                }
            }
        }
        Ok(outcomes)
    }

    fn vault_error(&self, e: VaultError) -> GraphPushError {
        match e {
            VaultError::Store(e) => GraphPushError::Store(e),
            _ => self.retry_later("the master key cannot be read"),
        }
    }

    fn log_dropped(&self, outcome: PushOutcome, why: &'static str) {
        count(PROVIDER, outcome.as_str());
        if let Some(suppressed) = self.log_throttle.allow(why) {
            tracing::warn!(provider = PROVIDER.as_str(), suppressed, error = why, "dropped push");
        }
    }

    fn retry_later(&self, why: &'static str) -> GraphPushError {
        count(PROVIDER, "put_off");
        if let Some(suppressed) = self.log_throttle.allow(why) {
            tracing::warn!(
                provider = PROVIDER.as_str(),
                suppressed,
                error = why,
                "refused push for now; the provider repeats it"
            );
        }
        GraphPushError::RetryLater(why)
    }
}

/// Records the notifications of several calls as one batch.
async fn record_batch(store: Store, calls: Vec<Vec<GraphNotification>>) -> Result<Vec<Vec<PushOutcome>>, StoreError> {
    let sizes: Vec<usize> = calls.iter().map(Vec::len).collect();
    let mut outcomes = record_known(store, calls.concat()).await?.into_iter();
    Ok(sizes.into_iter().map(|size| outcomes.by_ref().take(size).collect()).collect())
}

/// Looks up the subscriptions of notifications, and records those that are known.
async fn record_known(store: Store, notifications: Vec<GraphNotification>) -> Result<Vec<PushOutcome>, StoreError> {
    let mut names: Vec<String> = notifications.iter().map(|notification| notification.subscription.clone()).collect();
    let mut client_states: Vec<Sha256> = notifications.iter().map(GraphNotification::client_state_hash).collect();
    names.sort_unstable();
    names.dedup();
    client_states.sort_unstable();
    client_states.dedup();
    let known = SubscriptionIndex::new(store.system().list_subscriptions(PROVIDER, names, client_states).await?);
    let mut outcomes = Vec::with_capacity(notifications.len());
    let mut messages = Vec::with_capacity(notifications.len());
    for notification in notifications {
        let client_state = notification.client_state_hash();
        let GraphNotification { subscription, id, kind, .. } = notification;
        match known.find(&subscription, &client_state) {
            Ok(KnownSubscription { address, name, .. }) => {
                let subscription_name = name.is_none().then_some((client_state, subscription));
                messages.push(PushMessage { id, address: address.clone(), kind, subscription_name });
                outcomes.push(None);
            }
            Err(outcome) => outcomes.push(Some(outcome)),
        }
    }
    let recorded = if messages.is_empty() { Vec::new() } else { record(store, PROVIDER, messages).await? };
    let mut recorded = recorded.into_iter();
    // As many were recorded as had no outcome before.
    Ok(outcomes
        .into_iter()
        .map(|outcome| outcome.or_else(|| recorded.next()).unwrap_or(PushOutcome::Unknown))
        .collect())
}

/// Subscriptions by id, and by the hash of their clientState where the id is not recorded yet.
struct SubscriptionIndex {
    by_name: HashMap<String, KnownSubscription>,
    nameless: HashMap<Sha256, KnownSubscription>,
}

impl SubscriptionIndex {
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

    fn find(&self, name: &str, client_state: &Sha256) -> Result<&KnownSubscription, PushOutcome> {
        if let Some(known) = self.by_name.get(name) {
            return if constant_time_eq(&known.password.0, &client_state.0) {
                Ok(known)
            } else {
                Err(PushOutcome::Forbidden)
            };
        }
        self.nameless.get(client_state).ok_or(PushOutcome::Unknown)
    }
}
