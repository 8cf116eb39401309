//! A Microsoft that does not exist: its identity platform, mail over Graph, its batches, limits and change notifications, and
//! everything that goes wrong there.
//!
//! [`Account`] is one mailbox, out of nothing but a seed and what is done to it. [`World`] holds many of them, who may read them, and what goes wrong; [`Server`] shows it over HTTP, with a control API. Every
//! request and every answer is held against Microsoft's own description (`spec`). `docs/providers/outlook-simulator.md`
//! tells how it is steered.

mod account;
mod api;
mod attachment;
mod control;
mod directory;
mod error;
mod face;
mod faults;
mod filter;
mod folders;
mod identity;
mod ids;
mod links;
mod operation;
mod people_filter;
mod server;
mod spec;
mod step;
mod subscriptions;
mod throttle;
mod truth;
mod world;

pub use account::{Account, Refused};
pub use directory::{CONSUMERS, Directory, DirectoryChange};
pub use faults::{Fault, Kind, Route, can_happen};
pub use identity::{
    CLIENT_ID, CLIENT_SECRET, Client, Counts as TokenCounts, SCOPES, certificate_key_pem, certificate_pem,
    certificate_thumbprint, sign_as_client,
};
pub use operation::{Applied, Operation, RawBytes};
pub use server::Server;
pub(crate) use server::{routes, start_tasks};
pub use subscriptions::{Counts as NotificationCounts, LifecycleEvent, Settings as Notifications, Subscription};
pub use throttle::Limits;
pub use truth::{Truth, TruthFolder, TruthMessage};
pub use world::{NewAccount, Now, World};

pub use crate::consent::{Consent, Granted};
pub use crate::spec::{Side, Violation};

/// Who asked what, by Microsoft's routes.
pub type Entry = crate::requests::Entry<Route>;
pub type Counts = crate::requests::Counts<Route>;
pub type Counted = crate::requests::Counted<Route>;
