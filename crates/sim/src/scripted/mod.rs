//! The scripted source: mailboxes that change all the time, and a provider that does everything providers do wrong.
//!
//! [`Account`] is the state: folders, messages, places and a log of changes, out of nothing but a seed and what is done to
//! it. [`Server`] shows many of them over HTTP, with faults and a control API. `docs/providers/scripted.md` tells how it
//! is spoken to.

mod account;
mod faults;
mod letters;
mod operation;
mod pages;
mod server;
mod step;
mod truth;

pub use account::{Account, FolderId, MessageId, Refused, Role, Uid};
pub use faults::{Fault, Kind, Route};
pub(crate) use letters::Letter;
pub use letters::{Letters, Raw};
pub use operation::Operation;
pub use pages::{Listing, Page, Present, SeenFolder, SeenMessage, SeenPlace};
pub use server::{NewAccount, Now, Server, World};
pub(crate) use server::{change, routes};
pub use truth::{Truth, TruthFolder, TruthPlace};
