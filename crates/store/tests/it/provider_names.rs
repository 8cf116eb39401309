//! Names of providers: the schema checks their form only, for the program knows which there are.

use domain::SystemClock;
use store::migrate;
use store::testing::{TestDatabase, on_each_database, run_sql};
use store::{Location, Store};

use crate::samples::{mailbox, tenant};

/// Runs a statement that the database may refuse.
async fn try_sql(db: &TestDatabase, sql: &str) -> Result<(), String> {
    match &db.location {
        Location::Sqlite { path, .. } => {
            rusqlite::Connection::open(path).unwrap().execute_batch(sql).map_err(|e| e.to_string())
        }
        Location::Postgres { url, .. } => run_sql(url, sql).await.map_err(|e| e.to_string()),
    }
}

#[tokio::test]
async fn any_lower_case_word_may_name_a_provider() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        mailbox(&acme).await;
        db.run(&format!(
            "insert into directories (tenant_id, provider, settings, rules, interval_seconds, next_at, created_at, updated_at)
             values ('{}', 'gmail', '{{}}', '{{}}', 60, mailroom_now(), mailroom_now(), mailroom_now())",
            acme.id
        ))
        .await;

        for table in ["mailboxes", "directories"] {
            for name in ["pigeon", "pop3", "carrier_pigeon"] {
                assert_eq!(try_sql(&db, &format!("update {table} set provider = '{name}'")).await, Ok(()), "{name}");
            }
            for name in ["", "Pigeon", "two words", "3pop", "taube\u{fc}", "a\nb"] {
                let refused = try_sql(&db, &format!("update {table} set provider = '{name}'")).await;
                assert!(refused.unwrap_err().to_lowercase().contains("check constraint"), "{table} {name:?}");
            }
        }
    })
    .await;
}

/// SQLite's tables are changed in place.
#[tokio::test]
async fn changed_tables_of_sqlite_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.db");
    let store = Store::open(&Location::Sqlite { path: path.clone(), connections: 1 }, std::sync::Arc::new(SystemClock));
    assert_eq!(store.unwrap().migrate().await.unwrap().len(), migrate::latest_version() as usize);

    let database = rusqlite::Connection::open(&path).unwrap();
    let integrity: String = database.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    let tables =
        "select count(*) from sqlite_schema where tbl_name in ('mailboxes', 'directories') and sql is not null";
    let tables_and_indexes: i64 = database.query_row(tables, [], |row| row.get(0)).unwrap();

    assert_eq!((integrity.as_str(), tables_and_indexes), ("ok", 5));
}
