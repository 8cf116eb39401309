//! Everything that a database holds, told in a way that does not depend on when it was written or on random ids.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::place::Place;

/// Not compared: when, where in which pack, and numbers that only order things.
fn is_incidental(column: &str) -> bool {
    column.ends_with("_at")
        || column.ends_with("_since")
        || ["pack_id", "pack_offset", "search_rowid", "number", "version", "seq", "unit"].contains(&column)
}

/// Packs are compared by what is in them, and events by how many there are: they outlive the emails that they name.
const NOT_COMPARED: [&str; 2] = ["packs", "events"];

const TENANT: &str = "the tenant";

/// Rows by table, sorted. Ids of one tenant's things are replaced by what they stand for.
pub type Dump = BTreeMap<String, BTreeSet<String>>;

/// One tenant's.
pub fn dump(place: &Place, tenant: &str) -> Dump {
    Everything::of(place).dump(tenant)
}

/// All rows of all tenants, as they were.
pub struct Everything(BTreeMap<String, Vec<Map<String, Value>>>);

impl Everything {
    pub fn of(place: &Place) -> Self {
        let rows = |table: &String| {
            let lines = place.select(&row_sql(place, table));
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        Self(tables(place).into_iter().map(|table| (table.clone(), rows(&table))).collect())
    }

    pub fn dump(&self, tenant: &str) -> Dump {
        let tenant_id = &self.0["tenants"].iter().find(|row| row["name"] == tenant).unwrap()["id"];
        let mine = |table: &str| -> Vec<&Map<String, Value>> {
            let column = if table == "tenants" { "id" } else { "tenant_id" };
            self.0[table].iter().filter(|row| &row[column] == tenant_id).collect()
        };
        let names = names(tenant_id, &mine);
        // Entries of the text index name their tenant too.
        let short_id = tenant_id.as_str().unwrap().replace('-', "");
        let told = |table: &String| -> BTreeSet<String> {
            let rows = mine(table);
            let told: BTreeSet<String> = rows.iter().map(|row| tell(row, &names).replace(&short_id, TENANT)).collect();
            assert_eq!(told.len(), rows.len(), "rows of {table} that cannot be told apart");
            told
        };
        let compared = self.0.keys().filter(|table| !NOT_COMPARED.contains(&table.as_str()));
        compared.map(|table| (table.clone(), told(table))).collect()
    }
}

/// Each id, and what it stands for.
fn names<'a>(tenant: &Value, rows: &dyn Fn(&str) -> Vec<&'a Map<String, Value>>) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut names = BTreeMap::from([(text(tenant), TENANT.to_owned())]);
    // In this order, since each is named after one before it.
    let named: [(&str, &[&str]); 4] = [
        ("mailboxes", &["address"]),
        ("folders", &["mailbox_id", "name"]),
        ("emails", &["mailbox_id", "raw_sha256"]),
        ("attachments", &["email_id", "part_path"]),
    ];
    for (table, columns) in named {
        for row in rows(table) {
            let parts = columns.iter().map(|column| text(&row[*column]));
            let parts: Vec<String> = parts.map(|part| names.get(&part).cloned().unwrap_or(part)).collect();
            names.insert(text(&row["id"]), format!("{table} {}", parts.join(" ")));
        }
    }
    names
}

fn tell(row: &Map<String, Value>, names: &BTreeMap<String, String>) -> String {
    let value = |value: &Value| match value {
        Value::String(text) => names.get(text).map_or_else(|| value.to_string(), Clone::clone),
        other => other.to_string(),
    };
    let columns = row.iter().filter(|(column, _)| !is_incidental(column));
    let told: BTreeMap<&String, String> = columns.map(|(column, found)| (column, value(found))).collect();
    // A tenant is called something else in each round.
    let told = told.into_iter().filter(|(column, _)| !(row.contains_key("plan_tier") && *column == "name"));
    told.map(|(column, value)| format!("{column}={value}")).collect::<Vec<_>>().join(" ")
}

/// Those with a tenant, and the tenants; partitions belong to their parents.
fn tables(place: &Place) -> Vec<String> {
    place.select(match place.is_sqlite() {
        true => {
            "select m.name from sqlite_master m where m.type = 'table' and m.sql not like 'create virtual%'
             and (m.name = 'tenants' or exists (select 1 from pragma_table_info(m.name) where name = 'tenant_id'))
             order by m.name"
        }
        false => {
            "select c.relname::text from pg_class c where c.relkind in ('r', 'p') and not c.relispartition
             and c.relnamespace = 'public'::regnamespace and (c.relname = 'tenants' or exists (
                 select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id'))
             order by c.relname"
        }
    })
}

/// A statement that gives each row of a table as JSON.
fn row_sql(place: &Place, table: &str) -> String {
    if !place.is_sqlite() {
        return format!("select to_jsonb(t)::text from {table} t");
    }
    let columns = place.select(&format!("select name from pragma_table_info('{table}')"));
    let pairs: Vec<String> = columns.iter().map(|column| format!("'{column}', {column}")).collect();
    format!("select json_object({}) from {table}", pairs.join(", "))
}

/// Fails with the rows that differ.
pub fn assert_same(found: &Dump, expected: &Dump, what: &str) {
    for (table, rows) in expected {
        let missing: Vec<_> = rows.difference(&found[table]).take(3).collect();
        let more: Vec<_> = found[table].difference(rows).take(3).collect();
        assert!(missing.is_empty() && more.is_empty(), "{what}: {table}: missing {missing:#?}, not wanted {more:#?}");
    }
}
