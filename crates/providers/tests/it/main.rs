//! Tests of the connectors against the simulators of `sim`, and against hostile servers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod contract;
mod directories;
mod endpoint;
mod gmail;
mod google_oauth;
mod imap;
mod jmap;
mod microsoft_oauth;
mod outlook;
