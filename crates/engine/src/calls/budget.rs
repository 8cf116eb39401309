//! How much may be asked of a provider, as buckets that fill evenly, or as what was taken in the last while (`window`).
//!
//! A bucket is one instant: when it would be full again. Whoever comes when it is empty is given a place in the future,
//! so that waiting is fair and nobody polls.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use domain::{MailboxId, Provider, SecretId, Sha256, TenantId};
use tokio::time::Instant;

use super::window::Window;

/// So much per second, and so much at once after a rest: of calls, of bytes, or of units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    pub per_second: f64,
    pub burst: f64,
    /// What is taken does not come back evenly, but each part of it after this time.
    pub span: Option<Duration>,
}

impl Budget {
    pub fn per_second(amount: f64) -> Self {
        Self { per_second: amount, burst: amount.max(1.0), span: None }
    }

    /// For limits whose breach locks an account out: no 24 hours take more, whatever was saved up before.
    pub fn per_day(amount: f64) -> Self {
        let burst = (amount / 10.0).max(1.0);
        Self { per_second: (amount - burst).max(1.0) / 86_400.0, burst, span: None }
    }

    /// No 60 seconds take more, whatever was saved up before: what comes at once is taken off what comes evenly.
    pub fn per_minute(amount: f64) -> Self {
        let burst = (amount / 30.0).max(1.0);
        Self { per_second: (amount - burst).max(1.0) / 60.0, burst, span: None }
    }

    /// No 600 seconds take more. Ten minutes are too long to go evenly: most mailboxes are taken in at once.
    pub fn per_ten_minutes(amount: f64) -> Self {
        let amount = amount.max(1.0);
        Self { per_second: amount / 600.0, burst: amount, span: Some(Duration::from_secs(600)) }
    }

    /// How long an amount takes that is more than ever comes at once, also when nobody else wants anything.
    pub fn least_wait(self, amount: f64) -> Duration {
        self.time_for(amount).saturating_sub(self.time_for(self.burst))
    }

    /// What is left for each of so many.
    pub fn share(self, of: usize) -> Self {
        let of = of.max(1) as f64;
        Self { per_second: self.per_second / of, burst: (self.burst / of).max(1.0), ..self }
    }

    pub fn time_for(self, amount: f64) -> Duration {
        if amount <= 0.0 {
            return Duration::ZERO;
        }
        // A budget of nothing would be a wait for ever; a year is as good and is a number.
        Duration::from_secs_f64((amount / self.per_second).clamp(0.0, 31_536_000.0))
    }
}

/// Whose budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    App(Provider),
    Tenant(TenantId, Provider),
    /// A mailbox's own; nothing: what lets our app into all mailboxes of the tenant's organisation.
    Credential(TenantId, Provider, Option<SecretId>),
    Mailbox(MailboxId),
    /// Whoever has it: the hash of an address at a provider.
    Account(Sha256),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    Calls,
    Bytes,
    /// What a provider counts in that gives each kind of call a price.
    Units,
}

/// What one call takes from one bucket. An amount of 0 waits until the bucket is in debt no more.
#[derive(Debug, Clone, Copy)]
pub struct Charge {
    pub owner: Owner,
    pub measure: Measure,
    pub budget: Budget,
    pub amount: f64,
}

impl Charge {
    /// What is more than ever comes at once must not make any minute take more than its limit, neither one that ends with
    /// it nor one that begins with it. So what is too much of it is waited for before, and owed after.
    pub fn evened(self) -> Self {
        let Self { budget, amount, measure, .. } = self;
        if measure != Measure::Units || amount <= budget.burst || budget.span.is_some() {
            return self;
        }
        let budget = Budget { burst: amount, ..budget };
        Self { budget, amount: 2.0 * amount - self.budget.burst, ..self }
    }
}

/// In all processes the same.
impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measure = match self.measure {
            Measure::Calls => "calls",
            Measure::Bytes => "bytes",
            Measure::Units => "units",
        };
        match self.owner {
            Owner::App(provider) => write!(f, "{measure}:app:{}", provider.as_str()),
            Owner::Tenant(tenant, provider) => write!(f, "{measure}:tenant:{tenant}:{}", provider.as_str()),
            Owner::Credential(tenant, provider, None) => {
                write!(f, "{measure}:organisation:{tenant}:{}", provider.as_str())
            }
            Owner::Credential(_, _, Some(secret)) => write!(f, "{measure}:secret:{secret}"),
            Owner::Mailbox(mailbox) => write!(f, "{measure}:mailbox:{mailbox}"),
            Owner::Account(account) => write!(f, "{measure}:account:{}", account.hex()),
        }
    }
}

/// A place: how long to wait for it, or how long it would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    In(Duration),
    TooLong(Duration),
}

/// The buckets of one process that are not full.
#[derive(Debug)]
pub struct Buckets {
    full_at: HashMap<(Owner, Measure), Instant>,
    windows: HashMap<(Owner, Measure), (Duration, Window)>,
    began: Instant,
}

impl Default for Buckets {
    fn default() -> Self {
        Self { full_at: HashMap::new(), windows: HashMap::new(), began: Instant::now() }
    }
}

impl Buckets {
    /// A place in all of them or in none.
    pub fn take(&mut self, charges: &[Charge], now: Instant, longest: Duration) -> Place {
        let mut wait = Duration::ZERO;
        let mut full_at = Vec::with_capacity(charges.len());
        for charge in charges {
            let key = (charge.owner, charge.measure);
            if let Some(span) = charge.budget.span {
                let window = self.windows.get(&key).map(|(_, window)| window);
                let time = now.duration_since(self.began);
                let waits = |window: &Window| window.wait(time, span, charge.budget.burst, charge.amount);
                wait = wait.max(window.map(waits).unwrap_or_default());
                continue;
            }
            let before = self.full_at.get(&key).copied().unwrap_or(now).max(now);
            let after = before + charge.budget.time_for(charge.amount);
            let room = charge.budget.time_for(charge.budget.burst);
            wait = wait.max(after.duration_since(now).saturating_sub(room));
            full_at.push((key, after));
        }
        if wait > longest {
            return Place::TooLong(wait);
        }
        self.full_at.extend(full_at.into_iter().filter(|(_, at)| *at > now));
        let at = (now + wait).duration_since(self.began);
        for charge in charges {
            if let Some(span) = charge.budget.span {
                let (_, window) =
                    self.windows.entry((charge.owner, charge.measure)).or_insert((span, Window::default()));
                window.take(at, span, charge.amount);
            }
        }
        Place::In(wait)
    }

    /// A full bucket is as good as none.
    pub fn forget_full(&mut self, now: Instant) {
        self.full_at.retain(|_, at| *at > now);
        let now = now.duration_since(self.began);
        self.windows.retain(|_, (span, window)| {
            window.forget(now, *span);
            !window.is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.full_at.len() + self.windows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(5);

    fn charge(owner: Owner, per_second: f64, amount: f64) -> Charge {
        Charge { owner, measure: Measure::Calls, budget: Budget::per_second(per_second), amount }
    }

    fn app(per_second: f64, amount: f64) -> Charge {
        charge(Owner::App(Provider::Scripted), per_second, amount)
    }

    #[test]
    fn a_burst_goes_at_once_then_each_has_its_place_and_who_would_wait_too_long_takes_none() {
        let now = Instant::now();
        let mut buckets = Buckets::default();
        let mut take = |at| buckets.take(&[app(2.0, 1.0)], at, Duration::from_secs(1));

        assert_eq!(take(now), Place::In(Duration::ZERO));
        assert_eq!(take(now), Place::In(Duration::ZERO));
        assert_eq!(take(now), Place::In(Duration::from_millis(500)));
        assert_eq!(take(now), Place::In(Duration::from_secs(1)));
        assert_eq!(take(now), Place::TooLong(Duration::from_millis(1500)));
        assert_eq!(take(now + Duration::from_millis(500)), Place::In(Duration::from_secs(1)));
    }

    #[test]
    fn who_is_refused_by_one_bucket_takes_from_none() {
        let now = Instant::now();
        let mut buckets = Buckets::default();
        let mailbox = Owner::Tenant(TenantId(uuid::Uuid::nil()), Provider::Scripted);
        let both = [app(10.0, 1.0), charge(mailbox, 0.1, 1.0)];
        assert_eq!(buckets.take(&both, now, LONGEST), Place::In(Duration::ZERO));
        for _ in 0..100 {
            assert!(matches!(buckets.take(&both, now, LONGEST), Place::TooLong(_)));
        }

        assert_eq!(buckets.take(&[app(10.0, 9.0)], now, LONGEST), Place::In(Duration::ZERO));
    }

    #[test]
    fn a_debt_is_waited_for() {
        let now = Instant::now();
        let mut buckets = Buckets::default();
        assert_eq!(buckets.take(&[app(10.0, 0.0)], now, LONGEST), Place::In(Duration::ZERO));
        buckets.take(&[app(10.0, 40.0)], now, Duration::MAX);

        assert_eq!(buckets.take(&[app(10.0, 0.0)], now, LONGEST), Place::In(Duration::from_secs(3)));
        let later = now + Duration::from_secs(3);
        assert_eq!(buckets.take(&[app(10.0, 0.0)], later, LONGEST), Place::In(Duration::ZERO));
    }

    #[test]
    fn a_day_takes_no_more_than_its_limit() {
        let begin = Instant::now();
        let mut buckets = Buckets::default();
        let mut taken = 0;
        for minute in 0..24 * 60 {
            let now = begin + Duration::from_secs(minute * 60);
            let charge = Charge { budget: Budget::per_day(1000.0), ..app(1.0, 1.0) };
            while buckets.take(&[charge], now, Duration::ZERO) == Place::In(Duration::ZERO) {
                taken += 1;
            }
        }
        assert!((990..=1000).contains(&taken), "{taken}");
    }

    #[test]
    fn no_minute_takes_more_than_its_limit_and_what_is_large_waits_for_itself() {
        let begin = Instant::now();
        let mut buckets = Buckets::default();
        let budget = Budget::per_minute(600.0);
        let charge = |amount| Charge { measure: Measure::Units, budget, ..app(1.0, amount) }.evened();
        let mut taken = Vec::new();
        let mut wait = Duration::ZERO;
        for step in 0..600 {
            let (now, amount) =
                (begin + wait.max(Duration::from_millis(step * 300)), if step % 7 == 0 { 100.0 } else { 5.0 });
            let longest = budget.least_wait(amount);
            if let Place::In(more) = buckets.take(&[charge(amount)], now, longest) {
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
    fn of_ten_minutes_most_goes_at_once_and_nothing_is_taken_in_vain() {
        let mut buckets = Buckets::default();
        let now = Instant::now();
        let charge =
            |amount| Charge { measure: Measure::Units, budget: Budget::per_ten_minutes(100.0), ..app(1.0, amount) };
        for _ in 0..9 {
            assert_eq!(buckets.take(&[charge(10.0)], now, LONGEST), Place::In(Duration::ZERO));
        }
        let Place::TooLong(wait) = buckets.take(&[charge(10.0)], now, LONGEST) else { panic!("all is taken") };
        assert!(wait > Duration::from_secs(600) && wait <= Duration::from_secs(630), "{wait:?}");
        for _ in 0..10 {
            assert_eq!(
                buckets.take(&[charge(1.0)], now, LONGEST),
                Place::In(Duration::ZERO),
                "some is left for others"
            );
        }
        assert!(matches!(buckets.take(&[charge(1.0)], now, LONGEST), Place::TooLong(_)));
        buckets.forget_full(now + Duration::from_secs(600));
        assert_eq!(buckets.len(), 1);
        buckets.forget_full(now + Duration::from_secs(630));
        assert_eq!(buckets.len(), 0);
    }

    #[test]
    fn a_budget_of_nothing_holds_up_and_breaks_nothing() {
        let now = Instant::now();
        let mut buckets = Buckets::default();
        assert_eq!(buckets.take(&[app(0.0, 0.0)], now, LONGEST), Place::In(Duration::ZERO));
        assert_eq!(buckets.take(&[app(0.0, 1.0)], now, LONGEST), Place::In(Duration::ZERO), "the burst");
        assert!(matches!(buckets.take(&[app(0.0, 1.0)], now, LONGEST), Place::TooLong(_)));
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let now = Instant::now();
        let mut buckets = Buckets::default();
        buckets.take(&[app(1.0, 1.0)], now, LONGEST);

        buckets.forget_full(now);
        assert_eq!(buckets.len(), 1);
        buckets.forget_full(now + Duration::from_secs(1));
        assert_eq!(buckets.len(), 0);
    }
}
