//! When to try again.

use std::time::Duration;

use jobs::Dice;

/// After each failed try of a delivery, for a little over three days: a weekend, and somebody to look at it.
const RETRIES: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3600),
    Duration::from_secs(5 * 3600),
    Duration::from_secs(10 * 3600),
    Duration::from_secs(14 * 3600),
    Duration::from_secs(20 * 3600),
    Duration::from_secs(24 * 3600),
];

/// After each time in a row that nothing came through to a webhook. One that is back is noticed within the last of these.
const RESTS: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(2 * 60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
];

/// A webhook to which nothing came through for so long is switched off.
pub const TOO_LONG: Duration = Duration::from_secs(5 * 24 * 3600);

/// Who asks to be left alone for longer is asked again after this.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// After so many tries of a delivery; `None`: that was the last.
pub fn retry(attempts: u64, dice: &dyn Dice) -> Option<Duration> {
    let n = usize::try_from(attempts).ok()?.checked_sub(1)?;
    RETRIES.get(n).map(|wait| later(*wait, dice))
}

/// After nothing came through so many times in a row.
pub fn rest(failures: u64, dice: &dyn Dice) -> Duration {
    let n = usize::try_from(failures).unwrap_or(usize::MAX).clamp(1, RESTS.len());
    later(RESTS[n - 1], dice)
}

pub fn retry_after(asked: Duration) -> Duration {
    asked.min(LONGEST_RETRY_AFTER)
}

/// Up to a fifth later, so that what failed together does not come back together.
fn later(wait: Duration, dice: &dyn Dice) -> Duration {
    wait.mul_f64(1.0 + dice.fraction() / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    #[derive(Debug)]
    struct Loaded(u64);

    impl Dice for Loaded {
        fn bits(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_delivery_is_tried_ten_times_over_three_days() {
        let waits: Vec<Duration> = (1..).map_while(|attempts| retry(attempts, &Loaded(0))).collect();
        assert_eq!(waits, RETRIES);
        let all: Duration = waits.iter().sum();
        assert!(all > 75 * HOUR && all < 76 * HOUR, "{all:?}");
        assert_eq!((retry(0, &Loaded(0)), retry(10, &Loaded(0)), retry(u64::MAX, &Loaded(0))), (None, None, None));
    }

    #[test]
    fn it_is_never_sooner_and_at_most_a_fifth_later() {
        let (least, most) = (retry(2, &Loaded(0)).unwrap(), retry(2, &Loaded(u64::MAX)).unwrap());
        assert_eq!(least, 5 * MINUTE);
        assert!(most > 5 * MINUTE && most <= 6 * MINUTE, "{most:?}");
    }

    #[test]
    fn a_webhook_rests_longer_and_longer_up_to_a_quarter_of_an_hour() {
        let rests = [0, 1, 2, 3, 4, 5, 6, u64::MAX].map(|failures| rest(failures, &Loaded(0)).as_secs());
        assert_eq!(rests, [5, 5, 30, 120, 300, 900, 900, 900]);
        assert_eq!((retry_after(MINUTE), retry_after(1000 * HOUR)), (MINUTE, 24 * HOUR));
    }
}
