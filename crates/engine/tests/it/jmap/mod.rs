//! JMAP mailboxes, synced by the engine from the simulator and, by `make test-imap`, from a Cyrus.

mod cyrus;
mod mailbox_life;
