//! Who asked what.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The latest requests that are kept one by one; all are counted.
const KEPT: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<R> {
    /// Milliseconds since the world began.
    pub at_ms: u64,
    pub method: String,
    pub route: R,
    /// Empty where nobody is known yet.
    pub account: String,
    pub status: u16,
    /// Whether it was a part of a batch.
    pub in_batch: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de> + Ord"))]
pub struct Counts<R> {
    pub routes: BTreeMap<R, u64>,
    pub statuses: BTreeMap<u16, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de> + Ord"))]
pub struct Counted<R> {
    pub all: Counts<R>,
    /// By address.
    pub accounts: BTreeMap<String, Counts<R>>,
}

#[derive(Debug)]
pub struct Requests<R> {
    began: Instant,
    state: Mutex<State<R>>,
}

#[derive(Debug)]
struct State<R> {
    latest: VecDeque<Entry<R>>,
    all: Counts<R>,
    accounts: HashMap<String, Counts<R>>,
}

// Not derived: a route need have no default.
impl<R> Default for State<R> {
    fn default() -> Self {
        Self { latest: VecDeque::new(), all: Counts::default(), accounts: HashMap::new() }
    }
}

impl<R> Default for Counts<R> {
    fn default() -> Self {
        Self { routes: BTreeMap::new(), statuses: BTreeMap::new() }
    }
}

impl<R> Default for Requests<R> {
    fn default() -> Self {
        Self { began: Instant::now(), state: Mutex::default() }
    }
}

impl<R: Ord> Counts<R> {
    fn add(&mut self, route: R, status: u16) {
        *self.routes.entry(route).or_default() += 1;
        *self.statuses.entry(status).or_default() += 1;
    }
}

impl<R: Copy + Ord> Requests<R> {
    pub fn add(&self, method: &str, route: R, account: &str, status: u16, in_batch: bool) {
        let at_ms = self.began.elapsed().as_millis() as u64;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.all.add(route, status);
        if !account.is_empty() {
            match state.accounts.get_mut(account) {
                Some(counts) => counts.add(route, status),
                None => state.accounts.entry(account.to_owned()).or_default().add(route, status),
            }
        }
        if state.latest.len() == KEPT {
            state.latest.pop_front();
        }
        let (method, account) = (method.to_owned(), account.to_owned());
        state.latest.push_back(Entry { at_ms, method, route, account, status, in_batch });
    }

    /// Oldest first.
    pub fn latest(&self) -> Vec<Entry<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).latest.iter().cloned().collect()
    }

    pub fn counted(&self) -> Counted<R> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let accounts = state.accounts.iter().map(|(address, counts)| (address.clone(), counts.clone())).collect();
        Counted { all: state.all.clone(), accounts }
    }

    pub fn clear(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }
}
