//! Circuit breakers: each stops a tenant's calls to one service or server while most of them fail.
//!
//! Closed, it counts failures. Open, it lets one probe through now and then.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use domain::metrics as catalogue;
use domain::{ConnectorError, TenantId, redact_for_log};
use tokio::time::Instant;

use crate::target::{Endpoint, Service, Target};

/// The time for which a call counts.
pub const WINDOW: Duration = Duration::from_secs(300);

/// The window moves in steps, so that its memory does not grow with the calls.
const WINDOW_STEP: Duration = Duration::from_secs(10);

/// The calls within the window below which the breaker stays closed.
pub const MIN_CALLS: u64 = 10;

/// Percentage of failed calls at which it opens.
pub const OPEN_AT_FAILURE_PERCENT: u64 = 50;

/// The interval of probes while the breaker is open.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// Successful probes in a row that close the breaker.
pub const SUCCESSES_TO_CLOSE: u32 = 3;

/// The parts of a service, of which one may be unavailable while the other works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServicePart {
    Main,
    Directory,
}

/// What a breaker is for. By tenant, so that no tenant opens the breaker of another; by server where there are many, so
/// that a dead one does not stop calls to the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BreakerKey {
    tenant: TenantId,
    service: Service,
    endpoint: Option<Endpoint>,
    part: ServicePart,
}

/// The circuit breakers of this process.
#[derive(Debug, Default)]
pub struct BreakerTable(HashMap<BreakerKey, CircuitBreaker>);

/// Permits one call; handed back with its outcome. One that is lost blocks nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerPermit {
    Ordinary,
    Probe { opening: u64 },
}

impl BreakerTable {
    /// Returns `Ok` if a call may be made now, or the time of the next probe.
    pub fn check(&self, target: &Target, part: ServicePart, now: Instant) -> Result<(), Instant> {
        self.0.get(&key(target, part)).map_or(Ok(()), |breaker| breaker.check(now))
    }

    /// Takes a permit, under the same condition as [`check`](Self::check).
    pub fn take(&mut self, target: &Target, part: ServicePart, now: Instant) -> Result<BreakerPermit, Instant> {
        self.breaker(target, part, now).take(now)
    }

    /// Records the outcome of a call, and logs if that opens or closes the breaker.
    pub fn record(
        &mut self,
        target: &Target,
        part: ServicePart,
        now: Instant,
        permit: BreakerPermit,
        failure: Option<&ConnectorError>,
    ) {
        let breaker = self.breaker(target, part, now);
        let before = breaker.state();
        breaker.record(now, permit, failure.is_some());
        let after = breaker.state();
        if before == after {
            return;
        }
        let (tenant, provider, part) = (target.tenant, target.service.as_str(), part.as_str());
        let server = target.endpoint.as_ref().map(ToString::to_string);
        let error = failure.map(redact_for_log).unwrap_or_default();
        if after == "open" {
            tracing::warn!(tenant.id = %tenant, provider, server, service = part, error, "circuit breaker opened");
        } else {
            tracing::info!(tenant.id = %tenant, provider, server, service = part, state = after, "circuit breaker state changed");
        }
        count_breakers(provider, before, -1.0);
        count_breakers(provider, after, 1.0);
    }

    /// Returns for how long the breaker of calls to a target has been open, if it stops them now.
    pub fn open_for(&self, target: &Target, part: ServicePart, now: Instant) -> Option<Duration> {
        let breaker = self.0.get(&key(target, part)).filter(|breaker| breaker.check(now).is_err())?;
        breaker.open_since().map(|since| now.duration_since(since))
    }

    pub fn evict_idle(&mut self, now: Instant) {
        self.0.retain(|key, breaker| {
            let is_idle = breaker.is_idle(now);
            if is_idle {
                count_breakers(key.service.as_str(), breaker.state(), -1.0);
            }
            !is_idle
        });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn breaker(&mut self, target: &Target, part: ServicePart, now: Instant) -> &mut CircuitBreaker {
        self.0.entry(key(target, part)).or_insert_with(|| {
            let breaker = CircuitBreaker::new(now);
            count_breakers(target.service.as_str(), breaker.state(), 1.0);
            breaker
        })
    }
}

impl ServicePart {
    fn as_str(self) -> &'static str {
        match self {
            Self::Main => "mail",
            Self::Directory => "directory",
        }
    }
}

fn key(target: &Target, part: ServicePart) -> BreakerKey {
    let Target { service, tenant, ref endpoint, .. } = *target;
    BreakerKey { tenant, service, endpoint: endpoint.clone(), part }
}

fn count_breakers(provider: &'static str, state: &'static str, by: f64) {
    metrics::gauge!(catalogue::BREAKERS, "provider" => provider, "state" => state).increment(by);
}

/// One breaker.
#[derive(Debug, Clone)]
struct CircuitBreaker {
    state: BreakerState,
    /// Calls that ended while the breaker was closed, the oldest first.
    steps: VecDeque<BreakerWindowBucket>,
    /// How often the breaker has opened: a probe counts only for the opening that it was made in.
    openings: u64,
    touched: Instant,
}

#[derive(Debug, Clone, Copy)]
enum BreakerState {
    Closed,
    Open { since: Instant, next_probe: Instant, successes: u32 },
}

#[derive(Debug, Clone, Copy)]
struct BreakerWindowBucket {
    since: Instant,
    calls: u64,
    failures: u64,
}

impl CircuitBreaker {
    fn new(now: Instant) -> Self {
        Self { state: BreakerState::Closed, steps: VecDeque::new(), openings: 0, touched: now }
    }

    /// Returns `Ok` if a call may be made now, or the time of the next probe.
    fn check(&self, now: Instant) -> Result<(), Instant> {
        match self.state {
            BreakerState::Open { next_probe, .. } if now < next_probe => Err(next_probe),
            _ => Ok(()),
        }
    }

    /// Takes a permit, under the same condition as [`check`](Self::check).
    fn take(&mut self, now: Instant) -> Result<BreakerPermit, Instant> {
        self.touched = now;
        self.check(now)?;
        match &mut self.state {
            BreakerState::Closed => Ok(BreakerPermit::Ordinary),
            BreakerState::Open { next_probe, .. } => {
                *next_probe = now + PROBE_INTERVAL;
                Ok(BreakerPermit::Probe { opening: self.openings })
            }
        }
    }

    /// Records the outcome of a call.
    fn record(&mut self, now: Instant, permit: BreakerPermit, is_failure: bool) {
        self.touched = now;
        match &mut self.state {
            BreakerState::Closed => {
                self.count(now, is_failure);
                if self.should_open() {
                    self.state = BreakerState::Open { since: now, next_probe: now + PROBE_INTERVAL, successes: 0 };
                    self.steps.clear();
                    self.openings += 1;
                }
            }
            // Calls that were in flight when it opened add nothing.
            BreakerState::Open { .. } if permit != (BreakerPermit::Probe { opening: self.openings }) => {}
            BreakerState::Open { successes, .. } if is_failure => *successes = 0,
            BreakerState::Open { successes, .. } => {
                *successes += 1;
                if *successes >= SUCCESSES_TO_CLOSE {
                    self.state = BreakerState::Closed;
                }
            }
        }
    }

    /// Returns the name of the state, for metrics and people.
    fn state(&self) -> &'static str {
        match self.state {
            BreakerState::Closed => "closed",
            BreakerState::Open { successes: 0, .. } => "open",
            BreakerState::Open { .. } => "half_open",
        }
    }

    /// Returns since when the breaker is open.
    fn open_since(&self) -> Option<Instant> {
        match self.state {
            BreakerState::Closed => None,
            BreakerState::Open { since, .. } => Some(since),
        }
    }

    /// Returns whether the breaker has not been used for so long that nothing it holds counts any more.
    fn is_idle(&self, now: Instant) -> bool {
        now.duration_since(self.touched) > WINDOW * 2
    }

    fn count(&mut self, now: Instant, is_failure: bool) {
        while self.steps.front().is_some_and(|step| now.duration_since(step.since) >= WINDOW) {
            self.steps.pop_front();
        }
        if self.steps.back().is_none_or(|step| now.duration_since(step.since) >= WINDOW_STEP) {
            self.steps.push_back(BreakerWindowBucket { since: now, calls: 0, failures: 0 });
        }
        if let Some(step) = self.steps.back_mut() {
            step.calls += 1;
            step.failures += u64::from(is_failure);
        }
    }

    fn should_open(&self) -> bool {
        let (calls, failures) =
            self.steps.iter().fold((0, 0), |(calls, failures), step| (calls + step.calls, failures + step.failures));
        calls >= MIN_CALLS && failures * 100 >= calls * OPEN_AT_FAILURE_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    fn opened(begin: Instant) -> CircuitBreaker {
        let mut breaker = CircuitBreaker::new(begin);
        for _ in 0..MIN_CALLS {
            let pass = breaker.take(begin).unwrap();
            breaker.record(begin, pass, true);
        }
        breaker
    }

    #[test]
    fn breaker_opens_when_half_of_ten_calls_fail() {
        let begin = Instant::now();
        let mut breaker = CircuitBreaker::new(begin);
        for n in 0..9 {
            breaker.record(begin, BreakerPermit::Ordinary, n % 2 == 0);
            assert_eq!(breaker.check(begin), Ok(()), "after {} calls", n + 1);
        }

        breaker.record(begin, BreakerPermit::Ordinary, false);
        assert_eq!(breaker.check(begin), Err(after(begin, 30)));

        let mut breaker = CircuitBreaker::new(begin);
        for n in 0..100 {
            breaker.record(begin, BreakerPermit::Ordinary, n % 20 > 10);
        }
        assert_eq!(breaker.state(), "closed", "45 % is not half");
    }

    #[test]
    fn calls_before_the_window_do_not_count() {
        let begin = Instant::now();
        let mut breaker = CircuitBreaker::new(begin);
        for _ in 0..9 {
            breaker.record(begin, BreakerPermit::Ordinary, true);
        }

        breaker.record(begin + WINDOW, BreakerPermit::Ordinary, true);
        assert_eq!(breaker.state(), "closed");
    }

    #[test]
    fn three_successful_probes_close_the_breaker() {
        let begin = Instant::now();
        let mut breaker = opened(begin);
        for (seconds, state) in [(30, "half_open"), (60, "half_open"), (90, "closed")] {
            assert_eq!(breaker.take(after(begin, seconds - 1)), Err(after(begin, seconds)));
            let probe = breaker.take(after(begin, seconds)).unwrap();
            assert_eq!(breaker.take(after(begin, seconds)), Err(after(begin, seconds + 30)));
            breaker.record(after(begin, seconds), probe, false);
            assert_eq!(breaker.state(), state);
        }
        assert_eq!(breaker.take(after(begin, 90)), Ok(BreakerPermit::Ordinary));
    }

    #[test]
    fn failed_probe_resets_the_success_count() {
        let begin = Instant::now();
        let mut breaker = opened(begin);
        for (probe, is_failure) in [(1, false), (2, false), (3, true), (4, false), (5, false)] {
            let pass = breaker.take(after(begin, probe * 30)).unwrap();
            breaker.record(after(begin, probe * 30), pass, is_failure);
            breaker.record(after(begin, probe * 30), BreakerPermit::Ordinary, false);
            breaker.record(after(begin, probe * 30), BreakerPermit::Probe { opening: 0 }, false);
            assert_ne!(breaker.state(), "closed", "after probe {probe}");
        }
    }

    proptest! {
        /// Whatever happens: closed, it refuses no call; open, it lets at most one through in 30 s and closes only after
        /// three good probes; what it keeps is bounded.
        #[test]
        fn breaker_invariants_hold(
            // Mostly in quick succession, with long pauses in between.
            steps in prop::collection::vec(
                (prop_oneof![4 => 0u64..2_000, 1 => 0u64..40_000], any::<bool>(), any::<bool>(), 0u8..4),
                1..400,
            )
        ) {
            let mut now = Instant::now();
            let mut breaker = CircuitBreaker::new(now);
            let mut under_way: Vec<BreakerPermit> = Vec::new();
            let mut last_probe: Option<Instant> = None;
            let mut good_probes = 0;
            for (millis, begins, is_failure, which) in steps {
                now += Duration::from_millis(millis);
                let was_open = breaker.state() != "closed";
                if begins {
                    match breaker.take(now) {
                        Ok(pass) => {
                            prop_assert_eq!(pass == BreakerPermit::Ordinary, !was_open);
                            if was_open {
                                prop_assert!(last_probe.is_none_or(|last| now - last >= PROBE_INTERVAL));
                                last_probe = Some(now);
                            }
                            under_way.push(pass);
                        }
                        Err(until) => {
                            prop_assert!(was_open);
                            prop_assert!(until > now && until <= now + PROBE_INTERVAL);
                        }
                    }
                } else if !under_way.is_empty() {
                    let pass = under_way.remove(usize::from(which) % under_way.len());
                    breaker.record(now, pass, is_failure);
                    let is_open = breaker.state() != "closed";
                    if was_open && matches!(pass, BreakerPermit::Probe { opening } if opening == breaker.openings) {
                        good_probes = if is_failure { 0 } else { good_probes + 1 };
                    }
                    prop_assert_eq!(was_open && !is_open, was_open && good_probes == SUCCESSES_TO_CLOSE);
                    if !was_open && is_open {
                        last_probe = Some(now);
                    }
                    if !is_open || !was_open {
                        good_probes = 0;
                    }
                }
                prop_assert!(breaker.steps.len() as u64 <= WINDOW.as_secs() / WINDOW_STEP.as_secs());
            }
        }
    }
}
