//! What was taken in the last while, for limits that let everything go at once and give it back only when that while has
//! passed. Counted in slots of time: what was taken in one comes back when the last of it must.

use std::collections::BTreeMap;
use std::time::Duration;

/// More of them waste less of the limit, and are more to remember.
pub const SLOTS: u32 = 20;

/// Whoever wants much at once leaves some to those who want little: news come in between what is old.
pub const MUCH: f64 = 10.0;
pub const LEFT_TO_OTHERS: f64 = 0.05;

/// Times are counted from any moment, always the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    taken: BTreeMap<u64, f64>,
}

impl Window {
    /// How long until there is room for so much more.
    pub fn wait(&self, now: Duration, span: Duration, limit: f64, amount: f64) -> Duration {
        let room = room(limit, amount);
        let mut taken: f64 = self.still_taken(now, span).map(|(_, amount)| amount).sum();
        let mut wait = Duration::ZERO;
        for (back_at, slot) in self.still_taken(now, span) {
            if taken + amount <= room {
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

    pub fn forget(&mut self, now: Duration, span: Duration) {
        self.taken.retain(|slot, _| back_at(*slot, span) > now);
    }

    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    fn still_taken(&self, now: Duration, span: Duration) -> impl Iterator<Item = (Duration, f64)> {
        self.taken.iter().map(move |(slot, amount)| (back_at(*slot, span), *amount)).filter(move |(at, _)| *at > now)
    }
}

/// What may be taken in all by somebody who wants so much; what is more than that is let through when nothing is taken.
pub fn room(limit: f64, amount: f64) -> f64 {
    if amount >= MUCH { limit * (1.0 - LEFT_TO_OTHERS) } else { limit }
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
    fn all_of_it_goes_at_once_and_comes_back_when_its_time_has_passed() {
        let mut window = Window::default();
        let at = Duration::from_secs;
        for _ in 0..475 {
            assert_eq!(window.wait(at(5), SPAN, 10_000.0, 20.0), Duration::ZERO);
            window.take(at(5), SPAN, 20.0);
        }
        assert_eq!(window.wait(at(5), SPAN, 10_000.0, 20.0), at(625), "who wants much waits");
        assert_eq!(window.wait(at(5), SPAN, 10_000.0, 1.0), Duration::ZERO, "who wants little does not");
        assert_eq!(window.wait(at(629), SPAN, 10_000.0, 20.0), at(1));
        assert_eq!(window.wait(at(630), SPAN, 10_000.0, 20.0), Duration::ZERO);
        window.forget(at(630), SPAN);
        assert!(window.is_empty());
    }

    #[test]
    fn no_while_takes_more_than_the_limit_wherever_it_begins() {
        let mut window = Window::default();
        let mut taken: Vec<(u64, f64)> = Vec::new();
        let mut dice = 1_u64;
        for second in 0..5_000_u64 {
            window.forget(Duration::from_secs(second), SPAN);
            loop {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let amount = if dice >> 60 < 4 { 20.0 } else { 1.0 };
                let now = Duration::from_secs(second);
                // At times little is wanted, at times all there is.
                if window.wait(now, SPAN, 1_000.0, amount) > Duration::ZERO || dice >> 54 & 63 < (second / 250) % 64 {
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
