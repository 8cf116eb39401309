//! How many requests a second a tenant may send, by its plan: a bucket that fills evenly and holds two seconds' worth.
//!
//! With Redis the bucket is one for all processes. It is asked for some at a time, so that hardly a request waits for
//! it; while it is away, each process has a bucket of its own.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{PlanTier, TenantId};
use engine::gate::Redis;
use tokio::time::Instant;

use super::settings::Rate;

/// A bucket holds what comes in this many seconds.
const WINDOW: u32 = 2;

/// With more tenants than this, those whose bucket is full are forgotten, which changes nothing for them.
const REMEMBERED: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Rates {
    rate: Rate,
    redis: Option<Redis>,
    tenants: Mutex<HashMap<TenantId, Arc<Bucket>>>,
}

/// How it stands with a tenant, as the headers `RateLimit` and `RateLimit-Policy` say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    plan: PlanTier,
    quota: u32,
    left: u32,
    /// Until there is all of it again.
    reset: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes(Standing),
    /// With how long to wait.
    No(Standing, Duration),
}

#[derive(Debug)]
struct Bucket {
    kept: Mutex<Kept>,
    /// One asks Redis for all who wait.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Kept {
    rate: Bound,
    /// In this process: how many there were, and when.
    tokens: f64,
    at: Instant,
    /// Of the shared bucket: how many we hold, how many were left in it, and until when there are none.
    leased: u32,
    left: u32,
    empty_until: Option<Instant>,
}

impl Rates {
    pub fn new(rate: Rate, redis: Option<Redis>) -> Self {
        Self { rate, redis, tenants: Mutex::default() }
    }

    /// One request.
    pub async fn take(&self, tenant: TenantId, plan: PlanTier) -> Taken {
        let rate = Bound::new(plan, self.rate);
        let bucket = self.bucket(tenant, rate);
        let Some(redis) = &self.redis else { return bucket.take_here(rate) };
        if let Some(taken) = bucket.take_leased(rate) {
            return taken;
        }
        let _turn = bucket.asking.lock().await;
        // Whoever was before us brought some, or learned that there are none.
        if let Some(taken) = bucket.take_leased(rate) {
            return taken;
        }
        let shared = format!("requests:{tenant}");
        match redis.lease_tokens(&shared, rate.per_second, rate.quota, rate.lease()).await {
            Some(leased) => bucket.receive(rate, leased.given, leased.left, leased.wait),
            None => bucket.take_here(rate),
        }
    }

    fn bucket(&self, tenant: TenantId, rate: Bound) -> Arc<Bucket> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= REMEMBERED && !tenants.contains_key(&tenant) {
            // One that is in use must stay, or its requests would be counted twice.
            tenants.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.kept().is_full());
        }
        let bucket = tenants.entry(tenant).or_insert_with(|| Arc::new(Bucket::full(rate))).clone();
        bucket.kept().rate = rate; // its plan may have changed
        bucket
    }
}

/// The numbers of a plan.
#[derive(Debug, Clone, Copy)]
struct Bound {
    plan: PlanTier,
    per_second: u32,
    quota: u32,
}

impl Bound {
    fn new(plan: PlanTier, rate: Rate) -> Self {
        let per_second = match plan {
            PlanTier::Standard => rate.standard,
            PlanTier::Vip => rate.vip,
        };
        let per_second = u32::try_from(per_second).unwrap_or(u32::MAX / WINDOW).clamp(1, u32::MAX / WINDOW);
        Self { plan, per_second, quota: per_second * WINDOW }
    }

    /// Asked for at once: what a tenant may use in 50 ms. A process that holds that much back does no harm.
    fn lease(self) -> u32 {
        (self.per_second / 20).max(1)
    }

    fn standing(self, left: u32) -> Standing {
        let missing = self.quota.saturating_sub(left);
        let reset = Duration::from_secs_f64(f64::from(missing) / f64::from(self.per_second));
        Standing { plan: self.plan, quota: self.quota, left, reset }
    }
}

impl Bucket {
    fn full(rate: Bound) -> Self {
        let kept =
            Kept { rate, tokens: f64::from(rate.quota), at: Instant::now(), leased: 0, left: 0, empty_until: None };
        Self { kept: Mutex::new(kept), asking: tokio::sync::Mutex::new(()) }
    }

    /// Of this process alone.
    fn take_here(&self, rate: Bound) -> Taken {
        let mut kept = self.kept();
        kept.refill();
        if kept.tokens >= 1.0 {
            kept.tokens -= 1.0;
            return Taken::Yes(rate.standing(kept.tokens as u32));
        }
        let wait = Duration::from_secs_f64((1.0 - kept.tokens) / f64::from(rate.per_second));
        Taken::No(rate.standing(0), wait)
    }

    /// `None`: ask.
    fn take_leased(&self, rate: Bound) -> Option<Taken> {
        let mut kept = self.kept();
        if kept.leased > 0 {
            kept.leased -= 1;
            return Some(Taken::Yes(rate.standing(kept.leased + kept.left)));
        }
        let wait = kept.empty_until?.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())?;
        Some(Taken::No(rate.standing(0), wait))
    }

    fn receive(&self, rate: Bound, given: u32, left: u32, wait: Duration) -> Taken {
        let mut kept = self.kept();
        kept.left = left;
        if given == 0 {
            kept.empty_until = Some(Instant::now() + wait);
            return Taken::No(rate.standing(0), wait);
        }
        kept.leased = given - 1;
        Taken::Yes(rate.standing(kept.leased + left))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn refill(&mut self) {
        let now = Instant::now();
        let came = now.duration_since(self.at).as_secs_f64() * f64::from(self.rate.per_second);
        self.tokens = (self.tokens + came).min(f64::from(self.rate.quota));
        self.at = now;
    }

    fn is_full(&mut self) -> bool {
        self.refill();
        self.tokens >= f64::from(self.rate.quota) && self.empty_until.is_none_or(|until| until < Instant::now())
    }
}

impl Standing {
    /// `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers: so many in so many seconds.
    pub fn policy(&self) -> String {
        format!("\"{}\";q={};w={WINDOW}", self.plan.as_str(), self.quota)
    }
}

/// The value of `RateLimit`: how many are left, and when there are all of them again.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\";r={};t={}", self.plan.as_str(), self.left, self.reset.as_secs_f64().ceil())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SystemClock;

    const RATE: Rate = Rate { standard: 10, vip: 100 };

    async fn takes(rates: &Rates, tenant: TenantId, plan: PlanTier) -> usize {
        let mut count = 0;
        while let Taken::Yes(_) = rates.take(tenant, plan).await {
            count += 1;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn each_tenant_has_a_burst_and_then_its_rate() {
        let rates = Rates::new(RATE, None);
        let (acme, beta) = (TenantId::new(&SystemClock), TenantId::new(&SystemClock));

        assert_eq!(takes(&rates, acme, PlanTier::Standard).await, 20);
        assert_eq!(takes(&rates, beta, PlanTier::Vip).await, 200);
        tokio::time::advance(Duration::from_millis(510)).await;
        assert_eq!(takes(&rates, acme, PlanTier::Standard).await, 5);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(takes(&rates, acme, PlanTier::Standard).await, 20, "it does not save up");
    }

    #[tokio::test(start_paused = true)]
    async fn the_headers_say_what_is_left_and_when_to_come_again() {
        let rates = Rates::new(RATE, None);
        let acme = TenantId::new(&SystemClock);

        let Taken::Yes(first) = rates.take(acme, PlanTier::Standard).await else { panic!() };
        assert_eq!(
            (first.policy().as_str(), first.to_string().as_str()),
            ("\"standard\";q=20;w=2", "\"standard\";r=19;t=1")
        );
        takes(&rates, acme, PlanTier::Standard).await;
        let Taken::No(last, wait) = rates.take(acme, PlanTier::Standard).await else { panic!() };
        assert_eq!((last.to_string().as_str(), wait), ("\"standard\";r=0;t=2", Duration::from_millis(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_heard_of_is_forgotten_and_who_has_taken_all_is_not() {
        let rates = Rates::new(RATE, None);
        let greedy = TenantId::new(&SystemClock);
        takes(&rates, greedy, PlanTier::Standard).await;
        for _ in 0..REMEMBERED {
            rates.take(TenantId::new(&SystemClock), PlanTier::Vip).await;
        }
        tokio::time::advance(Duration::from_millis(50)).await;
        rates.take(TenantId::new(&SystemClock), PlanTier::Vip).await;

        assert!(rates.tenants.lock().unwrap().len() < REMEMBERED / 2);
        assert!(matches!(rates.take(greedy, PlanTier::Standard).await, Taken::No(..)));
    }
}
