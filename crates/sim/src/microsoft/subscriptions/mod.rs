//! Subscriptions, and what is told to whom when a mailbox changes. A notification says that something changed, and little more.

mod deliver;
mod notice;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;

use super::directory::drawn_guid;
use crate::mail::rng::Rng;

pub use deliver::{run, validate};
pub use notice::{LifecycleEvent, send_lifecycle, tell};

/// Somebody who wants to know of changes.
#[derive(Debug, Clone, Serialize)]
pub struct Subscription {
    pub id: String,
    pub client: String,
    /// The mailbox's address.
    pub account: String,
    /// The id of the mailbox's directory.
    pub directory: String,
    /// As it was asked for.
    pub resource: String,
    /// One folder's messages; nothing: all.
    #[serde(skip)]
    pub folder: Option<u32>,
    /// As in `created,updated`.
    pub change_type: String,
    pub notification_url: String,
    pub lifecycle_url: Option<String>,
    pub client_state: Option<String>,
    pub expires_ms: i64,
    /// Ids of messages are those that stay.
    pub is_immutable: bool,
    /// Nothing is told until it is reauthorized.
    pub is_paused: bool,
}

impl Subscription {
    pub fn wants(&self, change: &str) -> bool {
        self.change_type.split(',').any(|wanted| wanted == change)
    }
}

/// How notifications are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// As Graph does; without it `http://` is fine.
    pub require_https: bool,
    /// Each post comes up to five times in any order, and one of five never.
    pub chaos: bool,
    /// How long until the second attempt; twice as long until the third, and so on.
    pub retry_ms: u64,
    /// The most changes in one post.
    pub batch: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { require_https: false, chaos: false, retry_ms: 500, batch: 20 }
    }
}

/// What became of notifications.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Changes that a subscription is told of.
    pub published: u64,
    /// Not told, because the subscription waits to be reauthorized.
    pub withheld: u64,
    /// Posts that were lost on purpose.
    pub lost: u64,
    /// Attempts, with those that came again on purpose.
    pub sent: u64,
    pub acked: u64,
    /// Of those, answered after more than three seconds.
    pub slow: u64,
    /// Attempts that were answered with something else.
    pub refused: u64,
    /// Attempts that were not answered.
    pub failed: u64,
    /// Given up after the last attempt.
    pub abandoned: u64,
    /// Still to be sent, or waiting for their next attempt.
    pub pending: u64,
}

/// What is to be posted where, and how long it waits before.
#[derive(Debug, Clone)]
struct Due {
    url: String,
    body: Value,
    delay_ms: u64,
}

#[derive(Debug)]
pub struct Subscriptions {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct State {
    all: BTreeMap<String, Subscription>,
    /// Ids by address, with some that are gone.
    by_account: HashMap<String, Vec<String>>,
    settings: Settings,
    queue: VecDeque<Due>,
    counts: Counts,
    rng: Rng,
}

impl State {
    /// Those that have not expired.
    fn of_account(&mut self, account: &str, now_ms: i64) -> Vec<Subscription> {
        let Some(ids) = self.by_account.get_mut(account) else { return Vec::new() };
        ids.retain(|id| self.all.get(id).is_some_and(|subscription| now_ms < subscription.expires_ms));
        ids.iter().filter_map(|id| self.all.get(id)).cloned().collect()
    }
}

impl Subscriptions {
    pub fn new(seed: u64) -> Self {
        let state = State {
            all: BTreeMap::new(),
            by_account: HashMap::new(),
            settings: Settings::default(),
            queue: VecDeque::new(),
            counts: Counts::default(),
            rng: Rng::for_part(seed, 13),
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn settings(&self) -> Settings {
        self.state().settings.clone()
    }

    pub fn set(&self, settings: Settings) {
        self.state().settings = settings;
    }

    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    pub fn guid(&self) -> String {
        drawn_guid(&mut self.state().rng)
    }

    /// Those that have not expired.
    pub fn list(&self, now_ms: i64) -> Vec<Subscription> {
        let mut state = self.state();
        state.all.retain(|_, subscription| now_ms < subscription.expires_ms);
        state.all.values().cloned().collect()
    }

    pub fn find(&self, id: &str, now_ms: i64) -> Option<Subscription> {
        self.state().all.get(id).filter(|subscription| now_ms < subscription.expires_ms).cloned()
    }

    /// Unless there is one of the same program for the same changes.
    pub fn add(&self, subscription: Subscription, now_ms: i64) -> bool {
        let mut state = self.state();
        let is_same = |other: &Subscription| {
            (&other.client, other.folder, &other.change_type)
                == (&subscription.client, subscription.folder, &subscription.change_type)
        };
        if state.of_account(&subscription.account, now_ms).iter().any(is_same) {
            return false;
        }
        state.by_account.entry(subscription.account.clone()).or_default().push(subscription.id.clone());
        state.all.insert(subscription.id.clone(), subscription);
        true
    }

    /// It lives until then, and is authorized again.
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
