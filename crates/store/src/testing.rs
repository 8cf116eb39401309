//! Databases for tests: the same test on SQLite and on PostgreSQL, each time on a fresh one.

use std::future::Future;
use std::sync::Arc;

use domain::{Clock, SystemClock};

use crate::{Location, Store, scratch};

pub use crate::scratch::run_sql;

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
    test(open(Location::Sqlite { path: folder.path().join("mailroom.db"), connections: 4 }).await).await;
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
    let url = scratch::create_database(&server_url()).await.expect("the test server makes a database");
    scratch::location(url)
}

/// A missing server fails the test; it is never skipped.
pub fn server_url() -> String {
    #[expect(clippy::disallowed_methods, reason = "tests are told where their servers are by `make test`")]
    std::env::var(POSTGRES_VARIABLE).unwrap_or_else(|_| {
        panic!("{POSTGRES_VARIABLE} is not set: run the tests with `make test`, or set it to a server of your own")
    })
}
