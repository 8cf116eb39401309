//! Connectors against the servers of `sim`, and against servers that mean harm.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod directories;
mod endpoint;
mod faults;
mod follow;
mod gmail;
mod google_oauth;
mod hostile;
mod imap;
mod microsoft_oauth;
mod mirror;
mod model;
mod outlook;
mod place;
