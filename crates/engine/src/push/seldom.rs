//! What strangers can make us say is not said as often as they like.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Each reason once in this time.
const EVERY: Duration = Duration::from_secs(60);

/// When each reason was told last, and how often it came up since. Reasons are ours, so they are few.
#[derive(Debug, Default)]
pub(super) struct Seldom(Mutex<HashMap<&'static str, (Instant, u64)>>);

impl Seldom {
    /// Whether it is time to tell this; how often it was not told since the last time.
    pub fn may_tell(&self, reason: &'static str) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match told.get_mut(reason) {
            Some((at, untold)) if now.duration_since(*at) < EVERY => {
                *untold += 1;
                None
            }
            Some((at, untold)) => {
                *at = now;
                Some(std::mem::take(untold))
            }
            None => {
                told.insert(reason, (now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_told_once_with_how_much_it_was() {
        let seldom = Seldom::default();
        assert_eq!(seldom.may_tell("a"), Some(0));
        assert_eq!(seldom.may_tell("b"), Some(0));
        for _ in 0..7 {
            assert_eq!(seldom.may_tell("a"), None);
        }
        tokio::time::advance(EVERY).await;
        assert_eq!((seldom.may_tell("a"), seldom.may_tell("a")), (Some(7), None));
    }
}
