//! All mailboxes of one server, each behind a lock of its own.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::account::Account;
use super::super::faults::{Fault, Faults, Route};
use super::super::letters::Letters;
use super::super::truth::Truth;
use crate::mail::rng::Rng;

/// Where the time of new mail comes from.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

pub struct World {
    seed: u64,
    pub(super) letters: Letters,
    now: Now,
    mailboxes: RwLock<Mailboxes>,
    pub(super) faults: Faults,
    pub(super) latency_ms: AtomicU64,
    pub(super) counts: Counts,
    rate: Mutex<f64>,
    rng: Mutex<Rng>,
}

#[derive(Default)]
struct Mailboxes {
    by_address: HashMap<String, Arc<Mailbox>>,
    in_order: Vec<Arc<Mailbox>>,
}

pub(super) struct Mailbox {
    pub address: String,
    token: Mutex<String>,
    account: Mutex<Account>,
    pub counts: Counts,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
}

/// An account to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    pub address: String,
    pub token: String,
    #[serde(default)]
    pub messages: usize,
    /// Nothing: from the world's seed and the address.
    pub seed: Option<u64>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl World {
    /// `letters`: how many different letters its mail is made of.
    pub fn new(seed: u64, letters: usize, now: Now) -> Self {
        Self {
            seed,
            letters: Letters::new(seed, letters),
            now,
            mailboxes: RwLock::default(),
            faults: Faults::new(seed),
            latency_ms: AtomicU64::new(0),
            counts: Counts::default(),
            rate: Mutex::new(0.0),
            rng: Mutex::new(Rng::new(seed)),
        }
    }

    /// Whether there was none of this address yet.
    pub fn create(&self, new: &NewAccount) -> bool {
        let address = new.address.to_lowercase();
        let own_seed = address.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let mut account = Account::new(Rng::new(new.seed.unwrap_or(own_seed)).next_u64());
        account.fill(new.messages, &self.letters, self.now());
        let mailbox = Arc::new(Mailbox {
            address: address.clone(),
            token: Mutex::new(new.token.clone()),
            account: Mutex::new(account),
            counts: Counts::default(),
            in_flight: AtomicU64::new(0),
            most_in_flight: AtomicU64::new(0),
        });
        let mut mailboxes = self.mailboxes.write().unwrap_or_else(PoisonError::into_inner);
        if mailboxes.by_address.contains_key(&address) {
            return false;
        }
        mailboxes.in_order.push(Arc::clone(&mailbox));
        mailboxes.by_address.insert(address, mailbox);
        true
    }

    /// `box1@scripted.example` and so on, with tokens `token-1` and so on. Those that are there stay as they are.
    pub fn create_many(&self, count: usize, messages: usize) -> usize {
        let new = |number| NewAccount {
            address: format!("box{number}@scripted.example"),
            token: format!("token-{number}"),
            messages,
            seed: None,
        };
        (1..=count).filter(|number| self.create(&new(*number))).count()
    }

    /// Gives the account to look at or to change.
    pub fn with<T>(&self, address: &str, look: impl FnOnce(&mut Account, &Letters) -> T) -> Option<T> {
        let mailbox = self.find(address)?;
        Some(look(&mut mailbox.account(), &self.letters))
    }

    pub fn truth(&self, address: &str) -> Option<Truth> {
        Some(self.find(address)?.account().truth())
    }

    /// Random changes to one mailbox.
    pub fn step(&self, address: &str, count: usize) -> bool {
        let now = self.now();
        let Some(mailbox) = self.find(address) else { return false };
        let mut account = mailbox.account();
        (0..count).for_each(|_| account.step(&self.letters, now));
        true
    }

    /// Random changes to mailboxes by chance.
    pub fn step_any(&self, count: usize) {
        let now = self.now();
        for _ in 0..count {
            let mailbox = {
                let mailboxes = self.mailboxes.read().unwrap_or_else(PoisonError::into_inner);
                if mailboxes.in_order.is_empty() {
                    return;
                }
                let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(rng.pick(&mailboxes.in_order))
            };
            mailbox.account().step(&self.letters, now);
        }
    }

    pub fn add_fault(&self, fault: Fault) {
        self.faults.add(fault);
    }

    pub fn clear_faults(&self) {
        self.faults.clear();
    }

    /// How long every answer of the provider takes at least.
    pub fn set_latency_ms(&self, ms: u64) {
        self.latency_ms.store(ms, Ordering::Relaxed);
    }

    /// Random changes each second, over all mailboxes, from now on.
    pub fn set_rate(&self, per_second: f64) {
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner) = per_second.clamp(0.0, 100_000.0);
    }

    pub fn rate(&self) -> f64 {
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_token(&self, address: &str, token: String) -> bool {
        let Some(mailbox) = self.find(address) else { return false };
        *mailbox.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
        true
    }

    /// To the millisecond, as providers tell it.
    pub(super) fn now(&self) -> Timestamp {
        let now = (self.now)();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    pub(super) fn find(&self, address: &str) -> Option<Arc<Mailbox>> {
        let mailboxes = self.mailboxes.read().unwrap_or_else(PoisonError::into_inner);
        let found = mailboxes.by_address.get(address);
        found.or_else(|| mailboxes.by_address.get(&address.to_lowercase())).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Mailbox>> {
        self.mailboxes.read().unwrap_or_else(PoisonError::into_inner).in_order.clone()
    }
}

impl Mailbox {
    pub fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lets_in(&self, token: Option<&str>) -> bool {
        token == Some(self.token.lock().unwrap_or_else(PoisonError::into_inner).as_str())
    }

    pub fn token(&self) -> String {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a request until the guard goes.
    pub fn enter(self: &Arc<Self>) -> InFlight {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    pub fn requests(&self) -> Value {
        let mut requests = self.counts.as_map();
        requests.insert("most_in_flight".to_owned(), json!(self.most_in_flight.load(Ordering::Relaxed)));
        Value::Object(requests)
    }

    pub fn forget_requests(&self) {
        self.counts.reset();
        self.most_in_flight.store(0, Ordering::Relaxed);
    }
}

pub(super) struct InFlight(Arc<Mailbox>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests by route.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; Route::ALL.len()]);

impl Counts {
    pub fn count(&self, route: Route) {
        self.0[route as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn as_map(&self) -> Map<String, Value> {
        let counts: BTreeMap<&str, u64> = Route::ALL.map(|route| (route.as_str(), self.get(route))).into();
        counts.into_iter().map(|(route, count)| (route.to_owned(), json!(count))).collect()
    }

    pub fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    fn get(&self, route: Route) -> u64 {
        self.0[route as usize].load(Ordering::Relaxed)
    }
}
