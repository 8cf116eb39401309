//! Template databases: the schema is built once, and each test gets a copy. A copy takes a fraction of the time that the
//! migrations take.

use std::path::Path;
use std::time::{Duration, Instant};

use domain::{Clock, SystemClock};
use tokio::sync::OnceCell;
use tokio_postgres::Client;

use super::{LOGIN, direct_url, ensure_login, open, server_url};
use crate::postgres::Postgres;
use crate::value::time_text;
use crate::{Location, StoreError, migrate, scratch};

/// Any number that no other program is likely to lock on a test server.
const ADVISORY_LOCK: i64 = 0x6d61_696c_7465_7374;

/// Longer than the server takes to end the sessions of a database, or to finish another copy of it.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);
const COPY_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Writes a migrated SQLite database to `path`. The schema is built once per process.
pub(super) async fn copy_sqlite(path: &Path) {
    static TEMPLATE: OnceCell<Vec<u8>> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(build_sqlite).await;
    std::fs::write(path, template).expect("the copy of the template can be written");
    let copy = rusqlite::Connection::open(path).expect("the copy of the template opens");
    copy.pragma_update(None, "synchronous", "off").expect("the copy need not wait for the disk");
    // The moment of the first migration identifies a Mailroom, and each copy is one of its own.
    let sql = "update schema_migrations set applied_at = ?1";
    copy.execute(sql, [time_text(SystemClock.now())]).expect("the copy can be written to");
}

/// Migrates a file and returns its bytes.
async fn build_sqlite() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("template.db");
    let built = open(Location::Sqlite { path: path.clone(), connections: 1 });
    built.store.migrate().await.expect("the template migrates");
    let connection = rusqlite::Connection::open(&path).expect("the template opens");
    let is_busy: bool = connection
        .query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0))
        .expect("the log of the template is folded into its file");
    assert!(!is_busy, "the log of the template is in use");
    std::fs::read(path).expect("the template can be read")
}

/// Makes a migrated database on the test server and returns its name. The schema is built once per server.
pub(super) async fn copy_postgres() -> String {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(ensure_postgres).await;
    let (server, name) = (server_url(), scratch::database_name());
    // By files: page by page through the log takes ten times as long.
    let copy = format!("create database {name} template {template} strategy file_copy owner {LOGIN}");
    let deadline = Instant::now() + COPY_TIMEOUT;
    while let Err(e) = scratch::run_sql(&server, &copy).await {
        // PostgreSQL copies only what no session uses.
        assert!(is_in_use(&e) && Instant::now() < deadline, "{copy}: {e}");
        tokio::time::sleep(COPY_RETRY_DELAY).await;
    }
    // The moment of the first migration identifies a Mailroom, and each copy is one of its own.
    let own_origin = "update schema_migrations set applied_at = clock_timestamp()::text";
    scratch::run_sql(&scratch::sibling_url(&server, &name).expect("the server has a URL"), own_origin)
        .await
        .expect("the copy can be written to");
    name
}

fn is_in_use(e: &StoreError) -> bool {
    e.to_string().contains("is being accessed by other users")
}

/// Returns the name of the template, which is there and complete afterwards. Test processes that ask at the same time
/// wait for the first of them.
async fn ensure_postgres() -> String {
    let server = server_url();
    ensure_login(&server).await;
    // Partitions are made ahead of time, so that a template is good for one month.
    let month = SystemClock.now().strftime("%Y-%m").to_string();
    let name = format!("mailroom_template_{}", &migrate::postgres_fingerprint(&month).hex()[..16]);
    let db = Postgres::open(&server, 1).expect("the URL of the test server is one");
    let client = db.client().await.expect("the test server answers");
    run(&client, &format!("select pg_advisory_lock({ADVISORY_LOCK})")).await;
    let exists = format!("select 1 from pg_database where datname = '{name}'");
    if client.query_typed(&exists, &[]).await.expect("databases can be listed").is_empty() {
        build_postgres(&client, &server, &name).await;
    }
    run(&client, &format!("select pg_advisory_unlock({ADVISORY_LOCK})")).await;
    name
}

/// Builds it under another name, so that one that was cut off is never taken for a complete one.
async fn build_postgres(client: &Client, server: &str, name: &str) {
    let unfinished = format!("{name}_unfinished");
    run(client, &format!("drop database if exists {unfinished} with (force)")).await;
    run(client, &format!("create database {unfinished} owner {LOGIN}")).await;
    // Not through a pooler, which would stay connected.
    let built = open(scratch::location(direct_url(server, &unfinished)));
    built.store.migrate().await.expect("the template migrates");
    drop(built);
    // No session, not even one of autovacuum, is to delay a copy.
    run(client, &format!("alter database {unfinished} allow_connections false")).await;
    run(client, &format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{unfinished}'"))
        .await;
    run(client, &format!("alter database {unfinished} rename to {name}")).await;
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
}
