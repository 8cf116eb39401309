//! Request rate limit of each tenant by its plan: a token bucket that holds two seconds' worth of requests.
//!
//! With Redis the bucket is shared by all processes. Each leases some tokens at a time, so that few requests wait for
//! Redis; while it is unavailable, each process has a bucket of its own.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{PlanTier, TenantId};
use outbound::Redis;
use tokio::time::Instant;

use super::settings::PlanRates;

/// Capacity of a bucket, in seconds of its rate.
const BURST_SECONDS: u32 = 2;

/// Above this number of tenants, full buckets are dropped; a new bucket is full too, so that changes nothing.
const MAX_TENANTS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct RateLimiter {
    rate: PlanRates,
    redis: Option<Redis>,
    tenants: Mutex<HashMap<TenantId, Arc<TokenBucket>>>,
}

/// Rate limit of a tenant as the headers `RateLimit` and `RateLimit-Policy` report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimitStatus {
    plan: PlanTier,
    quota: u32,
    left: u32,
    /// Time until the whole quota is available again.
    reset: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateDecision {
    Allowed(RateLimitStatus),
    /// With the time until the next request is allowed.
    Limited(RateLimitStatus, Duration),
}

#[derive(Debug)]
struct TokenBucket {
    state: Mutex<BucketState>,
    /// Held by the one request that leases tokens from Redis while others wait.
    refill_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct BucketState {
    rate: PlanLimit,
    /// Bucket of this process: number of tokens, and when it was computed.
    tokens: f64,
    at: Instant,
    /// Shared bucket: tokens leased to this process, tokens left in Redis, and until when it is empty.
    leased: u32,
    left: u32,
    empty_until: Option<Instant>,
}

impl RateLimiter {
    pub fn new(rate: PlanRates, redis: Option<Redis>) -> Self {
        Self { rate, redis, tenants: Mutex::default() }
    }

    /// Takes a token for one request.
    pub async fn take(&self, tenant: TenantId, plan: PlanTier) -> RateDecision {
        let rate = PlanLimit::new(plan, self.rate);
        let bucket = self.bucket(tenant, rate);
        let Some(redis) = &self.redis else { return bucket.take_local(rate) };
        if let Some(decision) = bucket.take_leased(rate) {
            return decision;
        }
        let _guard = bucket.refill_lock.lock().await;
        // The request before this one may have leased tokens, or learned that there are none.
        if let Some(decision) = bucket.take_leased(rate) {
            return decision;
        }
        let shared = format!("requests:{tenant}");
        match redis.lease_tokens(&shared, rate.per_second, rate.quota, rate.lease()).await {
            Some(leased) => bucket.store_lease(rate, leased.given, leased.left, leased.wait),
            None => bucket.take_local(rate),
        }
    }

    fn bucket(&self, tenant: TenantId, rate: PlanLimit) -> Arc<TokenBucket> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= MAX_TENANTS && !tenants.contains_key(&tenant) {
            // A bucket in use must stay: a second one would allow its tenant twice the rate.
            tenants.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.state().is_full());
        }
        let bucket = tenants.entry(tenant).or_insert_with(|| Arc::new(TokenBucket::full(rate))).clone();
        bucket.state().rate = rate; // its plan may have changed
        bucket
    }
}

/// Rate and burst of a plan.
#[derive(Debug, Clone, Copy)]
struct PlanLimit {
    plan: PlanTier,
    per_second: u32,
    quota: u32,
}

impl PlanLimit {
    fn new(plan: PlanTier, rate: PlanRates) -> Self {
        let per_second = match plan {
            PlanTier::Standard => rate.standard,
            PlanTier::Vip => rate.vip,
        };
        let per_second =
            u32::try_from(per_second).unwrap_or(u32::MAX / BURST_SECONDS).clamp(1, u32::MAX / BURST_SECONDS);
        Self { plan, per_second, quota: per_second * BURST_SECONDS }
    }

    /// Returns how many tokens to lease at once: 50 ms of the rate, little enough to lose when a process stops.
    fn lease(self) -> u32 {
        (self.per_second / 20).max(1)
    }

    fn status(self, left: u32) -> RateLimitStatus {
        let missing = self.quota.saturating_sub(left);
        let reset = Duration::from_secs_f64(f64::from(missing) / f64::from(self.per_second));
        RateLimitStatus { plan: self.plan, quota: self.quota, left, reset }
    }
}

impl TokenBucket {
    fn full(rate: PlanLimit) -> Self {
        let state = BucketState {
            rate,
            tokens: f64::from(rate.quota),
            at: Instant::now(),
            leased: 0,
            left: 0,
            empty_until: None,
        };
        Self { state: Mutex::new(state), refill_lock: tokio::sync::Mutex::new(()) }
    }

    /// Takes a token from the bucket of this process.
    fn take_local(&self, rate: PlanLimit) -> RateDecision {
        let mut state = self.state();
        state.refill();
        if state.tokens >= 1.0 {
            state.tokens -= 1.0;
            return RateDecision::Allowed(rate.status(state.tokens as u32));
        }
        let wait = Duration::from_secs_f64((1.0 - state.tokens) / f64::from(rate.per_second));
        RateDecision::Limited(rate.status(0), wait)
    }

    /// Takes a token from those leased. Returns `None` if Redis has to be asked.
    fn take_leased(&self, rate: PlanLimit) -> Option<RateDecision> {
        let mut state = self.state();
        if state.leased > 0 {
            state.leased -= 1;
            return Some(RateDecision::Allowed(rate.status(state.leased + state.left)));
        }
        let wait = state.empty_until?.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())?;
        Some(RateDecision::Limited(rate.status(0), wait))
    }

    fn store_lease(&self, rate: PlanLimit, given: u32, left: u32, wait: Duration) -> RateDecision {
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
    fn refill(&mut self) {
        let now = Instant::now();
        let added = now.duration_since(self.at).as_secs_f64() * f64::from(self.rate.per_second);
        self.tokens = (self.tokens + added).min(f64::from(self.rate.quota));
        self.at = now;
    }

    fn is_full(&mut self) -> bool {
        self.refill();
        self.tokens >= f64::from(self.rate.quota) && self.empty_until.is_none_or(|until| until < Instant::now())
    }
}

impl RateLimitStatus {
    /// Formats `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers: quota and window.
    pub fn policy(&self) -> String {
        format!("\"{}\";q={};w={BURST_SECONDS}", self.plan.as_str(), self.quota)
    }
}

/// Formats `RateLimit`: tokens left, and seconds until all are available again.
impl fmt::Display for RateLimitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\";r={};t={}", self.plan.as_str(), self.left, self.reset.as_secs_f64().ceil())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SystemClock;

    const PLAN_RATES: PlanRates = PlanRates { standard: 10, vip: 100 };

    async fn takes(limiter: &RateLimiter, tenant: TenantId, plan: PlanTier) -> usize {
        let mut count = 0;
        while let RateDecision::Allowed(_) = limiter.take(tenant, plan).await {
            count += 1;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn tenant_gets_a_burst_then_its_rate() {
        let limiter = RateLimiter::new(PLAN_RATES, None);
        let (acme, beta) = (TenantId::new(&SystemClock), TenantId::new(&SystemClock));

        assert_eq!(takes(&limiter, acme, PlanTier::Standard).await, 20);
        assert_eq!(takes(&limiter, beta, PlanTier::Vip).await, 200);
        tokio::time::advance(Duration::from_millis(510)).await;
        assert_eq!(takes(&limiter, acme, PlanTier::Standard).await, 5);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(takes(&limiter, acme, PlanTier::Standard).await, 20, "it does not save up");
    }

    #[tokio::test(start_paused = true)]
    async fn headers_report_remaining_quota_and_reset() {
        let limiter = RateLimiter::new(PLAN_RATES, None);
        let acme = TenantId::new(&SystemClock);

        let RateDecision::Allowed(first) = limiter.take(acme, PlanTier::Standard).await else { panic!() };
        assert_eq!(
            (first.policy().as_str(), first.to_string().as_str()),
            ("\"standard\";q=20;w=2", "\"standard\";r=19;t=1")
        );
        takes(&limiter, acme, PlanTier::Standard).await;
        let RateDecision::Limited(last, wait) = limiter.take(acme, PlanTier::Standard).await else { panic!() };
        assert_eq!((last.to_string().as_str(), wait), ("\"standard\";r=0;t=2", Duration::from_millis(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_full_buckets_are_evicted() {
        let limiter = RateLimiter::new(PLAN_RATES, None);
        let greedy = TenantId::new(&SystemClock);
        takes(&limiter, greedy, PlanTier::Standard).await;
        for _ in 0..MAX_TENANTS {
            limiter.take(TenantId::new(&SystemClock), PlanTier::Vip).await;
        }
        tokio::time::advance(Duration::from_millis(50)).await;
        limiter.take(TenantId::new(&SystemClock), PlanTier::Vip).await;

        assert!(limiter.tenants.lock().unwrap().len() < MAX_TENANTS / 2);
        assert!(matches!(limiter.take(greedy, PlanTier::Standard).await, RateDecision::Limited(..)));
    }
}
