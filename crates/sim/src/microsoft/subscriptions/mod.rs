//! Subscriptions and change notifications, which say that a message changed, and little more.

mod deliver;
mod notification;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;

use super::directory::drawn_guid;
use crate::mail::rng::Rng;

pub use deliver::{run, validate};
pub use notification::{LifecycleEvent, publish_events, send_lifecycle};

/// A subscription to changes of a mailbox.
#[derive(Debug, Clone, Serialize)]
pub struct Subscription {
    pub id: String,
    pub client: String,
    /// The mailbox's address.
    pub account: String,
    /// The id of the mailbox's directory.
    pub directory: String,
    /// The resource as requested.
    pub resource: String,
    /// The folder subscribed to. `None`: all.
    #[serde(skip)]
    pub folder: Option<u32>,
    /// As in `created,updated`.
    pub change_type: String,
    pub notification_url: String,
    pub lifecycle_url: Option<String>,
    pub client_state: Option<String>,
    pub expires_ms: i64,
    /// Whether notifications carry immutable ids.
    pub is_immutable: bool,
    /// Whether notifications are withheld until reauthorization.
    pub is_paused: bool,
}

impl Subscription {
    pub fn wants(&self, change: &str) -> bool {
        self.change_type.split(',').any(|wanted| wanted == change)
    }
}

/// The settings of notification delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotificationSettings {
    /// Whether URLs must be `https://`, as Graph requires.
    pub require_https: bool,
    /// Whether each post is sent up to five times in random order, and one of five never.
    pub chaos: bool,
    /// The delay before the second attempt; it doubles with each further one.
    pub retry_ms: u64,
    /// The maximum number of changes in one post.
    pub batch: usize,
}

impl Default for NotificationSettings {
    fn default() -> Self {
        Self { require_https: false, chaos: false, retry_ms: 500, batch: 20 }
    }
}

/// Notification counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationCounts {
    /// Changes that matched a subscription.
    pub published: u64,
    /// Changes withheld until reauthorization.
    pub withheld: u64,
    /// Posts lost by injected faults.
    pub lost: u64,
    /// Attempts, injected duplicates included.
    pub sent: u64,
    pub acked: u64,
    /// Acknowledged after more than three seconds.
    pub slow: u64,
    /// Attempts that were answered with another status.
    pub refused: u64,
    /// Attempts without a response.
    pub failed: u64,
    /// Given up after the last attempt.
    pub abandoned: u64,
    /// Still to be sent, or waiting for their next attempt.
    pub pending: u64,
}

/// A notification to be sent, and its delay.
#[derive(Debug, Clone)]
struct PendingNotification {
    url: String,
    body: Value,
    delay_ms: u64,
}

#[derive(Debug)]
pub struct Subscriptions {
    state: Mutex<SubscriptionState>,
    wake: Notify,
}

#[derive(Debug)]
struct SubscriptionState {
    all: BTreeMap<String, Subscription>,
    /// Ids by address; some may be gone.
    by_account: HashMap<String, Vec<String>>,
    settings: NotificationSettings,
    queue: VecDeque<PendingNotification>,
    counts: NotificationCounts,
    rng: Rng,
}

impl SubscriptionState {
    /// Returns the account's subscriptions that have not expired.
    fn of_account(&mut self, account: &str, now_ms: i64) -> Vec<Subscription> {
        let Some(ids) = self.by_account.get_mut(account) else { return Vec::new() };
        ids.retain(|id| self.all.get(id).is_some_and(|subscription| now_ms < subscription.expires_ms));
        ids.iter().filter_map(|id| self.all.get(id)).cloned().collect()
    }
}

impl Subscriptions {
    pub fn new(seed: u64) -> Self {
        let state = SubscriptionState {
            all: BTreeMap::new(),
            by_account: HashMap::new(),
            settings: NotificationSettings::default(),
            queue: VecDeque::new(),
            counts: NotificationCounts::default(),
            rng: Rng::for_part(seed, 13),
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, SubscriptionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn settings(&self) -> NotificationSettings {
        self.state().settings.clone()
    }

    pub fn set(&self, settings: NotificationSettings) {
        self.state().settings = settings;
    }

    pub fn counts(&self) -> NotificationCounts {
        self.state().counts.clone()
    }

    pub fn guid(&self) -> String {
        drawn_guid(&mut self.state().rng)
    }

    /// Lists subscriptions that have not expired.
    pub fn list(&self, now_ms: i64) -> Vec<Subscription> {
        let mut state = self.state();
        state.all.retain(|_, subscription| now_ms < subscription.expires_ms);
        state.all.values().cloned().collect()
    }

    pub fn find(&self, id: &str, now_ms: i64) -> Option<Subscription> {
        self.state().all.get(id).filter(|subscription| now_ms < subscription.expires_ms).cloned()
    }

    /// Adds a subscription. Returns `false` if the client has one for the same changes.
    pub fn add(&self, subscription: Subscription, now_ms: i64) -> bool {
        let mut state = self.state();
        if state.of_account(&subscription.account, now_ms).iter().any(|other| {
            (&other.client, other.folder, &other.change_type)
                == (&subscription.client, subscription.folder, &subscription.change_type)
        }) {
            return false;
        }
        state.by_account.entry(subscription.account.clone()).or_default().push(subscription.id.clone());
        state.all.insert(subscription.id.clone(), subscription);
        true
    }

    /// Extends a subscription and lifts its pause.
    pub fn renew(&self, id: &str, expires_ms: Option<i64>) -> Option<Subscription> {
        let mut state = self.state();
        let subscription = state.all.get_mut(id)?;
        subscription.expires_ms = expires_ms.unwrap_or(subscription.expires_ms);
        subscription.is_paused = false;
        Some(subscription.clone())
    }

    pub fn pause(&self, id: &str) {
        if let Some(subscription) = self.state().all.get_mut(id) {
            subscription.is_paused = true;
        }
    }

    pub fn remove(&self, id: &str) -> Option<Subscription> {
        self.state().all.remove(id)
    }
}
