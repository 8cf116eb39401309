//! What other crates rely on when they ask for mail.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod client;
mod control;
mod google;
mod imap;
mod mailbox;
mod microsoft;
mod scripted;
