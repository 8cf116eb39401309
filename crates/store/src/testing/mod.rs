//! Databases for tests: the same test on SQLite and on PostgreSQL, each time on a database of its own.

pub(crate) mod stepping;
mod templates;
pub mod wait;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use domain::{Clock, SystemClock};
use tokio::sync::OnceCell;

use crate::postgres::{Postgres, isolation_check};
use crate::{Location, Row, Store, Unit, scratch};

pub use stepping::{CallProgress, LockWatcher, SteppedCall};
pub use wait::{WAIT_DEADLINE, wait_until};

/// The variable with the URL of the server to test against; `make test` starts one and sets it.
pub const POSTGRES_VARIABLE: &str = "MAILROOM_TEST_POSTGRES_URL";

/// The variable with `HOST:PORT` of a pooler before that server. With it, the login's connections go through there.
pub const POOLER_VARIABLE: &str = "MAILROOM_TEST_POSTGRES_POOLER";

/// A migrated database of one test.
#[derive(Debug)]
pub struct TestDatabase {
    pub store: Store,
    pub location: Location,
}

impl TestDatabase {
    /// Runs a statement of the test's own, with the rights of the system.
    pub async fn run(&self, sql: &str) {
        self.run_all(&[sql]).await;
    }

    /// Runs several statements as one unit.
    pub async fn run_all(&self, statements: &[&str]) {
        let mut unit = Unit::default();
        for sql in statements {
            unit.op(*sql, vec![]);
        }
        self.store.system().commit(unit).await.unwrap_or_else(|e| panic!("{statements:?}: {e}"));
    }

    /// Runs a query of the test's own, with the rights of the system.
    pub async fn rows(&self, sql: &str) -> Vec<Row> {
        self.store.system().query(sql, vec![]).await.unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Opens the database again, as another process would, with connections of its own.
    pub fn second_store(&self) -> Store {
        Store::open(&self.location, clock()).expect("the test database opens")
    }
}

/// Runs a test on each kind of database, one after the other.
pub async fn on_each_database<F: Future<Output = ()>>(test: impl Fn(TestDatabase) -> F) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    test(migrated_sqlite(folder.path()).await).await;
    let url = migrated_postgres_url().await;
    test(open(scratch::location(url.clone()))).await;
    // Only here: the database of a test that failed stays, to be looked at.
    drop_postgres(&url).await;
}

/// Drops a database of the test server, so that a thousand tests do not fill its disk.
pub async fn drop_postgres(url: &str) {
    scratch::drop_database(&server_url(), url).await.expect("the test server drops the database");
}

/// Copies the template of SQLite into the folder: for tests to which the kind of database makes no difference.
pub async fn migrated_sqlite(folder: &Path) -> TestDatabase {
    let path = folder.join("mailroom.db");
    templates::copy_sqlite(&path).await;
    open(Location::Sqlite { path, connections: 4 })
}

/// Copies the template of PostgreSQL: for tests of what PostgreSQL alone has.
pub async fn migrated_postgres() -> TestDatabase {
    open(scratch::location(migrated_postgres_url().await))
}

/// Copies the template of PostgreSQL and returns the URL of the copy.
pub async fn migrated_postgres_url() -> String {
    login_url(&templates::copy_postgres().await)
}

/// Runs every migration on an empty database: for tests of what the migrations themselves leave.
pub async fn migrate_fresh_postgres() -> TestDatabase {
    let db = open(fresh_postgres().await);
    db.store.migrate().await.expect("the test database migrates");
    db
}

fn open(location: Location) -> TestDatabase {
    TestDatabase { store: Store::open(&location, clock()).expect("the test database opens"), location }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Makes an empty database on the test server, for a login like that of a careful operator: it owns the database and may make
/// roles, but row security holds for it.
pub async fn fresh_postgres() -> Location {
    scratch::location(fresh_postgres_url().await)
}

pub async fn fresh_postgres_url() -> String {
    let server = server_url();
    ensure_login(&server).await;
    let name = scratch::database_name();
    let create = format!("create database {name} owner {LOGIN}");
    scratch::run_sql(&server, &create).await.expect("the test server makes a database");
    login_url(&name)
}

/// The login of Mailroom in tests.
pub const LOGIN: &str = "mailroom_test_login";

/// Makes the login unless the server has it; tests in other processes try as well.
async fn ensure_login(server: &str) {
    static MADE: OnceCell<()> = OnceCell::const_new();
    let make = format!(
        "do $$ begin
             create role {LOGIN} login createrole password '{LOGIN}';
         exception when duplicate_object or unique_violation then null; end $$"
    );
    let made = MADE.get_or_try_init(|| scratch::run_sql(server, &make)).await;
    made.expect("the test server makes a login");
}

/// Returns the URL of a database for the login: through the pooler, where there is one.
fn login_url(name: &str) -> String {
    let server = server_url();
    match variable(POOLER_VARIABLE) {
        Some(pooler) => format!("postgres://{LOGIN}:{LOGIN}@{pooler}/{name}"),
        None => direct_url(&server, name),
    }
}

/// Returns the URL of a database for the login, without a pooler.
fn direct_url(server: &str, name: &str) -> String {
    let host = server.rsplit('@').next().and_then(|rest| rest.split('/').next()).unwrap_or_default();
    format!("postgres://{LOGIN}:{LOGIN}@{host}/{name}")
}

/// Returns the URL of the same database for the administrator of the test server.
pub fn admin_url(url: &str) -> String {
    if !url.contains(&format!("//{LOGIN}:")) {
        return url.to_owned();
    }
    let name = url.rsplit('/').next().unwrap_or_default();
    scratch::sibling_url(&server_url(), name).expect("the URL of the test server names a database")
}

/// Runs statements as the server's administrator, without row security.
pub async fn run_sql(url: &str, sql: &str) -> Result<(), crate::StoreError> {
    scratch::run_sql(&admin_url(url), sql).await
}

/// Returns the URL of the test server. A missing server fails the test; it is never skipped.
pub fn server_url() -> String {
    variable(POSTGRES_VARIABLE).unwrap_or_else(|| {
        panic!("{POSTGRES_VARIABLE} is not set: run the tests with `make test`, or set it to a server of your own")
    })
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "tests are told where their servers are by `make test`")]
    std::env::var(name).ok()
}

/// Returns the isolation problems after a change, which is made, checked and rolled back.
pub async fn isolation_problems_after(url: &str, change: &str) -> Vec<String> {
    let db = Postgres::open(&admin_url(url), 1).expect("the test server is there");
    let client = db.client().await.expect("the test server answers");
    client.batch_execute(&format!("begin; {change}")).await.expect("the change works");
    let problems = isolation_check::find_problems(&client).await.expect("the catalog can be walked");
    client.batch_execute("rollback").await.expect("the change is undone");
    problems
}

/// Object stores to test against, each test under a prefix of its own.
pub mod object_stores {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use domain::Secret;

    use crate::blobs::{RemoteKind, RemoteSettings};

    /// The variables with the URLs of the servers; `make test` starts them and sets these.
    pub const S3_VARIABLE: &str = "MAILROOM_TEST_S3_URL";
    pub const AZURE_VARIABLE: &str = "MAILROOM_TEST_AZURE_URL";

    /// The bucket that `make test` makes in each.
    pub const BUCKET: &str = "mailroom-test";

    /// The public key of every Azure emulator.
    const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    /// A service account that is not checked.
    const GOOGLE_KEY: &str =
        r#"{"gcs_base_url":"URL","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}"#;

    /// Returns the URL of a server. A missing server fails the test; it is never skipped.
    pub fn url(kind: RemoteKind) -> String {
        let variable = match kind {
            RemoteKind::S3 => S3_VARIABLE,
            RemoteKind::Azure => AZURE_VARIABLE,
            RemoteKind::Gcs => panic!("there is no server for Google Cloud Storage to test against"),
        };
        #[expect(clippy::disallowed_methods, reason = "tests are told where their servers are by `make test`")]
        std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run the tests with `make test`"))
    }

    /// Returns the variables that an operator would set for a server at this URL.
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

    /// Returns a prefix that no other test has.
    pub fn fresh_prefix() -> String {
        static PREFIXES: AtomicU64 = AtomicU64::new(0);
        format!("test-{}-{}", std::process::id(), PREFIXES.fetch_add(1, Ordering::Relaxed))
    }

    pub fn settings(kind: RemoteKind, url: &str, retry_for: Duration) -> RemoteSettings {
        RemoteSettings {
            kind,
            bucket: BUCKET.to_owned(),
            prefix: fresh_prefix(),
            variables: variables(kind, url)
                .into_iter()
                .map(|(name, value): (&str, String)| (name.to_owned(), Secret::new(value)))
                .collect(),
            retry_for,
        }
    }
}
