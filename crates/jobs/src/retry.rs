//! When an attempt that went wrong is followed by another.

use std::time::Duration;

use crate::Dice;

/// So many retries, each after at most twice as long as the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    pub retries: u32,
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { retries: 5, first: Duration::from_secs(1), longest: Duration::from_secs(16) }
    }
}

impl Retry {
    pub const NEVER: Self = Self { retries: 0, first: Duration::ZERO, longest: Duration::ZERO };

    /// How long to wait after the attempt that followed so many; `None`: that was the last. Full jitter: anything up to
    /// the bound, so that those who failed together do not come back together.
    pub fn delay(&self, attempts_before: u64, dice: &dyn Dice) -> Option<Duration> {
        if attempts_before >= u64::from(self.retries) {
            return None;
        }
        let doublings = u32::try_from(attempts_before).unwrap_or(u32::MAX).min(31);
        let bound = self.first.saturating_mul(1 << doublings).min(self.longest);
        Some(bound.mul_f64(dice.fraction()))
    }
}

/// What failures of one sort have in common: the kind, the class, and the message without what differs from case to case.
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
    struct Always(u64);

    impl Dice for Always {
        fn bits(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn the_bound_doubles_until_the_last_retry() {
        let seconds = |attempt| Retry::default().delay(attempt, &Always(u64::MAX)).map(|d| d.as_secs_f64().round());

        assert_eq!([0, 1, 2, 3, 4].map(seconds), [1.0, 2.0, 4.0, 8.0, 16.0].map(Some));
        assert_eq!(seconds(5), None);
        assert_eq!(Retry::default().delay(3, &Always(0)), Some(Duration::ZERO));
    }

    #[test]
    fn failures_of_one_sort_have_one_fingerprint() {
        let of = |message| fingerprint("fetch", "io", message);

        assert_eq!(of("no answer from 10.0.0.1:993 after 30s"), of("no answer from 10.0.0.2:993 after 31s"));
        assert_ne!(of("no answer"), of("no route"));
    }
}
