//! Time as an argument, so that tests can move it.

use std::fmt::Debug;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;

/// A source of the current time.
pub trait Clock: Debug + Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the one place where time comes from")]
        Timestamp::now()
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct TestClock(Mutex<Timestamp>);

impl TestClock {
    pub fn at(start: Timestamp) -> Self {
        Self(Mutex::new(start))
    }

    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().expect("no test panics while it holds the clock");
        *now += by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().expect("no test panics while it holds the clock")
    }
}
