//! A simulated JMAP server (RFC 8620 and RFC 8621): session, mail methods, downloads, event source, and injected faults.
//!
//! [`JmapAccount`] is one account, determined by its seed and the operations applied to it. [`JmapWorld`] holds all accounts
//! and passwords; [`JmapServer`] serves it over HTTP, with a control API. A request that the RFCs do not allow is refused and
//! recorded as a violation. `docs/providers/jmap-simulator.md` documents the control API.

mod account;
mod api;
mod change_log;
mod control;
mod faults;
mod folders;
mod operation;
mod query;
mod random_changes;
mod truth;
mod world;

pub use account::{JmapAccount, JmapOperationError};
pub use faults::{JmapFault, JmapFaultKind, JmapRoute};
pub use folders::MailboxRole;
pub use operation::{JmapOperation, JmapOperationOutcome};
pub use truth::{JmapFolderTruth, JmapMessageTruth, JmapTruth};
pub use world::{JMAP_PASSWORD, JmapServer, JmapWorld};

pub use crate::provider_core::Now;
pub use crate::spec::{Side, Violation};
pub use crate::world::AccountSpec;
