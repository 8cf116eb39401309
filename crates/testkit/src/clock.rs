//! A clock that runs like the machine's and can be set forward.

use std::sync::Mutex;
use std::time::Duration;

use domain::{Clock, SystemClock};
use jiff::{SignedDuration, Timestamp};

/// The machine's clock and what a test has added to it. It does not stand still, so that leases and timeouts of real
/// databases and servers keep their meaning.
#[derive(Debug, Default)]
pub struct OffsetClock {
    offset: Mutex<SignedDuration>,
}

impl OffsetClock {
    pub fn advance(&self, by: Duration) {
        let mut offset = self.offset.lock().unwrap();
        *offset += SignedDuration::try_from(by).unwrap();
    }

    pub fn offset(&self) -> SignedDuration {
        *self.offset.lock().unwrap()
    }
}

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        SystemClock.now() + self.offset()
    }
}
