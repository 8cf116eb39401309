//! Pushes: calls of providers when something happens in a mailbox. A push only requests a sync, the same job that the
//! scheduler enqueues, and losing all pushes costs one interval.
//!
//! A provider's [`PushReader`](domain::PushReader) verifies and parses them; they are authenticated ([`receive`]) and
//! recorded together with the syncs that follow ([`record`]). [`watches`] requests and renews them at the provider,
//! through [`subscriptions`] where a watch belongs to the account.

mod client_state;
mod log_throttle;
mod receive;
mod record;
mod subscriptions;
mod watch_status;
mod watches;

use domain::Provider;
use domain::metrics as catalogue;

pub use client_state::ClientStates;
use log_throttle::LogThrottle;
pub use receive::{PushError, PushReceiver};
pub use watch_status::{PushState, PushStatus, find_push_status};
pub(crate) use watches::{StopWatchError, request_watch, request_watch_again};

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// Syncs were enqueued.
    Accepted,
    /// It was recorded before.
    Repeated,
    /// No active mailbox has that account, or the account is not known.
    Unknown,
    /// It is not authenticated.
    Forbidden,
    /// It cannot be parsed; a repetition would not help.
    Malformed,
}

impl PushOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Repeated => "repeated",
            Self::Unknown => "unknown",
            Self::Forbidden => "forbidden",
            Self::Malformed => "malformed",
        }
    }
}

fn count(provider: Provider, outcome: &'static str) {
    metrics::counter!(catalogue::PUSHES, "provider" => provider.as_str(), "outcome" => outcome).increment(1);
}
