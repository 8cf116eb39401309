//! When most calls of a tenant to a provider's mail, or to its directory there, fail, the others need not try.
//!
//! Closed, it counts. Open, it lets one call through now and then, to find out.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How far back calls count.
pub const WINDOW: Duration = Duration::from_secs(300);

/// The window moves in steps, so that what is kept does not grow with the calls.
const STEP: Duration = Duration::from_secs(10);

/// With fewer calls in the window nothing is concluded.
const FEWEST_CALLS: u64 = 10;

/// While it is open.
pub const PROBE_EVERY: Duration = Duration::from_secs(30);

/// In a row.
const SUCCESSES_TO_CLOSE: u32 = 3;

#[derive(Debug, Clone)]
pub struct Breaker {
    state: State,
    /// Calls that ended while it was closed, the oldest first.
    steps: VecDeque<Step>,
    /// How often it has opened: a probe counts only for the opening that it was made in.
    openings: u64,
    touched: Instant,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed,
    Open { next_probe: Instant, successes: u32 },
}

#[derive(Debug, Clone, Copy)]
struct Step {
    since: Instant,
    calls: u64,
    failures: u64,
}

/// The right to make one call, to be handed back with what came of it. One that is lost holds nothing up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Ordinary,
    Probe { opening: u64 },
}

impl Breaker {
    pub fn new(now: Instant) -> Self {
        Self { state: State::Closed, steps: VecDeque::new(), openings: 0, touched: now }
    }

    /// `Err`: not before then.
    pub fn look(&self, now: Instant) -> Result<(), Instant> {
        match self.state {
            State::Open { next_probe, .. } if now < next_probe => Err(next_probe),
            _ => Ok(()),
        }
    }

    /// As [`look`](Self::look), and takes what it finds.
    pub fn take(&mut self, now: Instant) -> Result<Pass, Instant> {
        self.touched = now;
        self.look(now)?;
        match &mut self.state {
            State::Closed => Ok(Pass::Ordinary),
            State::Open { next_probe, .. } => {
                *next_probe = now + PROBE_EVERY;
                Ok(Pass::Probe { opening: self.openings })
            }
        }
    }

    /// What came of a call.
    pub fn record(&mut self, now: Instant, pass: Pass, is_failure: bool) {
        self.touched = now;
        match &mut self.state {
            State::Closed => {
                self.count(now, is_failure);
                if self.is_bad() {
                    self.state = State::Open { next_probe: now + PROBE_EVERY, successes: 0 };
                    self.steps.clear();
                    self.openings += 1;
                }
            }
            // Calls that were under way when it opened say nothing that is not known.
            State::Open { .. } if pass != (Pass::Probe { opening: self.openings }) => {}
            State::Open { successes, .. } if is_failure => *successes = 0,
            State::Open { successes, .. } => {
                *successes += 1;
                if *successes >= SUCCESSES_TO_CLOSE {
                    self.state = State::Closed;
                }
            }
        }
    }

    /// For people.
    pub fn state(&self) -> &'static str {
        match self.state {
            State::Closed => "closed",
            State::Open { successes: 0, .. } => "open",
            State::Open { .. } => "half_open",
        }
    }

    /// Nothing is known that still counts; or nobody has asked for so long that what is known is of no use.
    pub fn is_idle(&self, now: Instant) -> bool {
        now.duration_since(self.touched) > WINDOW * 2
    }

    fn count(&mut self, now: Instant, is_failure: bool) {
        while self.steps.front().is_some_and(|step| now.duration_since(step.since) >= WINDOW) {
            self.steps.pop_front();
        }
        if self.steps.back().is_none_or(|step| now.duration_since(step.since) >= STEP) {
            self.steps.push_back(Step { since: now, calls: 0, failures: 0 });
        }
        if let Some(step) = self.steps.back_mut() {
            step.calls += 1;
            step.failures += u64::from(is_failure);
        }
    }

    fn is_bad(&self) -> bool {
        let (calls, failures) =
            self.steps.iter().fold((0, 0), |(calls, failures), step| (calls + step.calls, failures + step.failures));
        calls >= FEWEST_CALLS && failures * 2 >= calls
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    fn opened(begin: Instant) -> Breaker {
        let mut breaker = Breaker::new(begin);
        for _ in 0..FEWEST_CALLS {
            let pass = breaker.take(begin).unwrap();
            breaker.record(begin, pass, true);
        }
        breaker
    }

    #[test]
    fn it_opens_when_half_of_at_least_ten_calls_fail() {
        let begin = Instant::now();
        let mut breaker = Breaker::new(begin);
        for n in 0..9 {
            breaker.record(begin, Pass::Ordinary, n % 2 == 0);
            assert_eq!(breaker.look(begin), Ok(()), "after {} calls", n + 1);
        }

        breaker.record(begin, Pass::Ordinary, false);
        assert_eq!(breaker.look(begin), Err(after(begin, 30)));

        let mut breaker = Breaker::new(begin);
        for n in 0..100 {
            breaker.record(begin, Pass::Ordinary, n % 20 > 10);
        }
        assert_eq!(breaker.state(), "closed", "45 % is not half");
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let begin = Instant::now();
        let mut breaker = Breaker::new(begin);
        for _ in 0..9 {
            breaker.record(begin, Pass::Ordinary, true);
        }

        breaker.record(begin + WINDOW, Pass::Ordinary, true);
        assert_eq!(breaker.state(), "closed");
    }

    #[test]
    fn one_call_in_thirty_seconds_and_three_good_ones_close_it() {
        let begin = Instant::now();
        let mut breaker = opened(begin);
        for (seconds, state) in [(30, "half_open"), (60, "half_open"), (90, "closed")] {
            assert_eq!(breaker.take(after(begin, seconds - 1)), Err(after(begin, seconds)));
            let probe = breaker.take(after(begin, seconds)).unwrap();
            assert_eq!(breaker.take(after(begin, seconds)), Err(after(begin, seconds + 30)));
            breaker.record(after(begin, seconds), probe, false);
            assert_eq!(breaker.state(), state);
        }
        assert_eq!(breaker.take(after(begin, 90)), Ok(Pass::Ordinary));
    }

    #[test]
    fn a_failed_probe_begins_the_count_again_and_late_answers_count_for_nothing() {
        let begin = Instant::now();
        let mut breaker = opened(begin);
        for (probe, is_failure) in [(1, false), (2, false), (3, true), (4, false), (5, false)] {
            let pass = breaker.take(after(begin, probe * 30)).unwrap();
            breaker.record(after(begin, probe * 30), pass, is_failure);
            breaker.record(after(begin, probe * 30), Pass::Ordinary, false);
            breaker.record(after(begin, probe * 30), Pass::Probe { opening: 0 }, false);
            assert_ne!(breaker.state(), "closed", "after probe {probe}");
        }
    }

    proptest! {
        /// Whatever happens: closed it holds nobody back; open it lets at most one through in 30 s and closes only after
        /// three good probes; what it keeps is bounded.
        #[test]
        fn its_rules_hold(
            // Mostly in quick succession, with long pauses in between.
            steps in prop::collection::vec(
                (prop_oneof![4 => 0u64..2_000, 1 => 0u64..40_000], any::<bool>(), any::<bool>(), 0u8..4),
                1..400,
            )
        ) {
            let mut now = Instant::now();
            let mut breaker = Breaker::new(now);
            let mut under_way: Vec<Pass> = Vec::new();
            let mut last_probe: Option<Instant> = None;
            let mut good_probes = 0;
            for (millis, begins, is_failure, which) in steps {
                now += Duration::from_millis(millis);
                let was_open = breaker.state() != "closed";
                if begins {
                    match breaker.take(now) {
                        Ok(pass) => {
                            prop_assert_eq!(pass == Pass::Ordinary, !was_open);
                            if was_open {
                                prop_assert!(last_probe.is_none_or(|last| now - last >= PROBE_EVERY));
                                last_probe = Some(now);
                            }
                            under_way.push(pass);
                        }
                        Err(until) => {
                            prop_assert!(was_open);
                            prop_assert!(until > now && until <= now + PROBE_EVERY);
                        }
                    }
                } else if !under_way.is_empty() {
                    let pass = under_way.remove(usize::from(which) % under_way.len());
                    breaker.record(now, pass, is_failure);
                    let is_open = breaker.state() != "closed";
                    if was_open && matches!(pass, Pass::Probe { opening } if opening == breaker.openings) {
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
                prop_assert!(breaker.steps.len() as u64 <= WINDOW.as_secs() / STEP.as_secs());
            }
        }
    }
}
