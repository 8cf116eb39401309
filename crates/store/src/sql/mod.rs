//! The queries, a file per table family. Written once in the SQL that both databases share; where the texts must
//! differ, the two stand side by side.

pub mod attachments;
pub mod blobs;
pub mod collect;
pub mod emails;
pub mod events;
pub mod folders;
pub mod holds;
pub mod ingest;
pub mod jobs;
pub mod keys;
pub mod leases;
pub mod ledger;
pub mod mailboxes;
pub mod purge;
pub mod schedules;
pub mod search;
pub mod secrets;
pub mod sync;
pub mod system;
pub mod tenants;
pub mod verify;

use crate::Dialect;

/// `column` is one of the list bound as `$n`.
pub(crate) fn any(dialect: Dialect, column: &str, n: usize) -> String {
    match dialect {
        Dialect::Postgres => format!("{column} = any(${n})"),
        Dialect::Sqlite => format!("{column} in (select value from json_each(${n}))"),
    }
}

/// At most this many characters, so that an index entry always fits (PostgreSQL refuses over 2,704 bytes).
pub(crate) fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}
