//! An IMAP server that does not exist: IMAP4rev1 (RFC 3501) with what newer servers offer beside it, and what goes wrong there.
//!
//! [`Account`] is one mailbox, out of nothing but a seed and what is done to it. [`World`] holds many of them and who may read
//! them; [`Server`] shows it to mail programs, with a control API over HTTP. A command that is none, or that was not offered, is
//! BAD and kept as a violation. `docs/providers/imap-simulator.md` tells how it is steered.

mod account;
mod control;
mod faults;
mod folders;
mod operation;
mod server;
mod session;
mod step;
mod truth;
mod utf7;
mod world;

pub use account::{Account, Refused};
pub use faults::{Fault, Kind, Route, can_happen};
pub use folders::Role;
pub use operation::{Applied, Operation};
pub use server::Server;
pub(crate) use server::{routes, start_tasks};
pub use truth::{Truth, TruthFolder, TruthMessage};
pub use world::{CAPABILITIES, NewAccount, Now, PASSWORD, World};

pub use crate::spec::{Side, Violation};

/// Who sent which command, by kind.
pub type Entry = crate::requests::Entry<Route>;
pub type Counts = crate::requests::Counts<Route>;
pub type Counted = crate::requests::Counted<Route>;
