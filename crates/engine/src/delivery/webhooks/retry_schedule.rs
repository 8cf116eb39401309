//! The retry schedule of webhook deliveries.

use std::time::Duration;

use domain::RandomSource;

use crate::retry_policies::{DELIVERY_RETRY_DELAYS, ENDPOINT_REST_DELAYS};

/// A webhook without a delivery for so long is switched off.
pub const DISABLE_AFTER: Duration = Duration::from_secs(5 * 24 * 3600);

/// The longest Retry-After that is followed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Returns the delay after so many attempts of a delivery, or `None` after the last.
pub fn delivery_delay(attempts: u64, random: &dyn RandomSource) -> Option<Duration> {
    let n = usize::try_from(attempts).ok()?.checked_sub(1)?;
    DELIVERY_RETRY_DELAYS.get(n).map(|wait| with_jitter(*wait, random))
}

/// Returns the pause of a webhook after so many batches in a row without a delivery.
pub fn endpoint_rest(failures: u64, random: &dyn RandomSource) -> Duration {
    let n = usize::try_from(failures).unwrap_or(usize::MAX).clamp(1, ENDPOINT_REST_DELAYS.len());
    with_jitter(ENDPOINT_REST_DELAYS[n - 1], random)
}

pub fn clamp_retry_after(asked: Duration) -> Duration {
    asked.min(MAX_RETRY_AFTER)
}

/// Adds up to a fifth, so that deliveries that failed together are not retried together.
fn with_jitter(wait: Duration, random: &dyn RandomSource) -> Duration {
    wait.mul_f64(1.0 + random.next_fraction() / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    #[derive(Debug)]
    struct FixedDice(u64);

    impl RandomSource for FixedDice {
        fn next_u64(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn delivery_is_tried_ten_times_over_three_days() {
        let waits: Vec<Duration> = (1..).map_while(|attempts| delivery_delay(attempts, &FixedDice(0))).collect();
        assert_eq!(waits, DELIVERY_RETRY_DELAYS);
        let all: Duration = waits.iter().sum();
        assert!(all > 75 * HOUR && all < 76 * HOUR, "{all:?}");
        assert_eq!(
            (
                delivery_delay(0, &FixedDice(0)),
                delivery_delay(10, &FixedDice(0)),
                delivery_delay(u64::MAX, &FixedDice(0))
            ),
            (None, None, None)
        );
    }

    #[test]
    fn jitter_adds_at_most_a_fifth() {
        let (least, most) =
            (delivery_delay(2, &FixedDice(0)).unwrap(), delivery_delay(2, &FixedDice(u64::MAX)).unwrap());
        assert_eq!(least, 5 * MINUTE);
        assert!(most > 5 * MINUTE && most <= 6 * MINUTE, "{most:?}");
    }

    #[test]
    fn failing_webhook_rests_at_most_15_minutes() {
        let rests = [0, 1, 2, 3, 4, 5, 6, u64::MAX].map(|failures| endpoint_rest(failures, &FixedDice(0)).as_secs());
        assert_eq!(rests, [5, 5, 30, 120, 300, 900, 900, 900]);
        assert_eq!((clamp_retry_after(MINUTE), clamp_retry_after(1000 * HOUR)), (MINUTE, 24 * HOUR));
    }
}
