//! The queries, a file per table family. Written once in the SQL that both databases share; where the texts must
//! differ, the two stand side by side.

pub mod access_tokens;
pub mod attachments;
pub mod audit;
pub mod blob_collection;
pub mod blobs;
pub mod directories;
pub mod email_deletion;
pub mod emails;
pub mod event_gaps;
pub mod events;
pub mod folders;
pub mod idempotency;
pub mod ingest;
pub mod jobs;
pub mod keys;
pub mod leases;
pub mod ledger;
mod legal_hold;
pub(crate) mod mailbox_settings;
pub mod mailboxes;
pub mod object_holds;
pub mod purge;
pub mod pushes;
pub mod reindex;
pub mod schedules;
pub mod search;
pub mod secrets;
pub mod sql_readers;
pub mod subscriptions;
pub mod summaries;
pub mod sync;
pub mod system;
pub mod tenant_erasure;
pub mod tenants;
pub mod usage;
pub mod users;
pub mod verify;
pub mod watches;
pub mod webhook_deliveries;
pub mod webhooks;

use crate::value::ColumnType;
use crate::{Dialect, Value};

/// Returns the condition that `column` is one of the list bound as `$n`.
pub(crate) fn any(dialect: Dialect, column: &str, n: usize) -> String {
    match dialect {
        Dialect::Postgres => format!("{column} = any(${n})"),
        Dialect::Sqlite => format!("{column} in (select value from json_each(${n}))"),
    }
}

/// Returns a list of columns as those of `table`, for queries over several tables.
pub(crate) fn columns_of(table: &str, columns: &str) -> String {
    columns.split(',').map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(", ")
}

/// Returns how many columns a list has: where those begin that a query reads after them.
pub(crate) const fn column_count(columns: &str) -> usize {
    let (mut count, mut at) = (1, 0);
    while at < columns.len() {
        if columns.as_bytes()[at] == b',' {
            count += 1;
        }
        at += 1;
    }
    count
}

/// Returns a table `g` of the given rows, and its parameters, from `$first` on.
pub(crate) fn given_rows(
    dialect: Dialect,
    first: usize,
    columns: &[(&str, ColumnType)],
    rows: Vec<Vec<Value>>,
) -> (String, Vec<Value>) {
    match dialect {
        Dialect::Postgres => {
            let mut lists: Vec<Vec<Value>> = columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
            for row in rows {
                lists.iter_mut().zip(row).for_each(|(list, value)| list.push(value));
            }
            let given: Vec<String> = columns
                .iter()
                .enumerate()
                .map(|(n, (_, kind)): (usize, &(&str, ColumnType))| format!("${}::{}[]", first + n, kind.postgres()))
                .collect();
            let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            let sql = format!("unnest({}) as g ({})", given.join(", "), names.join(", "));
            (sql, lists.into_iter().map(Value::List).collect())
        }
        Dialect::Sqlite => {
            let names: Vec<String> = columns
                .iter()
                .enumerate()
                .map(|(n, (name, _)): (usize, &(&str, ColumnType))| format!("value ->> {n} as {name}"))
                .collect();
            let sql = format!("(select {} from json_each(${first})) as g", names.join(", "));
            (sql, vec![Value::List(rows.into_iter().map(Value::List).collect())])
        }
    }
}

/// Cuts a text to at most this many characters, so that an index entry always fits (PostgreSQL refuses over 2,704 bytes).
pub(crate) fn truncate_chars(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}
