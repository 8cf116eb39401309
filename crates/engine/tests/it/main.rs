//! What the engine promises, on SQLite and on PostgreSQL.

#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

mod calls;
mod deletion;
mod directory;
mod erasure;
mod events;
mod fault_table;
mod gate;
mod gmail;
mod imap;
mod jmap;
mod limits;
mod mailbox_listeners;
mod operations;
mod outlook;
mod push;
mod refused_messages;
mod reindex;
mod schedule;
mod search_agrees;
mod secrets;
mod sync;
mod tokens;
mod usage;
mod webhooks;
