//! What other crates rely on when they ask for mail.

mod mailbox;
