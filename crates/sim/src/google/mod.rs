//! A simulated Google: OAuth, the Gmail API with batches, quotas and pushes, the directory API, and injected faults.
//!
//! [`GmailAccount`] is one mailbox, determined by its seed and the operations applied to it. [`GoogleWorld`] holds all
//! mailboxes, tokens and fault rules; [`GoogleServer`] serves it over HTTP, with a control API. Every request and
//! response is checked against Google's API description ([`spec`]). `docs/providers/gmail-simulator.md` documents the
//! control API.

mod account;
mod api;
mod control;
mod error;
mod faults;
mod history;
mod labels;
mod oauth;
mod operation;
mod push;
mod quota;
mod random_changes;
mod search;
pub mod spec;
mod truth;
mod world;

pub use account::{GmailAccount, GmailOperationError};
pub use faults::{GoogleFault, GoogleFaultKind, GoogleRoute};
pub use labels::LabelId;
pub use oauth::{CLIENT_ID, CLIENT_SECRET, GoogleClient, GoogleTokenCounts, IssuedTokens, READONLY, ServiceAccount};
pub use operation::{GmailOperation, GmailOperationOutcome, RawBytes};
pub use push::{PushCounts, PushEndpoint};
pub use quota::GmailLimits;
pub use truth::{GmailMessageTruth, GmailTruth};
pub use world::{GoogleServer, GoogleWorld};

pub use crate::consent::Consent;
pub use crate::faults::can_happen;
pub use crate::letter_pool::LetterPool;
pub use crate::provider_core::Now;
pub use crate::spec::{Side, Violation};
pub use crate::world::AccountSpec;
