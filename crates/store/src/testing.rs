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

/// Object stores to test against, each test under a prefix of its own.
pub mod object_stores {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use domain::Secret;

    use crate::blobs::{RemoteKind, RemoteSettings};

    /// Name the servers; `make test` starts them and sets these.
    pub const S3_VARIABLE: &str = "MAILROOM_TEST_S3_URL";
    pub const AZURE_VARIABLE: &str = "MAILROOM_TEST_AZURE_URL";

    /// The bucket that `make test` makes in each.
    pub const BUCKET: &str = "mailroom-test";

    /// The key of every Azure emulator, in their documentation for all to read.
    const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    /// Of a service account that nobody asks about.
    const GOOGLE_KEY: &str =
        r#"{"gcs_base_url":"URL","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}"#;

    /// A missing server fails the test; it is never skipped.
    pub fn url(kind: RemoteKind) -> String {
        let variable = match kind {
            RemoteKind::S3 => S3_VARIABLE,
            RemoteKind::Azure => AZURE_VARIABLE,
            RemoteKind::Gcs => panic!("there is no server for Google Cloud Storage to test against"),
        };
        #[expect(clippy::disallowed_methods, reason = "tests are told where their servers are by `make test`")]
        std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run the tests with `make test`"))
    }

    /// What an operator would set for a server at this URL.
    pub fn variables(kind: RemoteKind, url: &str) -> Vec<(&'static str, String)> {
        match kind {
            RemoteKind::S3 => vec![
                ("AWS_ACCESS_KEY_ID", "test".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "hunter2".to_owned()),
                ("AWS_ENDPOINT_URL", url.to_owned()),
                ("AWS_ALLOW_HTTP", "true".to_owned()),
            ],
            RemoteKind::Azure => vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1".to_owned()),
                ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY.to_owned()),
                ("AZURE_STORAGE_ENDPOINT", url.to_owned()),
                ("AZURE_ALLOW_HTTP", "true".to_owned()),
            ],
            RemoteKind::Gcs => vec![
                ("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY.replace("URL", url)),
                ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
            ],
        }
    }

    /// A prefix that no other test has.
    pub fn fresh_prefix() -> String {
        static PREFIXES: AtomicU64 = AtomicU64::new(0);
        format!("test-{}-{}", std::process::id(), PREFIXES.fetch_add(1, Ordering::Relaxed))
    }

    pub fn settings(kind: RemoteKind, url: &str, retry_for: Duration) -> RemoteSettings {
        let secret = |(name, value): (&str, String)| (name.to_owned(), Secret::new(value));
        RemoteSettings {
            kind,
            bucket: BUCKET.to_owned(),
            prefix: fresh_prefix(),
            variables: variables(kind, url).into_iter().map(secret).collect(),
            retry_for,
        }
    }
}
