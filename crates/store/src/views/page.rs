//! The page `docs/sql-schema.md`.

use super::{SqlView, VIEWS, ViewColumn, ViewColumnKind};

/// Returns the page that is generated from the catalogue.
pub fn page() -> String {
    let mut page = String::from(
        "# The SQL views\n\n\
         ```\nmailroom sql 'select * from mailroom_mailboxes'\n```\n\n\
         The same views are on SQLite and PostgreSQL. Their names and columns stay; new columns come last. What is the same has the same \
         name everywhere, so that `join … using (tenant_id, email_id)` works. [sql.md](sql.md) says how to query them.\n\n\
         This page is generated from [the catalogue](../crates/store/src/views/catalogue.rs) by `make docs`.\n\n\
         | type | on SQLite | on PostgreSQL |\n|---|---|---|\n",
    );
    for (kind, sqlite, postgres) in KINDS {
        page += &format!("| {} | {sqlite} | {postgres} |\n", kind.name());
    }
    page.extend(VIEWS.iter().map(section));
    page
}

const KINDS: &[(ViewColumnKind, &str, &str)] = &[
    (ViewColumnKind::Id, "`text`, a UUID", "`uuid`"),
    (ViewColumnKind::Text, "`text`", "`text`"),
    (ViewColumnKind::Number, "`integer`", "`integer` or `bigint`"),
    (ViewColumnKind::Truth, "`integer`: 1 or 0", "`boolean`"),
    (ViewColumnKind::Time, "`text` such as `2024-01-31T08:15:00.000Z`", "`timestamptz`"),
    (ViewColumnKind::Day, "`text` such as `2024-01-31`", "the same"),
    (ViewColumnKind::Month, "`text` such as `2024-01`", "the same"),
    (ViewColumnKind::Hash, "`text`, hexadecimal", "the same"),
    (ViewColumnKind::Json, "`text`; `->` and `->>` work", "`jsonb`"),
];

fn section(view: &SqlView) -> String {
    let rows: String = view.columns.iter().map(row).collect();
    format!("\n## {}\n\n{}\n\n| column | type | meaning |\n|---|---|---|\n{rows}", view.name, view.meaning)
}

fn row(column: &ViewColumn) -> String {
    format!("| `{}` | {} | {} |\n", column.name, column.kind.name(), column.meaning)
}

impl ViewColumnKind {
    fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Text => "text",
            Self::Number => "number",
            Self::Truth => "truth",
            Self::Time => "time",
            Self::Day => "day",
            Self::Month => "month",
            Self::Hash => "hash",
            Self::Json => "JSON",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_what_the_catalogue_says() {
        let stored = std::fs::read_to_string("../../docs/sql-schema.md").unwrap_or_default();
        assert_eq!(stored, page(), "docs/sql-schema.md is old: run `make docs`");
    }
}
