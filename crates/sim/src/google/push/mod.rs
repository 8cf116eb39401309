//! Watches and Pub/Sub pushes. A push says that a mailbox changed, never what changed.

mod deliver;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::faults::GoogleRoute;
use super::labels::LabelId;
use super::world::{GoogleMailbox, GoogleWorld};
use crate::mail::rng::Rng;
use crate::push_delivery::{chaos_delays_ms, delays_ms};

pub use deliver::run;

/// The lifetime of a watch that is not renewed.
pub const WATCH_LIFETIME_MS: i64 = 7 * 24 * 3_600_000;

/// The minimum time between two pushes of one user.
const MIN_PUSH_INTERVAL_MS: i64 = 1_000;

/// The push subscription: endpoint, token, rate, retries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushEndpoint {
    /// `http://` only.
    pub url: String,
    /// `None`: the URL.
    #[serde(default)]
    pub audience: Option<String>,
    #[serde(default = "pusher")]
    pub service_account_email: String,
    #[serde(default = "subscription")]
    pub subscription: String,
    /// Whether a user gets at most one push a second; more are dropped.
    #[serde(default = "yes")]
    pub rate_limit: bool,
    /// Whether each push is sent up to five times in random order, and one of five never.
    #[serde(default)]
    pub chaos: bool,
    /// The delay before the second attempt; it doubles with each further one.
    #[serde(default = "half_a_second")]
    pub retry_ms: u64,
}

fn pusher() -> String {
    "pusher@mailroom-test.iam.gserviceaccount.com".to_owned()
}

fn subscription() -> String {
    "projects/mailroom-test/subscriptions/gmail".to_owned()
}

fn yes() -> bool {
    true
}

fn half_a_second() -> u64 {
    500
}

impl PushEndpoint {
    /// Creates an endpoint with default settings; the URL is also the audience.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            audience: None,
            service_account_email: pusher(),
            subscription: subscription(),
            rate_limit: true,
            chaos: false,
            retry_ms: half_a_second(),
        }
    }
}

/// Push counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushCounts {
    /// Changes that matched a watch.
    pub published: u64,
    /// Dropped by the rate limit.
    pub rate_limited: u64,
    /// Dropped because there is no endpoint.
    pub unrouted: u64,
    /// Lost by injected faults.
    pub lost: u64,
    /// Attempts, injected duplicates included.
    pub sent: u64,
    pub acked: u64,
    /// Attempts that were answered with another status.
    pub refused: u64,
    /// Attempts without a response.
    pub failed: u64,
    /// Given up after the last attempt.
    pub abandoned: u64,
    /// Still to be sent, or waiting for their next attempt.
    pub pending: u64,
}

#[derive(Debug, Clone)]
struct Watch {
    topic: String,
    labels: Vec<LabelId>,
    is_excluding: bool,
    expires_ms: i64,
}

/// The watches of one mailbox, by project.
#[derive(Debug, Default)]
pub struct Watches {
    by_project: BTreeMap<String, Watch>,
    last_published_ms: Option<i64>,
}

/// A push to be sent, and its delay.
#[derive(Debug, Clone)]
struct PendingPush {
    body: Value,
    delay_ms: u64,
}

#[derive(Debug)]
pub struct Push {
    state: Mutex<PushState>,
    wake: Notify,
}

#[derive(Debug)]
struct PushState {
    endpoint: Option<PushEndpoint>,
    queue: VecDeque<PendingPush>,
    counts: PushCounts,
    next_message: u64,
    rng: Rng,
    /// The last push token with its purpose and the end of its reuse: signing is the most expensive part of a push.
    token: Option<(String, i64, String)>,
}

impl Push {
    pub fn new(seed: u64) -> Self {
        let state = PushState {
            endpoint: None,
            queue: VecDeque::new(),
            counts: PushCounts::default(),
            next_message: 1,
            rng: Rng::for_part(seed, 2),
            token: None,
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    pub fn set(&self, endpoint: Option<PushEndpoint>) {
        self.state().endpoint = endpoint;
    }

    pub fn endpoint(&self) -> Option<PushEndpoint> {
        self.state().endpoint.clone()
    }

    pub fn counts(&self) -> PushCounts {
        self.state().counts.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, PushState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watches {
    /// Sets or replaces the project's watch and returns its expiration.
    pub fn set(&mut self, topic: &str, labels: Vec<LabelId>, is_excluding: bool, now_ms: i64) -> i64 {
        let expires_ms = now_ms + WATCH_LIFETIME_MS;
        let watch = Watch { topic: topic.to_owned(), labels, is_excluding, expires_ms };
        self.by_project.insert(project(topic).to_owned(), watch);
        expires_ms
    }

    pub fn stop(&mut self) {
        self.by_project.clear();
    }

    /// Lists topics with the expiration of their watches.
    pub fn show(&self) -> Vec<Value> {
        self.by_project.values().map(|watch| json!({"topic": watch.topic, "expires_ms": watch.expires_ms})).collect()
    }

    fn has_matching_watch(&self, labels: &[LabelId], now_ms: i64) -> bool {
        self.by_project.values().filter(|watch| now_ms < watch.expires_ms).any(|watch| {
            let is_named = watch.labels.iter().any(|label| labels.contains(label));
            watch.labels.is_empty() || is_named != watch.is_excluding
        })
    }
}

/// Returns `P` of `projects/P/topics/T`.
pub fn project(topic: &str) -> &str {
    topic.split('/').nth(1).unwrap_or_default()
}

/// Publishes a change of a mailbox if a watch matches it.
pub fn publish_change(world: &GoogleWorld, mailbox: &GoogleMailbox, history_id: u64, labels: &[LabelId]) {
    let now_ms = world.now_ms();
    let is_limited = world.provider.push.state().endpoint.as_ref().is_none_or(|endpoint| endpoint.rate_limit);
    {
        let mut watches = mailbox.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !watches.has_matching_watch(labels, now_ms) {
            return;
        }
        if is_limited
            && watches.last_published_ms.is_some_and(|last| (last..last + MIN_PUSH_INTERVAL_MS).contains(&now_ms))
        {
            world.provider.push.state().counts.rate_limited += 1;
            return;
        }
        watches.last_published_ms = Some(now_ms);
    }
    publish(world, mailbox, history_id);
}

/// Queues a push with the mailbox's history id. A new watch gets one at once.
pub fn publish(world: &GoogleWorld, mailbox: &GoogleMailbox, history_id: u64) {
    let faults = world.faults.draw(&mailbox.address, GoogleRoute::Push);
    let address = world.person(mailbox).address;
    let mut state = world.provider.push.state();
    let state = &mut *state;
    state.counts.published += 1;
    let Some(endpoint) = &state.endpoint else {
        state.counts.unrouted += 1;
        return;
    };
    let number = state.next_message;
    state.next_message += 1;
    let data = json!({"emailAddress": address, "historyId": history_id});
    let body = json!({
        "message": {
            "data": STANDARD.encode(data.to_string()),
            "messageId": format!("{}", 10_000_000_000 + number),
            "publishTime": world.now().to_string(),
        },
        "subscription": endpoint.subscription,
    });
    let delays = if endpoint.chaos { chaos_delays_ms(&mut state.rng) } else { delays_ms(&faults) };
    state.counts.lost += u64::from(delays.is_empty());
    state.counts.pending += delays.len() as u64;
    state.queue.extend(delays.into_iter().map(|delay_ms| PendingPush { body: body.clone(), delay_ms }));
    world.provider.push.wake.notify_one();
}
