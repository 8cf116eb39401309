//! Watches, and what is told to whom when a watched mailbox changes. A push says that something changed, never what.

mod deliver;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::faults::{Kind, Route};
use super::labels::LabelId;
use super::world::{Mailbox, World};
use crate::mail::rng::Rng;
use crate::push::chaos;

pub use deliver::run;

/// A watch ends after a week unless it is renewed.
pub const WATCH_MS: i64 = 7 * 24 * 3_600_000;

/// At most one event in so long for one user.
const APART_MS: i64 = 1_000;

/// Where pushes go, and how they are signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// `http://` only.
    pub url: String,
    /// Nothing: the URL.
    #[serde(default)]
    pub audience: Option<String>,
    #[serde(default = "pusher")]
    pub service_account_email: String,
    #[serde(default = "subscription")]
    pub subscription: String,
    /// At most one a second for one user; more are dropped.
    #[serde(default = "yes")]
    pub rate_limit: bool,
    /// Each change is told up to five times in any order, and one of five never.
    #[serde(default)]
    pub chaos: bool,
    /// How long until the second attempt; twice as long until the third, and so on.
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

impl Endpoint {
    /// As pushes are set up by default: at this URL, which is the audience too.
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

/// What became of pushes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Changes that a watch is told of.
    pub published: u64,
    /// Not told, because one was told in the same second.
    pub rate_limited: u64,
    /// Not told, because there is no endpoint.
    pub unrouted: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Attempts, with those that came again on purpose.
    pub sent: u64,
    pub acked: u64,
    /// Attempts that were answered with something else.
    pub refused: u64,
    /// Attempts that were not answered.
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

/// Of one mailbox, by project.
#[derive(Debug, Default)]
pub struct Watches {
    by_project: BTreeMap<String, Watch>,
    last_told_ms: Option<i64>,
}

/// What is to be posted, and how long it waits before.
#[derive(Debug, Clone)]
struct Due {
    body: Value,
    delay_ms: u64,
}

#[derive(Debug)]
pub struct Push {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct State {
    endpoint: Option<Endpoint>,
    queue: VecDeque<Due>,
    counts: Counts,
    next_message: u64,
    rng: Rng,
    /// What it is for, until when it is used again, and the token: signing costs more than all the rest of a push.
    token: Option<(String, i64, String)>,
}

impl Push {
    pub fn new(seed: u64) -> Self {
        let state = State {
            endpoint: None,
            queue: VecDeque::new(),
            counts: Counts::default(),
            next_message: 1,
            rng: Rng::for_part(seed, 2),
            token: None,
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    pub fn set(&self, endpoint: Option<Endpoint>) {
        self.state().endpoint = endpoint;
    }

    pub fn endpoint(&self) -> Option<Endpoint> {
        self.state().endpoint.clone()
    }

    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watches {
    /// In place of the project's watch from before. When it ends.
    pub fn set(&mut self, topic: &str, labels: Vec<LabelId>, is_excluding: bool, now_ms: i64) -> i64 {
        let expires_ms = now_ms + WATCH_MS;
        let watch = Watch { topic: topic.to_owned(), labels, is_excluding, expires_ms };
        self.by_project.insert(project(topic).to_owned(), watch);
        expires_ms
    }

    pub fn stop(&mut self) {
        self.by_project.clear();
    }

    /// Topics and when their watches end.
    pub fn show(&self) -> Vec<Value> {
        let watch = |watch: &Watch| json!({"topic": watch.topic, "expires_ms": watch.expires_ms});
        self.by_project.values().map(watch).collect()
    }

    fn concerned(&self, labels: &[LabelId], now_ms: i64) -> bool {
        self.by_project.values().filter(|watch| now_ms < watch.expires_ms).any(|watch| {
            let is_named = watch.labels.iter().any(|label| labels.contains(label));
            watch.labels.is_empty() || is_named != watch.is_excluding
        })
    }
}

/// Of `projects/P/topics/T`.
pub fn project(topic: &str) -> &str {
    topic.split('/').nth(1).unwrap_or_default()
}

/// A mailbox has changed: whoever watches it is to be told.
pub fn tell(world: &World, mailbox: &Mailbox, history_id: u64, labels: &[LabelId]) {
    let now_ms = world.now_ms();
    let is_limited = world.push.state().endpoint.as_ref().is_none_or(|endpoint| endpoint.rate_limit);
    {
        let mut watches = mailbox.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if !watches.concerned(labels, now_ms) {
            return;
        }
        if is_limited && watches.last_told_ms.is_some_and(|last| (last..last + APART_MS).contains(&now_ms)) {
            world.push.state().counts.rate_limited += 1;
            return;
        }
        watches.last_told_ms = Some(now_ms);
    }
    publish(world, mailbox, history_id);
}

/// A watch that was just set is told at once where the mailbox is.
pub fn publish(world: &World, mailbox: &Mailbox, history_id: u64) {
    let faults = world.faults.draw(&mailbox.address, Route::Push);
    let address = world.person(mailbox).address;
    let mut state = world.push.state();
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
    let delays = match endpoint.chaos {
        true => chaos(&mut state.rng),
        false => delays(&faults),
    };
    state.counts.lost += u64::from(delays.is_empty());
    state.counts.pending += delays.len() as u64;
    state.queue.extend(delays.into_iter().map(|delay_ms| Due { body: body.clone(), delay_ms }));
    world.push.wake.notify_one();
}

/// One for each time that it is sent.
fn delays(faults: &[Kind]) -> Vec<u64> {
    let (mut times, mut delay) = (1, 0);
    for fault in faults {
        match fault {
            Kind::Lost => return Vec::new(),
            Kind::Duplicated { times: more } => times += more,
            Kind::Delayed { ms } => delay = *ms,
            _ => {}
        }
    }
    (0..times).map(|_| delay).collect()
}
