//! Integration tests of the simulators and the mail generator.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod client;
mod google;
mod harness;
mod imap;
mod mailbox;
mod microsoft;
