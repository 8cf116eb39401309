//! What other crates rely on when they ask for mail.

mod demo;
mod mailbox;
