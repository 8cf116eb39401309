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
        panic!("waited {} s in vain until {what}", WAIT_DEADLINE.as_secs());
    }
}
