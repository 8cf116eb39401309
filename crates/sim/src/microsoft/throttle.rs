//! Throttling limits per client and mailbox.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::GraphError;

/// Outlook's limits for each client and mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutlookLimits {
    /// Requests per window, refused ones and parts of batches included.
    pub requests: u64,
    pub window_seconds: i64,
    /// Concurrent requests; a batch counts as one.
    pub concurrent: u32,
    /// The Retry-After of a request over the concurrency limit, in seconds.
    pub retry_after: u64,
}

impl Default for OutlookLimits {
    fn default() -> Self {
        Self { requests: 10_000, window_seconds: 600, concurrent: 4, retry_after: 1 }
    }
}

/// A client and a mailbox.
pub type ThrottleKey = (String, String);

#[derive(Debug, Default)]
pub struct Throttle(Mutex<ThrottleState>);

#[derive(Debug, Default)]
struct ThrottleState {
    limits: Option<OutlookLimits>,
    window: i64,
    requests: HashMap<ThrottleKey, u64>,
    under_way: HashMap<ThrottleKey, u32>,
    /// The highest concurrency seen, by mailbox.
    most: BTreeMap<String, u32>,
}

/// Counts a request as running until dropped.
#[derive(Debug)]
pub struct ConcurrencyPermit<'a> {
    throttle: &'a Throttle,
    key: ThrottleKey,
}

impl Throttle {
    /// Sets the limits. `None`: no limit.
    pub fn set(&self, limits: Option<OutlookLimits>) {
        let mut state = self.state();
        state.limits = limits;
        state.requests.clear();
    }

    pub fn limits(&self) -> Option<OutlookLimits> {
        self.state().limits.clone()
    }

    pub fn most_at_once(&self) -> BTreeMap<String, u32> {
        self.state().most.clone()
    }

    pub fn clear_peaks(&self) {
        self.state().most.clear();
    }

    fn state(&self) -> MutexGuard<'_, ThrottleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request as running. The second value is the error if it is over the concurrency limit.
    pub fn begin(&self, key: ThrottleKey) -> (ConcurrencyPermit<'_>, Option<GraphError>) {
        let mut state = self.state();
        let state = &mut *state;
        let under_way = state.under_way.entry(key.clone()).or_default();
        *under_way += 1;
        let most = state.most.entry(key.1.clone()).or_default();
        *most = (*most).max(*under_way);
        let limits = state.limits.as_ref().filter(|limits| *under_way > limits.concurrent);
        let refusal = limits.map(|limits| throttled("MailboxConcurrency", limits.retry_after));
        (ConcurrencyPermit { throttle: self, key }, refusal)
    }

    /// Counts a request. Returns the error if it is over the window's limit.
    pub fn count(&self, key: &ThrottleKey, now_ms: i64) -> Option<GraphError> {
        let mut state = self.state();
        let state = &mut *state;
        let limits = state.limits.as_ref()?;
        let (now, length) = (now_ms.div_euclid(1_000), limits.window_seconds.max(1));
        let window = now.div_euclid(length);
        if state.window != window {
            state.window = window;
            state.requests.clear();
        }
        let requests = state.requests.entry(key.clone()).or_default();
        *requests += 1;
        let left = (window + 1) * length - now;
        (*requests > limits.requests).then(|| throttled("Requests", left.max(1).unsigned_abs()))
    }
}

fn throttled(what: &str, retry_after: u64) -> GraphError {
    let message = format!("Application is over its {what} limit.");
    GraphError { retry_after: Some(retry_after), ..GraphError::new(429, "ApplicationThrottled", message) }
}

impl Drop for ConcurrencyPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.throttle.state();
        match state.under_way.get_mut(&self.key) {
            Some(under_way) if *under_way > 1 => *under_way -= 1,
            _ => drop(state.under_way.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ThrottleKey {
        ("c".to_owned(), "a@x.test".to_owned())
    }

    #[test]
    fn fifth_concurrent_request_is_refused() {
        let throttle = Throttle::default();
        throttle.set(Some(OutlookLimits::default()));
        let mut under_way: Vec<_> = (0..4).map(|_| throttle.begin(key())).collect();
        assert!(under_way.iter().all(|(_, refusal)| refusal.is_none()));

        assert_eq!(throttle.begin(key()).1.map(|refusal| refusal.status), Some(429));
        under_way.pop();
        assert!(throttle.begin(key()).1.is_none());
        assert_eq!(throttle.most_at_once()["a@x.test"], 5);
    }

    #[test]
    fn throttled_requests_count_until_the_next_window() {
        let throttle = Throttle::default();
        throttle.set(Some(OutlookLimits { requests: 2, window_seconds: 10, ..OutlookLimits::default() }));
        let count = |now_ms| throttle.count(&key(), now_ms).and_then(|refusal| refusal.retry_after);

        assert_eq!([count(0), count(1), count(3_000), count(9_999)], [None, None, Some(7), Some(1)]);
        assert_eq!(count(10_000), None);
    }
}
