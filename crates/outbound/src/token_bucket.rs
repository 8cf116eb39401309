//! A token bucket as one instant: when it is full again (the generic cell rate algorithm).

use std::time::Duration;

use tokio::time::Instant;

use crate::budget::Budget;

/// A shorter wait is an error of rounding.
const ROUNDING: Duration = Duration::from_micros(1);

#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    full_at: Instant,
}

impl TokenBucket {
    pub fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Returns how long until `amount` may be taken.
    pub fn wait(&self, budget: Budget, amount: f64, now: Instant) -> Duration {
        let after = self.full_at.max(now) + budget.time_for(amount);
        let wait = after.duration_since(now).saturating_sub(budget.time_for(budget.burst));
        if wait < ROUNDING { Duration::ZERO } else { wait }
    }

    /// Takes `amount`, whether or not it is there: more than that is a debt.
    pub fn take(&mut self, budget: Budget, amount: f64, now: Instant) {
        self.full_at = self.full_at.max(now) + budget.time_for(amount);
    }

    /// Returns the whole tokens that are there.
    pub fn left(&self, budget: Budget, now: Instant) -> u32 {
        let used = self.full_at.saturating_duration_since(now).saturating_sub(ROUNDING).as_secs_f64();
        (budget.burst - (used * budget.per_second).ceil()).max(0.0) as u32
    }

    /// Returns whether the bucket is full, and so as good as a new one.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_of_the_burst_is_there_at_any_rate() {
        let now = Instant::now();
        for rate in [1.0, 3.0, 7.0, 9.0, 11.0, 97.0, 1_000.0, 9_999.0] {
            let budget = Budget { burst: rate * 2.0, ..Budget::per_second(rate) };
            let mut bucket = TokenBucket::full(now);
            for taken in 0..(rate as u32) * 2 {
                assert_eq!(bucket.left(budget, now), (rate as u32) * 2 - taken, "{rate}");
                assert_eq!(bucket.wait(budget, 1.0, now), Duration::ZERO, "{rate}: token {taken}");
                bucket.take(budget, 1.0, now);
            }
            assert!(bucket.wait(budget, 1.0, now) > Duration::ZERO, "{rate}");
            assert_eq!(bucket.left(budget, now), 0);
        }
    }
}
