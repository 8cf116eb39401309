//! A simulated IMAP server: IMAP4rev1 (RFC 3501) with common extensions, and injected faults.
//!
//! [`ImapAccount`] is one mailbox, determined by its seed and the operations applied to it. [`ImapWorld`] holds all
//! mailboxes and passwords; [`ImapServer`] serves IMAP, with a control API over HTTP. A command that is invalid or not
//! offered is BAD and recorded as a violation. `docs/providers/imap-simulator.md` documents the control API.

mod account;
mod control;
mod faults;
mod folders;
mod operation;
mod random_changes;
mod server;
mod session;
mod truth;
mod utf7;
mod world;

pub use account::{ImapAccount, ImapOperationError};
pub use faults::{ImapFault, ImapFaultKind, ImapRoute};
pub use folders::SpecialUse;
pub use operation::{ImapOperation, ImapOperationOutcome};
pub use server::ImapServer;
pub(crate) use server::{routes, start_tasks};
pub use truth::{ImapFolderTruth, ImapMessageTruth, ImapTruth};
pub use world::{CAPABILITIES, ImapWorld, PASSWORD};

pub use crate::faults::can_happen;
pub use crate::provider_core::Now;
pub use crate::spec::{Side, Violation};
pub use crate::world::AccountSpec;
