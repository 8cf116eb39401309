//! The queries, a file per table family. Written once in the SQL that both databases share; where the texts must
//! differ, the two stand side by side.

pub mod answers;
pub mod attachments;
pub mod audit;
pub mod blobs;
pub mod collect;
pub mod directories;
pub mod discard;
pub mod emails;
pub mod erase;
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
pub mod pushes;
pub mod schedules;
pub mod search;
pub mod secrets;
pub mod subscriptions;
pub mod summaries;
pub mod sync;
pub mod system;
pub mod tenants;
pub mod tokens;
pub mod usage;
pub mod users;
pub mod verify;
pub mod watches;
pub mod webhook_deliveries;
pub mod webhooks;

use crate::value::Kind;
use crate::{Dialect, Value};

/// `column` is one of the list bound as `$n`.
pub(crate) fn any(dialect: Dialect, column: &str, n: usize) -> String {
    match dialect {
        Dialect::Postgres => format!("{column} = any(${n})"),
        Dialect::Sqlite => format!("{column} in (select value from json_each(${n}))"),
    }
}

/// Rows that are given along, as `g` with these columns; and the parameters for that, from `$first` on.
pub(crate) fn given(
    dialect: Dialect,
    first: usize,
    columns: &[(&str, Kind)],
    rows: Vec<Vec<Value>>,
) -> (String, Vec<Value>) {
    match dialect {
        Dialect::Postgres => {
            let mut lists: Vec<Vec<Value>> = columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
            for row in rows {
                lists.iter_mut().zip(row).for_each(|(list, value)| list.push(value));
            }
            let list = |(n, (_, kind)): (usize, &(&str, Kind))| format!("${}::{}[]", first + n, kind.postgres());
            let given: Vec<String> = columns.iter().enumerate().map(list).collect();
            let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            let sql = format!("unnest({}) as g ({})", given.join(", "), names.join(", "));
            (sql, lists.into_iter().map(Value::List).collect())
        }
        Dialect::Sqlite => {
            let column = |(n, (name, _)): (usize, &(&str, Kind))| format!("value ->> {n} as {name}");
            let names: Vec<String> = columns.iter().enumerate().map(column).collect();
            let sql = format!("(select {} from json_each(${first})) as g", names.join(", "));
            (sql, vec![Value::List(rows.into_iter().map(Value::List).collect())])
        }
    }
}

/// At most this many characters, so that an index entry always fits (PostgreSQL refuses over 2,704 bytes).
pub(crate) fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}
