//! How much one program may ask of one mailbox.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::Refusal;

/// As Outlook has them for each program and mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Calls in a window, with those that were refused; parts of batches count.
    pub requests: u64,
    pub window_seconds: i64,
    /// Requests under way; a batch is one.
    pub concurrent: u32,
    /// What is told to whoever has too many under way.
    pub retry_after: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 10_000, window_seconds: 600, concurrent: 4, retry_after: 1 }
    }
}

/// A program and a mailbox.
pub type Pair = (String, String);

#[derive(Debug, Default)]
pub struct Throttle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limits: Option<Limits>,
    window: i64,
    asked: HashMap<Pair, u64>,
    under_way: HashMap<Pair, u32>,
    /// The most that were under way at the same time, by mailbox.
    most: BTreeMap<String, u32>,
}

/// A request under way, until it is dropped.
#[derive(Debug)]
pub struct UnderWay<'a> {
    throttle: &'a Throttle,
    pair: Pair,
}

impl Throttle {
    /// Nothing: there is no limit.
    pub fn set(&self, limits: Option<Limits>) {
        let mut state = self.state();
        state.limits = limits;
        state.asked.clear();
    }

    pub fn limits(&self) -> Option<Limits> {
        self.state().limits.clone()
    }

    pub fn most_at_once(&self) -> BTreeMap<String, u32> {
        self.state().most.clone()
    }

    pub fn forget(&self) {
        self.state().most.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more is under way; the second is why it is refused, if it is one too many.
    pub fn begin(&self, pair: Pair) -> (UnderWay<'_>, Option<Refusal>) {
        let mut state = self.state();
        let state = &mut *state;
        let under_way = state.under_way.entry(pair.clone()).or_default();
        *under_way += 1;
        let most = state.most.entry(pair.1.clone()).or_default();
        *most = (*most).max(*under_way);
        let limits = state.limits.as_ref().filter(|limits| *under_way > limits.concurrent);
        let refusal = limits.map(|limits| throttled("MailboxConcurrency", limits.retry_after));
        (UnderWay { throttle: self, pair }, refusal)
    }

    /// One call, which may be one too many in this window.
    pub fn count(&self, pair: &Pair, now_ms: i64) -> Option<Refusal> {
        let mut state = self.state();
        let state = &mut *state;
        let limits = state.limits.as_ref()?;
        let (now, length) = (now_ms.div_euclid(1_000), limits.window_seconds.max(1));
        let window = now.div_euclid(length);
        if state.window != window {
            state.window = window;
            state.asked.clear();
        }
        let asked = state.asked.entry(pair.clone()).or_default();
        *asked += 1;
        let left = (window + 1) * length - now;
        (*asked > limits.requests).then(|| throttled("Requests", left.max(1).unsigned_abs()))
    }
}

fn throttled(what: &str, retry_after: u64) -> Refusal {
    let message = format!("Application is over its {what} limit.");
    Refusal { retry_after: Some(retry_after), ..Refusal::new(429, "ApplicationThrottled", message) }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.throttle.state();
        match state.under_way.get_mut(&self.pair) {
            Some(under_way) if *under_way > 1 => *under_way -= 1,
            _ => drop(state.under_way.remove(&self.pair)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Pair {
        ("c".to_owned(), "a@x.test".to_owned())
    }

    #[test]
    fn the_fifth_at_the_same_time_is_refused_and_the_next_after_one_has_ended_is_not() {
        let throttle = Throttle::default();
        throttle.set(Some(Limits::default()));
        let mut under_way: Vec<_> = (0..4).map(|_| throttle.begin(pair())).collect();
        assert!(under_way.iter().all(|(_, refusal)| refusal.is_none()));

        assert_eq!(throttle.begin(pair()).1.map(|refusal| refusal.status), Some(429));
        under_way.pop();
        assert!(throttle.begin(pair()).1.is_none());
        assert_eq!(throttle.most_at_once()["a@x.test"], 5);
    }

    #[test]
    fn calls_while_throttled_count_and_a_new_window_forgets() {
        let throttle = Throttle::default();
        throttle.set(Some(Limits { requests: 2, window_seconds: 10, ..Limits::default() }));
        let count = |now_ms| throttle.count(&pair(), now_ms).and_then(|refusal| refusal.retry_after);

        assert_eq!([count(0), count(1), count(3_000), count(9_999)], [None, None, Some(7), Some(1)]);
        assert_eq!(count(10_000), None);
    }
}
