//! Databases for tests: the same test on SQLite and on PostgreSQL, each time on a fresh one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use domain::{Clock, SystemClock};

use crate::{Location, Store, StoreError};

/// Names the server to test against; `make test` starts one and sets it.
pub const POSTGRES_VARIABLE: &str = "MAILROOM_TEST_POSTGRES_URL";

/// A fresh, migrated database.
#[derive(Debug)]
pub struct TestDatabase {
    pub store: Store,
    pub location: Location,
}

/// Runs a test on each kind of database, one after the other.
pub async fn on_each_database<F: Future<Output = ()>>(test: impl Fn(TestDatabase) -> F) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    test(open(Location::Sqlite(folder.path().join("mailroom.db"))).await).await;
    test(open(fresh_postgres().await).await).await;
}

async fn open(location: Location) -> TestDatabase {
    let store = Store::open(&location, clock()).expect("the test database opens");
    store.migrate().await.expect("the test database migrates");
    TestDatabase { store, location }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// An empty database on the test server.
pub async fn fresh_postgres() -> Location {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let server = server_url();
    let name = format!("t_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    run_sql(&server, &format!("create database {name}")).await.expect("the test server makes a database");
    let (base, _) = server.rsplit_once('/').expect("the test server's URL names a database");
    Location::Postgres { url: format!("{base}/{name}"), connections: 6 }
}

/// One statement, outside of our code.
pub async fn run_sql(url: &str, sql: &str) -> Result<(), StoreError> {
    let db = crate::postgres::Postgres::open(url, 1)?;
    db.client().await?.batch_execute(sql).await.map_err(crate::postgres::error)
}

/// A missing server fails the test; it is never skipped.
fn server_url() -> String {
    #[expect(clippy::disallowed_methods, reason = "tests are told where their servers are by `make test`")]
    std::env::var(POSTGRES_VARIABLE).unwrap_or_else(|_| {
        panic!("{POSTGRES_VARIABLE} is not set: run the tests with `make test`, or set it to a server of your own")
    })
}
