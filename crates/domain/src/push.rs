//! The interface to a provider's pushes: its calls of our server when something happens in an account. A reader verifies
//! and translates; what follows from a push is its caller's.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::{Clock, Provider, Secret};

/// The result of verifying a push, once it has been awaited.
pub type PushVerification<'a> = Pin<Box<dyn Future<Output = Result<(), PushRefusal>> + Send + 'a>>;

/// The notifications of one call in their order, or why one of them is malformed.
pub type PushBatch = Vec<Result<PushNotification, &'static str>>;

/// Verifies and parses the pushes of one provider.
pub trait PushReader: Send + Sync + fmt::Debug {
    fn provider(&self) -> Provider;

    /// Returns how its calls are received.
    fn endpoint(&self) -> &'static PushEndpoint;

    /// Verifies that a call comes from the provider, by the token that came with it. Nothing else of the call is read
    /// before. A provider whose calls have no token authenticates each notification instead; see
    /// [`PushSubject::Subscription`].
    fn verify<'a>(&'a self, token: Option<&'a str>, clock: &'a dyn Clock) -> PushVerification<'a>;

    /// Parses the body of a call. The error says what is wrong, and nothing of the content.
    fn read(&self, body: &[u8]) -> Result<PushBatch, &'static str>;
}

/// A notification about one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushNotification {
    /// The id that the provider gives it, however often it delivers it. `None`: a repetition is not recognised.
    pub id: Option<String>,
    pub subject: PushSubject,
    pub kind: PushKind,
}

/// Whose account a notification is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushSubject {
    /// The account's address in canonical case, named by a call that is authenticated as a whole.
    Account(String),
    /// A subscription, with the secret that only the provider and the process that subscribed know.
    Subscription { id: String, client_state: Secret<String> },
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushKind {
    /// Something has changed in the account.
    Changed,
    /// Something was deleted, which only a sweep of every folder may show.
    Deleted,
    /// The watch expires unless it is renewed.
    WatchExpiring,
    /// The watch has ended.
    WatchEnded,
    /// The provider could not deliver all pushes.
    Missed,
}

/// Why a call is refused; for people, and without anything of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushRefusal {
    /// The token is missing or not valid.
    Unauthorized(&'static str),
    /// The provider has signed the token, but not for us or not for our account there.
    Forbidden(&'static str),
    /// The keys of the issuer are not at hand, so the token cannot be checked now.
    NoKeys(&'static str),
}

/// How the calls of a provider are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushEndpoint {
    pub max_body_bytes: usize,
    /// How long a call may take: what cannot be recorded by then is refused, and only so many calls wait at once. `None`:
    /// the provider waits as long as we do.
    pub deadline: Option<Duration>,
    /// The HTTP status of a call that was recorded.
    pub recorded_status: u16,
    /// Whether a malformed body is answered in the same way, because the provider would only send it again.
    pub accepts_malformed: bool,
    /// The query parameter whose value is sent back, by which the provider makes sure that the URL is ours.
    pub validation_parameter: Option<&'static str>,
}

impl PushRefusal {
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unauthorized(reason) | Self::Forbidden(reason) | Self::NoKeys(reason) => reason,
        }
    }

    /// Returns the outcome, as a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized(_) => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::NoKeys(_) => "no_keys",
        }
    }
}
