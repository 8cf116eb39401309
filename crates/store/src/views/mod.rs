//! The SQL views: what people and programs of theirs may query, under names that stay.
//!
//! A view shows some columns of one table. From the [`catalogue`] come the views of both databases, the columns that
//! readers of PostgreSQL are granted, and `docs/sql-schema.md`.

pub mod catalogue;
pub mod page;

use crate::Dialect;
pub use catalogue::VIEWS;

/// A view over one table.
#[derive(Debug)]
pub struct SqlView {
    pub name: &'static str,
    pub table: &'static str,
    pub meaning: &'static str,
    pub columns: &'static [ViewColumn],
}

#[derive(Debug)]
pub struct ViewColumn {
    pub name: &'static str,
    /// The column of the table that it is made from.
    pub source: &'static str,
    pub kind: ViewColumnKind,
    pub meaning: &'static str,
}

/// What a column holds, and so how either database shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewColumnKind {
    Id,
    Text,
    Number,
    Truth,
    Time,
    /// The day of a time in UTC, as text that both databases write alike.
    Day,
    /// The month of a time, likewise.
    Month,
    /// A hash, as hex text.
    Hash,
    Json,
}

impl ViewColumn {
    fn expression(&self, dialect: Dialect) -> String {
        let source = self.source;
        match (self.kind, dialect) {
            (ViewColumnKind::Day, Dialect::Sqlite) => format!("substr({source}, 1, 10)"),
            (ViewColumnKind::Day, Dialect::Postgres) => format!("to_char({source} at time zone 'UTC', 'YYYY-MM-DD')"),
            (ViewColumnKind::Month, Dialect::Sqlite) => format!("substr({source}, 1, 7)"),
            (ViewColumnKind::Month, Dialect::Postgres) => format!("to_char({source} at time zone 'UTC', 'YYYY-MM')"),
            (ViewColumnKind::Hash, Dialect::Postgres) => format!("encode({source}, 'hex')"),
            _ => source.to_owned(),
        }
    }
}

impl SqlView {
    /// Returns the query of the view, over `table` as the database is to find it.
    fn query(&self, dialect: Dialect, table: &str) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|column| format!("{} as {}", column.expression(dialect), column.name)).collect();
        format!("select {} from {table}", columns.join(", "))
    }

    /// Returns the query over the table of an attached SQLite database, of one tenant's rows or of all.
    pub(crate) fn sqlite_query(&self, database: &str, tenant: Option<domain::TenantId>) -> String {
        let query = self.query(Dialect::Sqlite, &format!("{database}.{}", self.table));
        let Some(tenant) = tenant else { return query };
        format!("{query} where {} = '{tenant}'", self.tenant_column())
    }

    /// Returns the column of the table that names the tenant.
    fn tenant_column(&self) -> &'static str {
        let column = self.columns.iter().find(|column| column.name == "tenant_id");
        column.expect("every view has a tenant_id; a test reads them all").source
    }
}

/// Returns the name and the text of each view, as SQLite keeps it.
pub(crate) fn sqlite_definitions() -> Vec<(&'static str, String)> {
    let text = |view: &SqlView| format!("CREATE VIEW {} AS {}", view.name, view.query(Dialect::Sqlite, view.table));
    VIEWS.iter().map(|view| (view.name, text(view))).collect()
}

/// Returns the calls that state the views on PostgreSQL, with what psql's `\d+` says of them.
pub(crate) fn postgres_statements() -> String {
    VIEWS.iter().map(postgres_statement).collect()
}

fn postgres_statement(view: &SqlView) -> String {
    let columns = view.columns.iter().map(|column| (column.name, column.meaning));
    let comments: serde_json::Map<String, serde_json::Value> =
        columns.chain([("", view.meaning)]).map(|(name, meaning)| (name.to_owned(), meaning.into())).collect();
    let (name, query) = (view.name, view.query(Dialect::Postgres, view.table));
    let comments = serde_json::Value::Object(comments);
    format!("perform mailroom_state_view('{name}', $view${query}$view$, $view${comments}$view$);\n")
}

/// Returns the columns that readers may read of the tables behind the views, as rows of SQL: `('emails', 'id'), …`.
pub(crate) fn readable_columns() -> String {
    let mut rows: Vec<String> = VIEWS
        .iter()
        .flat_map(|view| view.columns.iter().map(|column| format!("('{}', '{}')", view.table, column.source)))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    rows.join(", ")
}

/// Returns the views with their columns in order, as rows of SQL: `('mailroom_emails', 'email_id, …'), …`.
pub(crate) fn view_columns() -> String {
    let row = |view: &SqlView| {
        let columns: Vec<&str> = view.columns.iter().map(|column| column.name).collect();
        format!("('{}', '{}')", view.name, columns.join(", "))
    };
    VIEWS.iter().map(row).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn views_and_their_columns_are_named_once() {
        let names: BTreeSet<&str> = VIEWS.iter().map(|view| view.name).collect();
        assert_eq!(names.len(), VIEWS.len());
        for view in VIEWS {
            let columns: BTreeSet<&str> = view.columns.iter().map(|column| column.name).collect();
            assert_eq!(columns.len(), view.columns.len(), "{}", view.name);
            assert!(view.name.starts_with("mailroom_") && !view.tenant_column().is_empty(), "{}", view.name);
        }
    }

    /// What is quoted into the SQL above needs no escaping.
    #[test]
    fn meanings_are_sentences_without_quotes() {
        for view in VIEWS {
            for meaning in view.columns.iter().map(|column| column.meaning).chain([view.meaning]) {
                assert!(meaning.ends_with('.') && !meaning.contains(['$', '|', '"']), "{}: {meaning}", view.name);
            }
        }
    }

    /// Kept replies, credentials, tokens and arguments of jobs are behind no view.
    #[test]
    fn no_view_shows_secrets() {
        let shown: BTreeSet<&str> = VIEWS.iter().map(|view| view.table).collect();
        let allowed = BTreeSet::from([
            "attachments",
            "email_recipients",
            "emails",
            "events",
            "folders",
            "ledger",
            "mailboxes",
            "placements",
            "sync_states",
            "tenants",
        ]);
        assert_eq!(shown, allowed);
        for column in VIEWS.iter().flat_map(|view| view.columns) {
            let hidden = ["secret_ref", "settings", "holder", "token", "search_rowid"];
            assert!(!hidden.contains(&column.source), "{}", column.name);
        }
    }
}
