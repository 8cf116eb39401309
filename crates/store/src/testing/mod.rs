//! Databases for tests: the same test on SQLite and on PostgreSQL, each time on a fresh one.

pub(crate) mod steps;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use domain::{Clock, SystemClock};

use crate::postgres::{Postgres, walk};
use crate::{Location, Row, Store, Unit, scratch};

pub use steps::{Standing, Stepped, Watcher};

/// Names the server to test against; `make test` starts one and sets it.
pub const POSTGRES_VARIABLE: &str = "MAILROOM_TEST_POSTGRES_URL";

/// `HOST:PORT` of a pooler before that server. With it, the login's connections go through there.
pub const POOLER_VARIABLE: &str = "MAILROOM_TEST_POSTGRES_POOLER";

/// A fresh, migrated database.
#[derive(Debug)]
pub struct TestDatabase {
    pub store: Store,
    pub location: Location,
}

impl TestDatabase {
    /// A statement of the test's own, with the rights of the system.
    pub async fn run(&self, sql: &str) {
        self.run_all(&[sql]).await;
    }

    /// Several, as one unit.
    pub async fn run_all(&self, statements: &[&str]) {
        let mut unit = Unit::default();
        for sql in statements {
            unit.op(*sql, vec![]);
        }
        self.store.system().commit(unit).await.unwrap_or_else(|e| panic!("{statements:?}: {e}"));
    }

    /// What a query of the test's own finds, with the rights of the system.
    pub async fn rows(&self, sql: &str) -> Vec<Row> {
        self.store.system().query(sql, vec![]).await.unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Another process, so to speak: it has connections of its own.
    pub fn second_store(&self) -> Store {
        Store::open(&self.location, clock()).expect("the test database opens")
    }
}

/// Runs a test on each kind of database, one after the other.
pub async fn on_each_database<F: Future<Output = ()>>(test: impl Fn(TestDatabase) -> F) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    test(open(Location::Sqlite { path: folder.path().join("mailroom.db"), connections: 4 }).await).await;
    test(open(fresh_postgres().await).await).await;
}

/// Where it makes no difference which one it is.
pub async fn migrated_sqlite(folder: &Path) -> TestDatabase {
    open(Location::Sqlite { path: folder.join("mailroom.db"), connections: 4 }).await
}

/// For what PostgreSQL alone has.
pub async fn migrated_postgres() -> TestDatabase {
    open(fresh_postgres().await).await
}

async fn open(location: Location) -> TestDatabase {
    let store = Store::open(&location, clock()).expect("the test database opens");
    store.migrate().await.expect("the test database migrates");
    TestDatabase { store, location }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// An empty database on the test server, of a login like that of a careful operator: it owns the database and may make
/// roles, but row security holds for it.
pub async fn fresh_postgres() -> Location {
    scratch::location(fresh_postgres_url().await)
}

pub async fn fresh_postgres_url() -> String {
    let server = server_url();
    make_login(&server).await;
    let url = scratch::create_database(&server).await.expect("the test server makes a database");
    let name = url.rsplit('/').next().unwrap_or_default();
    scratch::run_sql(&url, &format!("alter database {name} owner to {LOGIN}"))
        .await
        .expect("the database is given away");
    let host = server.rsplit('@').next().and_then(|rest| rest.split('/').next()).unwrap_or_default().to_owned();
    format!("postgres://{LOGIN}:{LOGIN}@{}/{name}", variable(POOLER_VARIABLE).unwrap_or(host))
}

/// What Mailroom logs in as in tests.
pub const LOGIN: &str = "mailroom_test_login";

/// Once per server; tests in other processes try as well.
async fn make_login(server: &str) {
    let make = format!(
        "do $$ begin
             create role {LOGIN} login createrole password '{LOGIN}';
         exception when duplicate_object or unique_violation then null; end $$"
    );
    scratch::run_sql(server, &make).await.expect("the test server makes a login");
}

/// The same database for whoever runs the test server, who sees and may do everything.
pub fn admin_url(url: &str) -> String {
    if !url.contains(&format!("//{LOGIN}:")) {
        return url.to_owned();
    }
    let (server, name) = (server_url(), url.rsplit('/').next().unwrap_or_default());
    let base = server.rsplit_once('/').map_or(server.as_str(), |(base, _)| base);
    format!("{base}/{name}")
}

/// Statements outside of our code, and above row security.
pub async fn run_sql(url: &str, sql: &str) -> Result<(), crate::StoreError> {
    scratch::run_sql(&admin_url(url), sql).await
}

/// A missing server fails the test; it is never skipped.
pub fn server_url() -> String {
    variable(POSTGRES_VARIABLE).unwrap_or_else(|| {
        panic!("{POSTGRES_VARIABLE} is not set: run the tests with `make test`, or set it to a server of your own")
    })
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "tests are told where their servers are by `make test`")]
    std::env::var(name).ok()
}

/// What the catalog looks like after a change that others must not see: it is made, looked at and rolled back.
pub async fn isolation_problems_after(url: &str, change: &str) -> Vec<String> {
    let db = Postgres::open(&admin_url(url), 1).expect("the test server is there");
    let client = db.client().await.expect("the test server answers");
    client.batch_execute(&format!("begin; {change}")).await.expect("the change works");
    let problems = walk::problems(&client).await.expect("the catalog can be walked");
    client.batch_execute("rollback").await.expect("the change is undone");
    problems
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
