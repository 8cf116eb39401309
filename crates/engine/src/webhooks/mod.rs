//! Events go to whoever wants to be told of them, signed, until they came through.
//!
//! Each webhook has a place among its tenant's events. A worker that holds it sends what comes after that place and what
//! is to be tried again, and records both in one unit. An id is derived from webhook and event, so whoever has to repeat a
//! send that was not recorded repeats it under the same id.

pub mod address;
mod deliver;
mod dispatch;
mod endpoints;
pub mod resolve;
mod schedule;
mod send;
pub mod sign;
pub mod url;

pub use address::{Network, Policy};
pub use deliver::Courier;
pub use dispatch::{DispatchSettings, dispatch};
pub use endpoints::{Drafted, Refused, Rotated, Wanted, check_types, draft, rotate};
pub use resolve::{Resolver, SystemResolver};
pub use send::{Message, Outcome, Sender, Sent};
