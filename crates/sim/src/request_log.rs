//! The log and counters of requests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The number of requests kept in the log; all are counted.
const MAX_LOGGED_REQUESTS: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLogEntry<R> {
    /// Milliseconds since the log was created.
    pub at_ms: u64,
    pub method: String,
    pub route: R,
    /// Empty if the account is unknown.
    pub account: String,
    pub status: u16,
    /// Whether the request was a part of a batch.
    pub in_batch: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de> + Ord"))]
pub struct RequestCounts<R> {
    pub routes: BTreeMap<R, u64>,
    pub statuses: BTreeMap<u16, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de> + Ord"))]
pub struct RequestTotals<R> {
    pub all: RequestCounts<R>,
    /// By address.
    pub accounts: BTreeMap<String, RequestCounts<R>>,
}

#[derive(Debug)]
pub struct RequestLog<R> {
    began: Instant,
    state: Mutex<RequestLogState<R>>,
}

#[derive(Debug)]
struct RequestLogState<R> {
    latest: VecDeque<RequestLogEntry<R>>,
    all: RequestCounts<R>,
    accounts: HashMap<String, RequestCounts<R>>,
}

// Not derived, because `R` needs no default.
impl<R> Default for RequestLogState<R> {
    fn default() -> Self {
        Self { latest: VecDeque::new(), all: RequestCounts::default(), accounts: HashMap::new() }
    }
}

impl<R> Default for RequestCounts<R> {
    fn default() -> Self {
        Self { routes: BTreeMap::new(), statuses: BTreeMap::new() }
    }
}

impl<R> Default for RequestLog<R> {
    fn default() -> Self {
        Self { began: Instant::now(), state: Mutex::default() }
    }
}

impl<R: Ord> RequestCounts<R> {
    fn add(&mut self, route: R, status: u16) {
        *self.routes.entry(route).or_default() += 1;
        *self.statuses.entry(status).or_default() += 1;
    }
}

impl<R: Copy + Ord> RequestLog<R> {
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
        if state.latest.len() == MAX_LOGGED_REQUESTS {
            state.latest.pop_front();
        }
        let (method, account) = (method.to_owned(), account.to_owned());
        state.latest.push_back(RequestLogEntry { at_ms, method, route, account, status, in_batch });
    }

    /// Returns the logged requests, oldest first.
    pub fn latest(&self) -> Vec<RequestLogEntry<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).latest.iter().cloned().collect()
    }

    pub fn counted(&self) -> RequestTotals<R> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let accounts = state.accounts.iter().map(|(address, counts)| (address.clone(), counts.clone())).collect();
        RequestTotals { all: state.all.clone(), accounts }
    }

    pub fn clear(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = RequestLogState::default();
    }
}
