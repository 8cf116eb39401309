//! A sliding window, for limits that may be used up at once and come back only when a span of time has passed. Counted
//! in slots of time: what was taken in a slot comes back when its end has left the window.

use std::collections::BTreeMap;
use std::time::Duration;

/// The slots of a window. More slots waste less of the limit and take more memory.
pub const SLOTS: u32 = 20;

/// From this amount on a request leaves a part of the limit to small ones, so that new mail is fetched in between
/// backfill.
pub const LARGE_AMOUNT: f64 = 10.0;
pub const RESERVED_FOR_SMALL: f64 = 0.05;

/// The amounts taken, by slot. Times are counted from an arbitrary but fixed moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlidingWindow {
    taken: BTreeMap<u64, f64>,
}

impl SlidingWindow {
    /// Returns how long until `amount` fits.
    pub fn wait(&self, now: Duration, span: Duration, limit: f64, amount: f64) -> Duration {
        let limit_for = limit_for(limit, amount);
        let mut taken: f64 = self.active(now, span).map(|(_, amount)| amount).sum();
        let mut wait = Duration::ZERO;
        for (back_at, slot) in self.active(now, span) {
            if taken + amount <= limit_for {
                break;
            }
            taken -= slot;
            wait = back_at - now;
        }
        wait
    }

    pub fn take(&mut self, at: Duration, span: Duration, amount: f64) {
        *self.taken.entry(slot(at, span)).or_default() += amount;
    }

    pub fn evict(&mut self, now: Duration, span: Duration) {
        self.taken.retain(|slot, _| back_at(*slot, span) > now);
    }

    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    fn active(&self, now: Duration, span: Duration) -> impl Iterator<Item = (Duration, f64)> {
        self.taken.iter().map(move |(slot, amount)| (back_at(*slot, span), *amount)).filter(move |(at, _)| *at > now)
    }
}

/// Returns the limit that holds for a request of `amount`. A larger request passes when nothing is taken.
pub fn limit_for(limit: f64, amount: f64) -> f64 {
    if amount >= LARGE_AMOUNT { limit * (1.0 - RESERVED_FOR_SMALL) } else { limit }
}

fn slot(at: Duration, span: Duration) -> u64 {
    (at.as_micros() / (span / SLOTS).as_micros().max(1)) as u64
}

fn back_at(slot: u64, span: Duration) -> Duration {
    Duration::from_micros((slot + 1) * (span / SLOTS).as_micros() as u64) + span
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(600);

    #[test]
    fn taken_amount_returns_after_the_span() {
        let mut window = SlidingWindow::default();
        let at = Duration::from_secs;
        for _ in 0..475 {
            assert_eq!(window.wait(at(5), SPAN, 10_000.0, 20.0), Duration::ZERO);
            window.take(at(5), SPAN, 20.0);
        }
        assert_eq!(window.wait(at(5), SPAN, 10_000.0, 20.0), at(625), "who wants much waits");
        assert_eq!(window.wait(at(5), SPAN, 10_000.0, 1.0), Duration::ZERO, "who wants little does not");
        assert_eq!(window.wait(at(629), SPAN, 10_000.0, 20.0), at(1));
        assert_eq!(window.wait(at(630), SPAN, 10_000.0, 20.0), Duration::ZERO);
        window.evict(at(630), SPAN);
        assert!(window.is_empty());
    }

    #[test]
    fn no_span_exceeds_the_limit() {
        let mut window = SlidingWindow::default();
        let mut taken: Vec<(u64, f64)> = Vec::new();
        let mut random = 1_u64;
        for second in 0..5_000_u64 {
            window.evict(Duration::from_secs(second), SPAN);
            loop {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let amount = if random >> 60 < 4 { 20.0 } else { 1.0 };
                let now = Duration::from_secs(second);
                // At times little is wanted, at times all there is.
                if window.wait(now, SPAN, 1_000.0, amount) > Duration::ZERO || random >> 54 & 63 < (second / 250) % 64 {
                    break;
                }
                window.take(now, SPAN, amount);
                taken.push((second, amount));
            }
        }
        for (first, (begin, _)) in taken.iter().enumerate() {
            let sum: f64 = taken[first..].iter().take_while(|(at, _)| at - begin < 600).map(|(_, amount)| amount).sum();
            assert!(sum <= 1_000.0, "{sum} from {begin} on");
        }
        let total: f64 = taken.iter().map(|(_, amount)| amount).sum();
        assert!(total > 6_000.0, "and most of it is used: {total}");
    }
}
