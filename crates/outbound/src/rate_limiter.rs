//! Limits the rate of what comes in, such as requests: a token bucket for each key.
//!
//! With Redis a bucket is shared by all processes. Each leases some tokens at a time, so that few requests wait for
//! Redis; while it is unavailable, each process has a bucket of its own.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::budget::Budget;
use crate::coordination::Redis;
use crate::limits::{Limit, count_refusal};
use crate::token_bucket::TokenBucket;

/// Above this number of keys, full buckets are dropped; a new bucket is full too, so that changes nothing.
const MAX_KEYS: usize = 10_000;

/// A whole number of tokens per second, and the size of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

/// What is left of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateStatus {
    pub left: u32,
    /// Time until the whole burst is available again.
    pub reset: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateDecision {
    Allowed(RateStatus),
    /// With the time until the next token.
    Limited(RateStatus, Duration),
}

/// Token buckets by key.
#[derive(Debug)]
pub struct RateLimiter<K> {
    limit: Limit,
    redis: Option<Redis>,
    buckets: Mutex<HashMap<K, Arc<SharedBucket>>>,
}

#[derive(Debug)]
struct SharedBucket {
    state: Mutex<BucketState>,
    /// Held by the one caller that leases tokens from Redis while others wait.
    refill_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct BucketState {
    /// The bucket of this process.
    local: TokenBucket,
    /// The shared bucket: tokens leased to this process, tokens left in Redis, and until when it is empty.
    leased: u32,
    left: u32,
    empty_until: Option<Instant>,
}

impl<K: Clone + Eq + Hash + Display> RateLimiter<K> {
    pub fn new(limit: Limit, redis: Option<Redis>) -> Self {
        Self { limit, redis, buckets: Mutex::default() }
    }

    /// Takes a token.
    pub async fn take(&self, key: K, rate: Rate) -> RateDecision {
        let decision = self.decide(key, rate).await;
        if let RateDecision::Limited(..) = decision {
            count_refusal(self.limit);
        }
        decision
    }

    async fn decide(&self, key: K, rate: Rate) -> RateDecision {
        let bucket = self.bucket(&key);
        let Some(redis) = &self.redis else { return bucket.take_local(rate) };
        if let Some(decision) = bucket.take_leased(rate) {
            return decision;
        }
        let _guard = bucket.refill_lock.lock().await;
        // The caller before this one may have leased tokens, or learned that there are none.
        if let Some(decision) = bucket.take_leased(rate) {
            return decision;
        }
        let shared = format!("{}:{key}", self.limit.as_str());
        match redis.lease_tokens(&shared, rate.per_second, rate.burst, rate.lease()).await {
            Some(leased) => bucket.store_lease(rate, leased.given, leased.left, leased.wait),
            None => bucket.take_local(rate),
        }
    }

    fn bucket(&self, key: &K) -> Arc<SharedBucket> {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_KEYS && !buckets.contains_key(key) {
            // A bucket in use must stay: a second one would allow its owner twice the rate.
            buckets.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.state().is_full(now));
        }
        buckets.entry(key.clone()).or_insert_with(|| Arc::new(SharedBucket::full(now))).clone()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} a second, {} at once", self.per_second, self.burst)
    }
}

impl Rate {
    /// Returns how many tokens to lease at once: 50 ms of the rate, little enough to lose when a process stops.
    fn lease(self) -> u32 {
        (self.per_second / 20).max(1)
    }

    fn budget(self) -> Budget {
        Budget { burst: self.burst.into(), ..Budget::per_second(self.per_second.into()) }
    }

    fn status(self, left: u32) -> RateStatus {
        let missing = self.burst.saturating_sub(left);
        RateStatus { left, reset: self.budget().time_for(missing.into()) }
    }
}

impl SharedBucket {
    fn full(now: Instant) -> Self {
        let state = BucketState { local: TokenBucket::full(now), leased: 0, left: 0, empty_until: None };
        Self { state: Mutex::new(state), refill_lock: tokio::sync::Mutex::new(()) }
    }

    /// Takes a token from the bucket of this process.
    fn take_local(&self, rate: Rate) -> RateDecision {
        let (now, budget) = (Instant::now(), rate.budget());
        let mut state = self.state();
        let local = &mut state.local;
        let wait = local.wait(budget, 1.0, now);
        if wait > Duration::ZERO {
            return RateDecision::Limited(rate.status(0), wait);
        }
        local.take(budget, 1.0, now);
        RateDecision::Allowed(rate.status(local.left(budget, now)))
    }

    /// Takes a token from those leased. Returns `None` if Redis has to be asked.
    fn take_leased(&self, rate: Rate) -> Option<RateDecision> {
        let mut state = self.state();
        if state.leased > 0 {
            state.leased -= 1;
            return Some(RateDecision::Allowed(rate.status(state.leased + state.left)));
        }
        let wait = state.empty_until?.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())?;
        Some(RateDecision::Limited(rate.status(0), wait))
    }

    fn store_lease(&self, rate: Rate, given: u32, left: u32, wait: Duration) -> RateDecision {
        let mut state = self.state();
        state.left = left;
        if given == 0 {
            state.empty_until = Some(Instant::now() + wait);
            return RateDecision::Limited(rate.status(0), wait);
        }
        state.leased = given - 1;
        RateDecision::Allowed(rate.status(state.leased + left))
    }

    fn state(&self) -> MutexGuard<'_, BucketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BucketState {
    fn is_full(&self, now: Instant) -> bool {
        self.local.is_full(now) && self.empty_until.is_none_or(|until| until < now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Rate = Rate { per_second: 10, burst: 20 };
    const FAST: Rate = Rate { per_second: 100, burst: 200 };

    async fn takes(limiter: &RateLimiter<usize>, key: usize, rate: Rate) -> usize {
        let mut count = 0;
        while let RateDecision::Allowed(_) = limiter.take(key, rate).await {
            count += 1;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn key_gets_a_burst_then_its_rate() {
        let limiter = RateLimiter::new(Limit::Requests, None);

        assert_eq!(takes(&limiter, 1, SLOW).await, 20);
        assert_eq!(takes(&limiter, 2, FAST).await, 200);
        tokio::time::advance(Duration::from_millis(510)).await;
        assert_eq!(takes(&limiter, 1, SLOW).await, 5);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(takes(&limiter, 1, SLOW).await, 20, "it does not save up");
    }

    #[tokio::test(start_paused = true)]
    async fn status_tells_what_is_left_and_when_all_is_back() {
        let limiter = RateLimiter::new(Limit::Requests, None);

        let first = limiter.take(1, SLOW).await;
        assert_eq!(first, RateDecision::Allowed(RateStatus { left: 19, reset: Duration::from_millis(100) }));
        takes(&limiter, 1, SLOW).await;
        let none = RateStatus { left: 0, reset: Duration::from_secs(2) };
        assert_eq!(limiter.take(1, SLOW).await, RateDecision::Limited(none, Duration::from_millis(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_full_buckets_are_evicted() {
        let limiter = RateLimiter::new(Limit::Requests, None);
        takes(&limiter, 0, SLOW).await;
        for key in 1..=MAX_KEYS {
            limiter.take(key, FAST).await;
        }
        tokio::time::advance(Duration::from_millis(50)).await;
        limiter.take(MAX_KEYS + 1, FAST).await;

        assert!(limiter.buckets.lock().unwrap().len() < MAX_KEYS / 2);
        assert!(matches!(limiter.take(0, SLOW).await, RateDecision::Limited(..)));
    }
}
