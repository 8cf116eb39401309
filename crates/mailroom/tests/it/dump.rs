//! Everything that a database holds, as text that does not depend on times or random ids.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::installation::TestInstallation;

/// Not compared: when, where in which pack, and numbers that only order things.
fn is_incidental(column: &str) -> bool {
    column.ends_with("_at")
        || column.ends_with("_since")
        || ["pack_id", "pack_offset", "search_rowid", "number", "version", "seq", "unit"].contains(&column)
}

/// Packs are compared by what is in them, and events by how many there are: they outlive the emails that they name. The
/// audit log has an entry for each time that a command was begun; `mailroom audit verify` checks it.
const NOT_COMPARED: [&str; 4] = ["packs", "events", "audit", "audit_heads"];

const TENANT: &str = "the tenant";

/// Rows by table, sorted. Ids of one tenant's things are replaced by what they stand for.
pub type TenantDump = BTreeMap<String, BTreeSet<String>>;

/// Returns the rows of one tenant.
pub fn dump(mailroom: &TestInstallation, tenant: &str) -> TenantDump {
    DatabaseDump::of(mailroom).dump(tenant)
}

/// All rows of all tenants, as they were.
pub struct DatabaseDump(BTreeMap<String, Vec<Map<String, Value>>>);

impl DatabaseDump {
    pub fn of(mailroom: &TestInstallation) -> Self {
        let mut tables_with_rows = BTreeMap::new();
        for table in tables(mailroom) {
            let lines = mailroom.select(&row_sql(mailroom, &table));
            tables_with_rows.insert(table, lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect());
        }
        Self(tables_with_rows)
    }

    fn rows_of(&self, tenant_id: &Value, table: &str) -> Vec<&Map<String, Value>> {
        let column = if table == "tenants" { "id" } else { "tenant_id" };
        self.0[table].iter().filter(|row| &row[column] == tenant_id).collect()
    }

    pub fn dump(&self, tenant: &str) -> TenantDump {
        let tenant_id = &self.0["tenants"].iter().find(|row| row["name"] == tenant).unwrap()["id"];
        let names = self.names(tenant_id);
        // Entries of the text index name their tenant too.
        let short_id = tenant_id.as_str().unwrap().replace('-', "");
        let mut dump = TenantDump::new();
        for table in self.0.keys().filter(|table| !NOT_COMPARED.contains(&table.as_str())) {
            let rows = self.rows_of(tenant_id, table);
            let lines = rows.iter().map(|row| describe_row(row, &names).replace(&short_id, TENANT));
            let lines: BTreeSet<String> = lines.collect();
            assert_eq!(lines.len(), rows.len(), "rows of {table} that cannot be told apart");
            dump.insert(table.clone(), lines);
        }
        dump
    }

    /// Returns what each id of the tenant stands for.
    fn names(&self, tenant_id: &Value) -> BTreeMap<String, String> {
        let mut names = BTreeMap::from([(text(tenant_id), TENANT.to_owned())]);
        // In this order, since each is named after one before it.
        let named: [(&str, &[&str]); 4] = [
            ("mailboxes", &["address"]),
            ("folders", &["mailbox_id", "name"]),
            ("emails", &["mailbox_id", "raw_sha256"]),
            ("attachments", &["email_id", "part_path"]),
        ];
        for (table, columns) in named {
            for row in self.rows_of(tenant_id, table) {
                let parts = columns.iter().map(|column| text(&row[*column]));
                let parts: Vec<String> = parts.map(|part| names.get(&part).cloned().unwrap_or(part)).collect();
                names.insert(text(&row["id"]), format!("{table} {}", parts.join(" ")));
            }
        }
        names
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn describe_row(row: &Map<String, Value>, names: &BTreeMap<String, String>) -> String {
    let columns = row.iter().filter(|(column, _)| !is_incidental(column));
    // A tenant is called something else in each round.
    let columns = columns.filter(|(column, _)| !(row.contains_key("plan_tier") && *column == "name"));
    let described: BTreeMap<&String, String> =
        columns.map(|(column, value)| (column, describe_value(value, names))).collect();
    described.iter().map(|(column, value)| format!("{column}={value}")).collect::<Vec<_>>().join(" ")
}

fn describe_value(value: &Value, names: &BTreeMap<String, String>) -> String {
    match value {
        Value::String(text) => names.get(text).map_or_else(|| value.to_string(), Clone::clone),
        other => other.to_string(),
    }
}

/// Returns tables with a tenant, and the tenants; partitions belong to their parents.
fn tables(mailroom: &TestInstallation) -> Vec<String> {
    mailroom.select(if mailroom.is_sqlite() {
        "select m.name from sqlite_master m where m.type = 'table' and m.sql not like 'create virtual%'
             and (m.name = 'tenants' or exists (select 1 from pragma_table_info(m.name) where name = 'tenant_id'))
             order by m.name"
    } else {
        "select c.relname::text from pg_class c where c.relkind in ('r', 'p') and not c.relispartition
             and c.relnamespace = 'public'::regnamespace and (c.relname = 'tenants' or exists (
                 select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id'))
             order by c.relname"
    })
}

/// Returns a statement that selects each row of a table as JSON.
fn row_sql(mailroom: &TestInstallation, table: &str) -> String {
    if !mailroom.is_sqlite() {
        return format!("select to_jsonb(t)::text from {table} t");
    }
    let columns = mailroom.select(&format!("select name from pragma_table_info('{table}')"));
    let pairs: Vec<String> = columns.iter().map(|column| format!("'{column}', {column}")).collect();
    format!("select json_object({}) from {table}", pairs.join(", "))
}

/// Fails with the rows that differ.
pub fn assert_same(found: &TenantDump, expected: &TenantDump, what: &str) {
    for (table, rows) in expected {
        let missing: Vec<_> = rows.difference(&found[table]).take(3).collect();
        let more: Vec<_> = found[table].difference(rows).take(3).collect();
        assert!(missing.is_empty() && more.is_empty(), "{what}: {table}: missing {missing:#?}, not wanted {more:#?}");
    }
}
