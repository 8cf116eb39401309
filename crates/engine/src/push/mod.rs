//! Providers that call us when something happens in a mailbox. A push says "look", never "what": it asks for the same job
//! as the clock does, and losing all of them costs one interval.
//!
//! What comes in is checked and read by the way of each provider ([`gmail`], [`graph`]), and recorded with the looks that
//! follow by one ([`record`]). What a provider is asked for, so that it calls, is in [`watching`], and in [`subscribing`]
//! where that is one thing of the account.

mod gmail;
mod graph;
mod passwords;
mod record;
mod seldom;
mod standing;
mod subscribing;
mod watching;

use domain::Provider;

pub use gmail::{GmailPushes, PushSettings, Refused};
pub use graph::{GraphPushes, NotTaken};
pub use passwords::Passwords;
use seldom::Seldom;
pub use standing::{PushState, Standing, find_standing};
pub(crate) use watching::{Unstopped, watch_at_last, watch_soon};

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Mailboxes are looked at.
    Accepted,
    /// It has come before.
    Repeated,
    /// No mailbox that is at work is that account, or nobody knows which one it is.
    Unknown,
    /// It does not say what only the provider knows.
    Forbidden,
    /// It makes no sense, and would make none if it came again.
    Malformed,
}

impl Outcome {
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
    metrics::counter!("mailroom_pushes_total", "provider" => provider.as_str(), "outcome" => outcome).increment(1);
}
