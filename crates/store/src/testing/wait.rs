//! Waiting for a state that another task, process or job brings about.

use std::time::Duration;

/// The time after which a wait is a hang: no healthy test comes near it, however busy the machine.
pub const WAIT_DEADLINE: Duration = Duration::from_secs(300);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `is_reached` answers `true`, and panics with `what` if that takes longer than [`WAIT_DEADLINE`].
pub async fn wait_until(what: &str, mut is_reached: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_reached().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    if tokio::time::timeout(WAIT_DEADLINE, waiting).await.is_err() {
        panic_for(what);
    }
}

fn panic_for(what: &str) -> ! {
    panic!("waited {} s in vain until {what}", WAIT_DEADLINE.as_secs())
}

/// The same for tests that are not async.
pub mod blocking {
    use std::time::{Duration, Instant};

    use super::{WAIT_DEADLINE, panic_for};

    /// Checks that are not async often cost a command.
    const POLL_INTERVAL: Duration = Duration::from_millis(20);

    /// Short against what is to be caught, such as the write of an object; without any pause a watcher would take a core
    /// from what it watches.
    const WATCH_INTERVAL: Duration = Duration::from_micros(100);

    /// Waits until `is_reached` answers `true`, and panics with `what` if that takes longer than [`WAIT_DEADLINE`].
    pub fn wait_until(what: &str, is_reached: impl FnMut() -> bool) {
        poll(what, is_reached, POLL_INTERVAL);
    }

    /// Like [`wait_until`], with short pauses between checks, to catch a short moment; for cheap checks.
    pub fn watch_until(what: &str, is_reached: impl FnMut() -> bool) {
        poll(what, is_reached, WATCH_INTERVAL);
    }

    fn poll(what: &str, mut is_reached: impl FnMut() -> bool, interval: Duration) {
        let started = Instant::now();
        while !is_reached() {
            if started.elapsed() >= WAIT_DEADLINE {
                panic_for(what);
            }
            std::thread::sleep(interval);
        }
    }
}
