//! A simulated Microsoft: the identity platform, Graph mail with batches, limits and change notifications, and
//! injected faults.
//!
//! [`OutlookAccount`] is one mailbox, determined by its seed and the operations applied to it. [`MicrosoftWorld`]
//! holds all mailboxes, tokens and fault rules; [`MicrosoftServer`] serves it over HTTP, with a control API. Every
//! request and response is checked against Microsoft's API description (`spec`). `docs/providers/outlook-simulator.md`
//! documents the control API.

mod account;
mod api;
mod attachment;
mod control;
mod directory;
mod error;
mod faults;
mod filter;
mod folders;
mod identity;
mod ids;
mod link_state;
mod message_view;
mod operation;
mod random_changes;
mod spec;
mod subscriptions;
mod throttle;
mod truth;
mod user_filter;
mod world;

pub use account::{OutlookAccount, OutlookOperationError};
pub use directory::{CONSUMERS, Directory, DirectoryChange};
pub use faults::{MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute};
pub use identity::{
    CLIENT_ID, CLIENT_SECRET, MicrosoftClient, MicrosoftTokenCounts, SCOPES, certificate_key_pem, certificate_pem,
    certificate_thumbprint, sign_as_client,
};
pub use operation::{OutlookOperation, OutlookOperationOutcome, RawBytes};
pub use subscriptions::{LifecycleEvent, NotificationCounts, NotificationSettings as Notifications, Subscription};
pub use throttle::OutlookLimits;
pub use truth::{OutlookFolderTruth, OutlookMessageTruth, OutlookTruth};
pub use world::{MicrosoftServer, MicrosoftWorld};

pub use crate::consent::{Consent, IssuedTokens};
pub use crate::faults::can_happen;
pub use crate::provider_core::Now;
pub use crate::spec::{Side, Violation};
pub use crate::world::AccountSpec;
