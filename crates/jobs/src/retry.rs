//! Retry policies (exponential backoff with full jitter) and fingerprints of failures.

use std::time::Duration;

use crate::RandomSource;

/// How often a failed job is retried, and after which delays: each may be twice as long as the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    pub max_retries: u32,
    pub first_delay: Duration,
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl RetryPolicy {
    pub const DEFAULT: Self =
        Self { max_retries: 5, first_delay: Duration::from_secs(1), max_delay: Duration::from_secs(16) };

    pub const NEVER: Self = Self { max_retries: 0, first_delay: Duration::ZERO, max_delay: Duration::ZERO };

    /// Returns the delay before the next attempt, or `None` if there are no retries left. Full jitter: anything up to the
    /// bound, so that jobs that failed together are not retried together.
    pub fn delay(&self, attempts_before: u64, random: &dyn RandomSource) -> Option<Duration> {
        if attempts_before >= u64::from(self.max_retries) {
            return None;
        }
        let doublings = u32::try_from(attempts_before).unwrap_or(u32::MAX).min(31);
        let bound = self.first_delay.saturating_mul(1 << doublings).min(self.max_delay);
        Some(bound.mul_f64(random.next_fraction()))
    }
}

/// Returns a hash that groups failures of one cause: the kind, the class, and the message without ids, sizes and times.
pub fn fingerprint(kind: &str, class: &str, message: &str) -> String {
    let mut same = String::with_capacity(message.len().min(200));
    let first_line = message.lines().next().unwrap_or_default();
    for word in first_line.split_whitespace().take(24) {
        if !same.is_empty() {
            same.push(' ');
        }
        // A word with a digit is an id, a size, a port or a time.
        same.push_str(if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word });
    }
    let hash = domain::Sha256::of(format!("{kind}\n{class}\n{same}").as_bytes());
    hash.hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct FixedRandom(u64);

    impl RandomSource for FixedRandom {
        fn next_u64(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn delay_doubles_until_the_last_retry() {
        for (attempt, seconds) in [Some(1.0), Some(2.0), Some(4.0), Some(8.0), Some(16.0), None].into_iter().enumerate()
        {
            let delay = RetryPolicy::default().delay(attempt as u64, &FixedRandom(u64::MAX));
            assert_eq!(delay.map(|delay| delay.as_secs_f64().round()), seconds, "attempt {attempt}");
        }
        assert_eq!(RetryPolicy::default().delay(3, &FixedRandom(0)), Some(Duration::ZERO));
    }

    #[test]
    fn failures_of_one_cause_have_one_fingerprint() {
        let [one, same, answer, route] =
            ["no answer from 10.0.0.1:993 after 30s", "no answer from 10.0.0.2:993 after 31s", "no answer", "no route"]
                .map(|message| fingerprint("fetch", "io", message));

        assert_eq!(one, same);
        assert_ne!(answer, route);
    }
}
