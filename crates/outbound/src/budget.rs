//! Budgets of calls, bytes and units as token buckets, or as a [`sliding_window`](crate::sliding_window).
//!
//! A call that finds its [bucket](crate::token_bucket) empty is given a time in the future, so that waiting is fair and no
//! caller polls.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use domain::{MailboxId, Provider, SecretId, Sha256, TenantId};
use tokio::time::Instant;

use crate::sliding_window::SlidingWindow;
use crate::token_bucket::TokenBucket;

/// A rate per second and a burst, of calls, bytes or units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    pub per_second: f64,
    pub burst: f64,
    /// Set: a sliding window; what is taken comes back after this time instead of evenly.
    pub span: Option<Duration>,
}

impl Budget {
    pub fn per_second(amount: f64) -> Self {
        Self { per_second: amount, burst: amount.max(1.0), span: None }
    }

    /// Returns a budget for limits whose breach locks an account out: no 24 hours take more, however full the bucket
    /// was.
    pub fn per_day(amount: f64) -> Self {
        let burst = (amount / 10.0).max(1.0);
        Self { per_second: (amount - burst).max(1.0) / 86_400.0, burst, span: None }
    }

    /// Returns a budget of which no 60 seconds take more, however full the bucket was: the burst is subtracted from the
    /// rate.
    pub fn per_minute(amount: f64) -> Self {
        let burst = (amount / 30.0).max(1.0);
        Self { per_second: (amount - burst).max(1.0) / 60.0, burst, span: None }
    }

    /// Returns a budget of which no 600 seconds take more. Ten minutes are too long to go evenly: most mailboxes are
    /// fetched in one burst.
    pub fn per_ten_minutes(amount: f64) -> Self {
        let amount = amount.max(1.0);
        Self { per_second: amount / 600.0, burst: amount, span: Some(Duration::from_secs(600)) }
    }

    /// Returns how long an amount above the burst takes, even without other callers.
    pub fn least_wait(self, amount: f64) -> Duration {
        self.time_for(amount).saturating_sub(self.time_for(self.burst))
    }

    /// Returns the share of one of so many processes.
    pub fn share(self, of: usize) -> Self {
        let of = of.max(1) as f64;
        Self { per_second: self.per_second / of, burst: (self.burst / of).max(1.0), ..self }
    }

    pub fn time_for(self, amount: f64) -> Duration {
        if amount <= 0.0 {
            return Duration::ZERO;
        }
        // A budget of zero would mean waiting for ever; a year is as good and is finite.
        Duration::from_secs_f64((amount / self.per_second).clamp(0.0, 31_536_000.0))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { per_second, burst, span } = *self;
        match span {
            Some(span) => write!(f, "{burst:.0} in {} s", span.as_secs()),
            None if per_second >= 1.0 => write!(f, "{per_second:.0} a second, {burst:.0} at once"),
            None => write!(f, "{:.0} a day, {burst:.0} at once", per_second * 86_400.0),
        }
    }
}

/// The owner of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetOwner {
    App(Provider),
    Tenant(TenantId, Provider),
    /// The credential of a mailbox; `None`: that of our app for all mailboxes of the tenant's organisation.
    Credential(TenantId, Provider, Option<SecretId>),
    Mailbox(MailboxId),
    /// An account at a provider, whichever tenants have it: the hash of its address.
    Account(Sha256),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    Calls,
    Bytes,
    /// Quota units of a provider that gives each kind of call a price.
    Units,
}

/// What one call takes from one bucket. An amount of 0 waits until the bucket is no longer in debt.
#[derive(Debug, Clone, Copy)]
pub struct Charge {
    pub owner: BudgetOwner,
    pub measure: Measure,
    pub budget: Budget,
    pub amount: f64,
}

impl Charge {
    /// Returns the charge for an amount above the burst. It must not make any minute exceed its limit, neither one that
    /// ends with it nor one that begins with it: so the excess is waited for before, and owed after.
    pub fn smoothed(self) -> Self {
        let Self { budget, amount, measure, .. } = self;
        if measure != Measure::Units || amount <= budget.burst || budget.span.is_some() {
            return self;
        }
        let budget = Budget { burst: amount, ..budget };
        Self { budget, amount: 2.0 * amount - self.budget.burst, ..self }
    }
}

/// The key of the bucket, the same in all processes.
impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measure = match self.measure {
            Measure::Calls => "calls",
            Measure::Bytes => "bytes",
            Measure::Units => "units",
        };
        match self.owner {
            BudgetOwner::App(provider) => write!(f, "{measure}:app:{}", provider.as_str()),
            BudgetOwner::Tenant(tenant, provider) => write!(f, "{measure}:tenant:{tenant}:{}", provider.as_str()),
            BudgetOwner::Credential(tenant, provider, None) => {
                write!(f, "{measure}:organisation:{tenant}:{}", provider.as_str())
            }
            BudgetOwner::Credential(_, _, Some(secret)) => write!(f, "{measure}:secret:{secret}"),
            BudgetOwner::Mailbox(mailbox) => write!(f, "{measure}:mailbox:{mailbox}"),
            BudgetOwner::Account(account) => write!(f, "{measure}:account:{}", account.hex()),
        }
    }
}

/// When a charge may be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetWait {
    After(Duration),
    TooLong(Duration),
}

/// The token buckets of one process that are not full.
#[derive(Debug)]
pub struct TokenBuckets {
    buckets: HashMap<(BudgetOwner, Measure), TokenBucket>,
    windows: HashMap<(BudgetOwner, Measure), (Duration, SlidingWindow)>,
    began: Instant,
}

impl Default for TokenBuckets {
    fn default() -> Self {
        Self { buckets: HashMap::new(), windows: HashMap::new(), began: Instant::now() }
    }
}

impl TokenBuckets {
    /// Takes all charges or none, and returns how long to wait for them.
    pub fn take(&mut self, charges: &[Charge], now: Instant, max_wait: Duration) -> BudgetWait {
        let mut wait = Duration::ZERO;
        let mut buckets = Vec::with_capacity(charges.len());
        for charge in charges {
            let key = (charge.owner, charge.measure);
            if let Some(span) = charge.budget.span {
                let window = self.windows.get(&key).map(|(_, window)| window);
                let time = now.duration_since(self.began);
                let window_wait = window.map(|window| window.wait(time, span, charge.budget.burst, charge.amount));
                wait = wait.max(window_wait.unwrap_or_default());
                continue;
            }
            let mut bucket = self.buckets.get(&key).copied().unwrap_or_else(|| TokenBucket::full(now));
            wait = wait.max(bucket.wait(charge.budget, charge.amount, now));
            bucket.take(charge.budget, charge.amount, now);
            buckets.push((key, bucket));
        }
        if wait > max_wait {
            return BudgetWait::TooLong(wait);
        }
        self.buckets.extend(buckets.into_iter().filter(|(_, bucket)| !bucket.is_full(now)));
        let at = (now + wait).duration_since(self.began);
        for charge in charges {
            if let Some(span) = charge.budget.span {
                let (_, window) =
                    self.windows.entry((charge.owner, charge.measure)).or_insert((span, SlidingWindow::default()));
                window.take(at, span, charge.amount);
            }
        }
        BudgetWait::After(wait)
    }

    /// Drops full buckets, which are as good as absent.
    pub fn evict_full(&mut self, now: Instant) {
        self.buckets.retain(|_, bucket| !bucket.is_full(now));
        let now = now.duration_since(self.began);
        self.windows.retain(|_, (span, window)| {
            window.evict(now, *span);
            !window.is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.buckets.len() + self.windows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_WAIT: Duration = Duration::from_secs(5);

    fn charge(owner: BudgetOwner, per_second: f64, amount: f64) -> Charge {
        Charge { owner, measure: Measure::Calls, budget: Budget::per_second(per_second), amount }
    }

    fn app(per_second: f64, amount: f64) -> Charge {
        charge(BudgetOwner::App(Provider::Gmail), per_second, amount)
    }

    #[test]
    fn budget_is_shown_in_its_unit() {
        assert_eq!(Budget::per_second(150.0).to_string(), "150 a second, 150 at once");
        assert_eq!(Budget::per_day(1000.0).to_string(), "900 a day, 100 at once");
        assert_eq!(Budget::per_ten_minutes(10_000.0).to_string(), "10000 in 600 s");
    }

    #[test]
    fn calls_beyond_the_burst_wait_in_order() {
        let now = Instant::now();
        let mut buckets = TokenBuckets::default();
        let mut take = |at| buckets.take(&[app(2.0, 1.0)], at, Duration::from_secs(1));

        assert_eq!(take(now), BudgetWait::After(Duration::ZERO));
        assert_eq!(take(now), BudgetWait::After(Duration::ZERO));
        assert_eq!(take(now), BudgetWait::After(Duration::from_millis(500)));
        assert_eq!(take(now), BudgetWait::After(Duration::from_secs(1)));
        assert_eq!(take(now), BudgetWait::TooLong(Duration::from_millis(1500)));
        assert_eq!(take(now + Duration::from_millis(500)), BudgetWait::After(Duration::from_secs(1)));
    }

    #[test]
    fn refusal_by_one_bucket_takes_from_none() {
        let now = Instant::now();
        let mut buckets = TokenBuckets::default();
        let mailbox = BudgetOwner::Tenant(TenantId(uuid::Uuid::nil()), Provider::Gmail);
        let both = [app(10.0, 1.0), charge(mailbox, 0.1, 1.0)];
        assert_eq!(buckets.take(&both, now, MAX_WAIT), BudgetWait::After(Duration::ZERO));
        for _ in 0..100 {
            assert!(matches!(buckets.take(&both, now, MAX_WAIT), BudgetWait::TooLong(_)));
        }

        assert_eq!(buckets.take(&[app(10.0, 9.0)], now, MAX_WAIT), BudgetWait::After(Duration::ZERO));
    }

    #[test]
    fn debt_delays_the_next_charge() {
        let now = Instant::now();
        let mut buckets = TokenBuckets::default();
        assert_eq!(buckets.take(&[app(10.0, 0.0)], now, MAX_WAIT), BudgetWait::After(Duration::ZERO));
        buckets.take(&[app(10.0, 40.0)], now, Duration::MAX);

        assert_eq!(buckets.take(&[app(10.0, 0.0)], now, MAX_WAIT), BudgetWait::After(Duration::from_secs(3)));
        let later = now + Duration::from_secs(3);
        assert_eq!(buckets.take(&[app(10.0, 0.0)], later, MAX_WAIT), BudgetWait::After(Duration::ZERO));
    }

    #[test]
    fn daily_budget_is_never_exceeded() {
        let begin = Instant::now();
        let mut buckets = TokenBuckets::default();
        let mut taken = 0;
        for minute in 0..24 * 60 {
            let now = begin + Duration::from_secs(minute * 60);
            let charge = Charge { budget: Budget::per_day(1000.0), ..app(1.0, 1.0) };
            while buckets.take(&[charge], now, Duration::ZERO) == BudgetWait::After(Duration::ZERO) {
                taken += 1;
            }
        }
        assert!((990..=1000).contains(&taken), "{taken}");
    }

    #[test]
    fn minute_budget_is_never_exceeded() {
        let begin = Instant::now();
        let mut buckets = TokenBuckets::default();
        let budget = Budget::per_minute(600.0);
        let charge = |amount| Charge { measure: Measure::Units, budget, ..app(1.0, amount) }.smoothed();
        let mut taken = Vec::new();
        let mut wait = Duration::ZERO;
        for step in 0..600 {
            let (now, amount) =
                (begin + wait.max(Duration::from_millis(step * 300)), if step % 7 == 0 { 100.0 } else { 5.0 });
            let max_wait = budget.least_wait(amount);
            if let BudgetWait::After(more) = buckets.take(&[charge(amount)], now, max_wait) {
                taken.push((now + more, amount));
                wait = (now + more).duration_since(begin);
            }
        }
        assert!(taken.iter().any(|(_, amount)| *amount > budget.burst), "large ones pass");
        for (first, (at, _)) in taken.iter().enumerate() {
            let window =
                taken[first..].iter().take_while(|(then, _)| then.duration_since(*at) < Duration::from_secs(60));
            let sum: f64 = window.map(|(_, amount)| amount).sum();
            assert!(sum <= 600.0, "{sum} units in a minute");
        }
        let total: f64 = taken.iter().map(|(_, amount)| amount).sum();
        assert!(total > 600.0 * 2.0, "and most of it is used: {total}");
    }

    #[test]
    fn ten_minute_budget_can_be_spent_in_a_burst() {
        let mut buckets = TokenBuckets::default();
        let now = Instant::now();
        let charge =
            |amount| Charge { measure: Measure::Units, budget: Budget::per_ten_minutes(100.0), ..app(1.0, amount) };
        for _ in 0..9 {
            assert_eq!(buckets.take(&[charge(10.0)], now, MAX_WAIT), BudgetWait::After(Duration::ZERO));
        }
        let BudgetWait::TooLong(wait) = buckets.take(&[charge(10.0)], now, MAX_WAIT) else { panic!("all is taken") };
        assert!(wait > Duration::from_secs(600) && wait <= Duration::from_secs(630), "{wait:?}");
        for _ in 0..10 {
            assert_eq!(
                buckets.take(&[charge(1.0)], now, MAX_WAIT),
                BudgetWait::After(Duration::ZERO),
                "some is left for others"
            );
        }
        assert!(matches!(buckets.take(&[charge(1.0)], now, MAX_WAIT), BudgetWait::TooLong(_)));
        buckets.evict_full(now + Duration::from_secs(600));
        assert_eq!(buckets.len(), 1);
        buckets.evict_full(now + Duration::from_secs(630));
        assert_eq!(buckets.len(), 0);
    }

    #[test]
    fn zero_budget_blocks_after_the_burst() {
        let now = Instant::now();
        let mut buckets = TokenBuckets::default();
        assert_eq!(buckets.take(&[app(0.0, 0.0)], now, MAX_WAIT), BudgetWait::After(Duration::ZERO));
        assert_eq!(buckets.take(&[app(0.0, 1.0)], now, MAX_WAIT), BudgetWait::After(Duration::ZERO), "the burst");
        assert!(matches!(buckets.take(&[app(0.0, 1.0)], now, MAX_WAIT), BudgetWait::TooLong(_)));
    }

    #[test]
    fn full_buckets_are_evicted() {
        let now = Instant::now();
        let mut buckets = TokenBuckets::default();
        buckets.take(&[app(1.0, 1.0)], now, MAX_WAIT);

        buckets.evict_full(now);
        assert_eq!(buckets.len(), 1);
        buckets.evict_full(now + Duration::from_secs(1));
        assert_eq!(buckets.len(), 0);
    }
}
