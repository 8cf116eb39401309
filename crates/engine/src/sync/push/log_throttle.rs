//! A throttle for log lines that strangers can cause: each reason is logged at most once per interval.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The interval between two log lines of one reason.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// When each reason was logged last, and how many log lines were suppressed since. Reasons are ours, so they are few.
#[derive(Debug, Default)]
pub(super) struct LogThrottle(Mutex<HashMap<&'static str, (Instant, u64)>>);

impl LogThrottle {
    /// Returns the number of suppressed log lines if this reason may be logged now, and `None` if not.
    pub fn allow(&self, reason: &'static str) -> Option<u64> {
        let mut last_logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match last_logged.get_mut(reason) {
            Some((at, suppressed)) if now.duration_since(*at) < LOG_INTERVAL => {
                *suppressed += 1;
                None
            }
            Some((at, suppressed)) => {
                *at = now;
                Some(std::mem::take(suppressed))
            }
            None => {
                last_logged.insert(reason, (now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn storm_is_logged_once_with_its_count() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.allow("a"), Some(0));
        assert_eq!(throttle.allow("b"), Some(0));
        for _ in 0..7 {
            assert_eq!(throttle.allow("a"), None);
        }
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!((throttle.allow("a"), throttle.allow("a")), (Some(7), None));
    }
}
