//! A Google that does not exist: sign-in, the Gmail API, its batches, quotas and pushes, and everything that goes wrong there.
//!
//! [`Account`] is one mailbox, out of nothing but a seed and what is done to it. [`World`] holds many of them, who may read
//! them, and what goes wrong; [`Server`] shows it over HTTP, with a control API. Every request and every answer is held
//! against Google's own description ([`spec`]). `docs/providers/gmail-simulator.md` tells how it is steered.

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
mod search;
mod server;
pub mod spec;
mod step;
mod truth;
mod world;

pub use account::{Account, Refused};
pub use faults::{Fault, Kind, Route, can_happen};
pub use labels::LabelId;
pub use oauth::{CLIENT_ID, CLIENT_SECRET, Client, Counts as TokenCounts, Granted, READONLY, ServiceAccount};
pub use operation::{Applied, Operation, RawBytes};
pub use push::{Counts as PushCounts, Endpoint};
pub use quota::Limits;
pub use server::Server;
pub(crate) use server::{routes, start_tasks};
pub use truth::{Truth, TruthMessage};
pub use world::{NewAccount, Now, World};

pub use crate::consent::Consent;
pub use crate::letters::Letters;
pub use crate::spec::{Side, Violation};

/// Who asked what, by Google's routes.
pub type Entry = crate::requests::Entry<Route>;
pub type Counts = crate::requests::Counts<Route>;
pub type Counted = crate::requests::Counted<Route>;
