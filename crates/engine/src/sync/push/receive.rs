//! Receives the pushes of one provider, for mailboxes of any tenants. A push is authenticated by the token of its call, or
//! by the clientState of its subscription; nothing else of it is trusted, and one without it is not even looked up.
//!
//! A provider may want an answer soon, and repeat the call otherwise. So what cannot be recorded by then is refused, and
//! only as much waits at once as fits into little memory.

use std::collections::HashMap;
use std::sync::Arc;

use domain::{
    Provider, PushBatch, PushEndpoint, PushNotification, PushReader, PushRefusal, PushSubject, Secret, Sha256,
};
use futures_util::future::try_join_all;
use outbound::limits::{Limit, MAX_WAITING_NOTIFICATIONS};
use outbound::permits::{Permit, PermitTable};
use store::sql::subscriptions::KnownSubscription;
use store::{Store, StoreError};
use tokio::time::timeout;

use super::record::{PushMessage, record};
use super::{ClientStates, LogThrottle, PushOutcome, count};
use crate::batcher::{Batcher, MAX_BATCH_WEIGHT};
use crate::credentials::consent::constant_time_eq;
use crate::credentials::secrets::{Vault, VaultError};

/// Calls that wait at once; other requests are to be served beside them.
const MAX_WAITING_CALLS: usize = 100;

/// Why a call was not recorded, or only in part.
#[derive(Debug)]
pub enum PushError {
    /// The body is not a push of this provider.
    Malformed(&'static str),
    /// It cannot be recorded now; the provider repeats the call.
    RetryLater(&'static str),
    Store(StoreError),
}

/// Authenticates and records the pushes of one provider. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PushReceiver {
    store: Store,
    reader: Arc<dyn PushReader>,
    client_states: ClientStates,
    record_batcher: Batcher<Vec<PushNotification>, Vec<PushOutcome>>,
    waiting_permits: PermitTable<()>,
    log_throttle: Arc<LogThrottle>,
}

impl PushReceiver {
    pub fn new(store: Store, vault: Vault, reader: Arc<dyn PushReader>) -> Self {
        Self {
            store,
            reader,
            client_states: ClientStates::new(vault),
            record_batcher: Batcher::with_weights(Vec::len),
            waiting_permits: PermitTable::new(Limit::Notifications),
            log_throttle: Arc::default(),
        }
    }

    /// Returns how calls of the provider are received.
    pub fn endpoint(&self) -> &'static PushEndpoint {
        self.reader.endpoint()
    }

    /// Verifies that a call comes from the provider. Nothing else of it is read before.
    pub async fn verify(&self, token: Option<&str>) -> Result<(), PushRefusal> {
        let verified = self.reader.verify(token, self.store.clock()).await;
        verified.inspect_err(|refused| {
            count(self.provider(), refused.as_str());
            if let Some(suppressed) = self.log_throttle.allow(refused.reason()) {
                let provider = self.provider().as_str();
                tracing::warn!(provider, suppressed, error = refused.reason(), "refused push");
            }
        })
    }

    /// Records each notification of a call; everything that follows from them is durable when this returns.
    pub async fn receive(&self, body: impl AsRef<[u8]>) -> Result<Vec<PushOutcome>, PushError> {
        let notifications = self.reader.read(body.as_ref()).map_err(|why| {
            self.log_dropped(PushOutcome::Malformed, why);
            PushError::Malformed(why)
        })?;
        // The parsed form is smaller, and waits alone.
        drop(body);
        let Some(deadline) = self.endpoint().deadline else { return self.record_each(notifications).await };
        let _permits = self.acquire_permits(notifications.len())?;
        match timeout(deadline, self.record_each(notifications)).await {
            Ok(recorded) => recorded,
            Err(_) => Err(self.retry_later("the database did not answer in time")),
        }
    }

    fn provider(&self) -> Provider {
        self.reader.provider()
    }

    fn acquire_permits(&self, notifications: usize) -> Result<Permit<()>, PushError> {
        let enough = notifications.max(MAX_WAITING_NOTIFICATIONS / MAX_WAITING_CALLS);
        let acquired = self.waiting_permits.acquire_many(&[((), MAX_WAITING_NOTIFICATIONS)], enough);
        acquired.ok_or_else(|| self.retry_later("too many notifications wait to be recorded"))
    }

    async fn record_each(&self, notifications: PushBatch) -> Result<Vec<PushOutcome>, PushError> {
        let mut are_ours = self.check_client_states(&notifications).await?.into_iter();
        let mut good = Vec::new();
        let mut outcomes = Vec::with_capacity(notifications.len());
        for notification in notifications {
            outcomes.push(match notification {
                Ok(notification) if client_state(&notification).is_none() || are_ours.next() == Some(true) => {
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
        let mut recorded = self.record_good(&good).await.map_err(PushError::Store)?.into_iter();
        // As many were recorded as had no outcome before.
        let outcomes =
            outcomes.into_iter().map(|known| known.or_else(|| recorded.next()).unwrap_or(PushOutcome::Unknown));
        let outcomes: Vec<PushOutcome> = outcomes.collect();
        for outcome in &outcomes {
            match outcome {
                PushOutcome::Malformed => {}
                PushOutcome::Forbidden => self.log_dropped(*outcome, "clientState does not match"),
                PushOutcome::Accepted | PushOutcome::Repeated | PushOutcome::Unknown => {
                    count(self.provider(), outcome.as_str());
                }
            }
        }
        Ok(outcomes)
    }

    /// Returns, for each notification with a clientState, whether that is ours.
    async fn check_client_states(
        &self,
        notifications: &[Result<PushNotification, &'static str>],
    ) -> Result<Vec<bool>, PushError> {
        let client_states: Vec<&str> =
            notifications.iter().flatten().filter_map(client_state).map(|state| &**state.expose()).collect();
        if client_states.is_empty() {
            return Ok(Vec::new());
        }
        self.client_states.are_ours(&client_states).await.map_err(|e| self.vault_error(e))
    }

    /// Records authenticated notifications; an ordinary call is one batch.
    async fn record_good(&self, notifications: &[PushNotification]) -> Result<Vec<PushOutcome>, StoreError> {
        let provider = self.provider();
        let parts = notifications.chunks(MAX_BATCH_WEIGHT).map(|part| {
            self.record_batcher.get(part.to_vec(), move |calls| record_batch(self.store.clone(), provider, calls))
        });
        Ok(try_join_all(parts).await?.concat())
    }

    fn vault_error(&self, e: VaultError) -> PushError {
        match e {
            VaultError::Store(e) => PushError::Store(e),
            _ => self.retry_later("the master key cannot be read"),
        }
    }

    fn log_dropped(&self, outcome: PushOutcome, why: &'static str) {
        let provider = self.provider();
        count(provider, outcome.as_str());
        if let Some(suppressed) = self.log_throttle.allow(why) {
            tracing::warn!(provider = provider.as_str(), suppressed, error = why, "dropped push");
        }
    }

    fn retry_later(&self, why: &'static str) -> PushError {
        let provider = self.provider();
        count(provider, "put_off");
        if let Some(suppressed) = self.log_throttle.allow(why) {
            let provider = provider.as_str();
            tracing::warn!(provider, suppressed, error = why, "refused push for now; the provider repeats it");
        }
        PushError::RetryLater(why)
    }
}

fn client_state(notification: &PushNotification) -> Option<&Secret<String>> {
    match &notification.subject {
        PushSubject::Account(_) => None,
        PushSubject::Subscription { client_state, .. } => Some(client_state),
    }
}

fn hash_of(client_state: &Secret<String>) -> Sha256 {
    Sha256::of(client_state.expose().as_bytes())
}

/// Looks up the subscriptions of several calls' notifications, and records those whose account is known, as one batch.
async fn record_batch(
    store: Store,
    provider: Provider,
    calls: Vec<Vec<PushNotification>>,
) -> Result<Vec<Vec<PushOutcome>>, StoreError> {
    let sizes: Vec<usize> = calls.iter().map(Vec::len).collect();
    let notifications = calls.concat();
    let known = SubscriptionIndex::read(&store, provider, &notifications).await?;
    let mut outcomes = Vec::with_capacity(notifications.len());
    let mut messages = Vec::with_capacity(notifications.len());
    for PushNotification { id, subject, kind } in notifications {
        match known.resolve(subject) {
            Ok((address, subscription_name)) => {
                messages.push(PushMessage { id, address, kind, subscription_name });
                outcomes.push(None);
            }
            Err(outcome) => outcomes.push(Some(outcome)),
        }
    }
    let recorded = if messages.is_empty() { Vec::new() } else { record(store, provider, messages).await? };
    let mut recorded = recorded.into_iter();
    // As many were recorded as had no outcome before.
    let mut outcomes =
        outcomes.into_iter().map(|outcome| outcome.or_else(|| recorded.next()).unwrap_or(PushOutcome::Unknown));
    Ok(sizes.into_iter().map(|size| outcomes.by_ref().take(size).collect()).collect())
}

/// Subscriptions by id, and by the hash of their clientState where the id is not recorded yet.
#[derive(Default)]
struct SubscriptionIndex {
    by_name: HashMap<String, KnownSubscription>,
    nameless: HashMap<Sha256, KnownSubscription>,
}

impl SubscriptionIndex {
    /// Reads the subscriptions that notifications name. Those that name their account need none.
    async fn read(store: &Store, provider: Provider, notifications: &[PushNotification]) -> Result<Self, StoreError> {
        let (mut names, mut client_states) = (Vec::new(), Vec::new());
        for PushNotification { subject, .. } in notifications {
            if let PushSubject::Subscription { id, client_state } = subject {
                names.push(id.clone());
                client_states.push(hash_of(client_state));
            }
        }
        if names.is_empty() {
            return Ok(Self::default());
        }
        names.sort_unstable();
        names.dedup();
        client_states.sort_unstable();
        client_states.dedup();
        Ok(Self::new(store.system().list_subscriptions(provider, names, client_states).await?))
    }

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

    /// Returns the account's address, and the id of its subscription with the hash of its clientState if the id was not
    /// recorded yet.
    fn resolve(&self, subject: PushSubject) -> Result<(String, Option<(Sha256, String)>), PushOutcome> {
        match subject {
            PushSubject::Account(address) => Ok((address, None)),
            PushSubject::Subscription { id, client_state } => {
                let hash = hash_of(&client_state);
                let KnownSubscription { address, name, .. } = self.find(&id, &hash)?;
                Ok((address.clone(), name.is_none().then_some((hash, id))))
            }
        }
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
