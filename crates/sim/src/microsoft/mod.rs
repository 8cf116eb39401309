//! A Microsoft that does not exist: its identity platform, mail over Graph, its batches, limits and change notifications, and
//! everything that goes wrong there.
//!
//! [`World`] holds accounts, who may read them, and what goes wrong; [`Server`] shows it over HTTP, with a control API. Every
//! request and every answer is held against Microsoft's own description (`spec`). `docs/providers/outlook-simulator.md`
//! tells how it is steered.

mod api;
mod control;
mod directory;
mod error;
mod faults;
mod identity;
mod server;
mod spec;
mod world;

pub use directory::{CONSUMERS, Directory, DirectoryChange};
pub use faults::{Fault, Kind, Route, can_happen};
pub use identity::{
    CLIENT_ID, CLIENT_SECRET, Client, Counts as TokenCounts, SCOPES, certificate_key_pem, certificate_pem,
    certificate_thumbprint, sign_as_client,
};
pub use server::Server;
pub(crate) use server::{routes, start_tasks};
pub use world::{NewAccount, Now, World};

pub use crate::consent::{Consent, Granted};
pub use crate::spec::{Side, Violation};

/// Who asked what, by Microsoft's routes.
pub type Entry = crate::requests::Entry<Route>;
pub type Counts = crate::requests::Counts<Route>;
pub type Counted = crate::requests::Counted<Route>;
