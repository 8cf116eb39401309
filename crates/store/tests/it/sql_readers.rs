//! Logins of PostgreSQL that read with SQL: what they see, and that they see nothing else, whatever they try.

use domain::{Secret, TenantId};
use store::sql::sql_readers::scram_verifier;
use store::testing::{LOGIN, TestDatabase, admin_url, migrated_postgres, run_sql};
use store::views::VIEWS;
use store::{Location, TenantStore};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::samples::{tenant, time};
use crate::sql_views::two_tenants;

fn url(db: &TestDatabase) -> &str {
    match &db.location {
        Location::Postgres { url, .. } => url,
        Location::Sqlite { .. } => panic!("these tests are about PostgreSQL"),
    }
}

/// A reader of a database of the test server, whose login goes with it.
struct Reader {
    login: String,
    database: String,
    client: Client,
}

impl Reader {
    async fn grant(db: &TestDatabase, tenant: Option<TenantId>) -> Self {
        let database = admin_url(url(db));
        let kind = if tenant.is_some() { "one" } else { "all" };
        let login = format!("reader_{kind}_of_{}", database.rsplit('/').next().unwrap());
        let verifier = scram_verifier(&Secret::new("a password".to_owned()));
        let (system, now) = (db.store.system(), time("2026-01-02T03:04:05Z"));
        system.grant_sql_reader(&login, tenant, Some(&verifier), now).await.unwrap();
        let client = connect(&database, &login).await;
        Self { login, database, client }
    }

    /// Returns how many rows a statement shows, or why it is refused.
    async fn count(&self, sql: &str) -> Result<usize, SqlState> {
        let shown = self.client.simple_query(sql).await.map_err(|e| e.code().unwrap().clone())?;
        Ok(shown.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count())
    }

    async fn leave(self) {
        drop(self.client);
        run_sql(&self.database, &format!("drop role if exists {}", self.login)).await.unwrap();
    }
}

/// Connects with a login to the server itself: a pooler does not know it.
async fn connect(database: &str, login: &str) -> Client {
    let (_, place) = database.rsplit_once('@').unwrap();
    let url = format!("postgres://{login}:a%20password@{place}");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn tenants_shown(reader: &Reader, view: &str) -> Vec<String> {
    let sql = format!("select distinct tenant_id::text from {view} order by 1");
    reader.client.query_typed(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

fn ids<const N: usize>(tenants: [&TenantStore; N]) -> Vec<String> {
    let mut ids = tenants.map(|tenant| tenant.id.to_string()).to_vec();
    ids.sort();
    ids
}

#[tokio::test]
async fn reader_sees_the_rows_of_its_tenant_or_of_all() {
    let db = migrated_postgres().await;
    let (acme, other) = two_tenants(&db).await;
    let (one, all) = (Reader::grant(&db, Some(acme.id)).await, Reader::grant(&db, None).await);

    for view in VIEWS {
        assert_eq!(tenants_shown(&one, view.name).await, ids([&acme]), "{}", view.name);
        assert_eq!(tenants_shown(&all, view.name).await, ids([&acme, &other]), "{}", view.name);
    }
    // By their tables as well, as far as the columns are behind a view.
    assert_eq!(one.count("select id, subject from emails").await, Ok(2));
    assert_eq!(all.count("select id, subject from emails").await, Ok(4));
    assert_eq!(db.store.system().isolation_problems().await.unwrap(), Vec::<String>::new());
    one.leave().await;
    all.leave().await;
}

/// Whatever a session can set or become.
#[tokio::test]
async fn reader_cannot_widen_what_it_reads() {
    let db = migrated_postgres().await;
    let (acme, other) = two_tenants(&db).await;
    let reader = Reader::grant(&db, Some(acme.id)).await;
    let other_id = other.id;

    for step in [
        "set role mailroom_tenant_reader",
        "reset role",
        &format!("set mailroom.tenant = '{other_id}'"),
        "set row_security = on",
        "set default_transaction_read_only = off",
        "set statement_timeout = 0",
        "create temp table sql_readers (login text, tenant_id uuid, transaction_id bigint)",
        &format!("insert into pg_temp.sql_readers values (session_user, '{other_id}', 0)"),
        "create function pg_temp.mailroom_reader_tenant() returns uuid language sql as 'select null::uuid'",
        "set search_path = pg_temp, public",
    ] {
        reader.client.batch_execute(step).await.unwrap_or_else(|e| panic!("{step}: {e}"));

        assert_eq!(tenants_shown(&reader, "public.mailroom_emails").await, ids([&acme]), "{step}");
    }
    reader
        .client
        .batch_execute("reset all; set default_transaction_read_only = off; drop table pg_temp.sql_readers")
        .await
        .unwrap();
    for refused in [
        "set role mailroom_system",
        "set role mailroom_tenant",
        "set role mailroom_all_reader",
        &format!("set role {LOGIN}"),
        "set session authorization postgres",
        "set row_security = off; select * from mailroom_emails",
        "select * from sql_readers",
        "insert into sql_readers values (session_user, null, 1, now())",
        &format!("update sql_readers set tenant_id = '{other_id}'"),
        "delete from sql_readers",
        "select * from secrets",
        "select count(*) from secrets",
        "select * from tenant_keys",
        "select * from api_keys",
        "select * from jobs",
        "select * from finished_jobs",
        "select * from idempotency_keys",
        "select * from audit",
        "select * from key_fingerprints",
        "select * from schema_migrations",
        "select * from emails",
        "select message_id_hash from emails",
        "select settings from mailboxes",
        "select secret_ref from mailboxes",
        "select subject from emails_default",
        "select * from emails_before_1990",
        "select mailroom_search(null, null, null, null, null, null, null, false, 10)",
        "select mailroom_upkeep_partitions('{}', 1)",
        "update mailroom_emails set subject = 'x'",
        "delete from mailroom_emails",
        "delete from emails",
        "insert into mailroom_events (tenant_id) values (null)",
        "truncate emails",
        "lock table emails",
        "create table mine (a int)",
        "create view mine as select 1 as a",
        "create or replace view mailroom_emails as select 1 as a",
        "create or replace function mailroom_reader_tenant() returns uuid language sql as 'select null::uuid'",
        "alter table emails disable row level security",
        "alter policy mailroom_tenant_reader on emails using (true)",
        "grant select on emails to public",
        "alter role mailroom_tenant_reader login",
        "select pg_read_file('PG_VERSION')",
        "select query_to_xml('select * from secrets', true, false, '')",
        "copy emails to stdout",
        "copy (select * from secrets) to stdout",
        "copy mailroom_emails to program 'cat'",
        "create extension file_fdw",
        "select * from pg_authid",
        "create function pg_temp.f() returns int language sql security definer set role = 'mailroom_system' as 'select 1'",
    ] {
        let found = reader.count(refused).await;
        assert!(found.is_err(), "{refused}: {found:?}");
    }
    // What the planner knows of the texts of all tenants stays its own.
    let known =
        "select most_common_vals::text from pg_stats where tablename like 'email%' and most_common_vals is not null";
    run_sql(url(&db), "analyze").await.unwrap();
    assert_eq!(reader.count(known).await, Ok(0));
    reader.leave().await;
}

/// Roles belong to the server, and so can a reader of one Mailroom connect to the database of another.
#[tokio::test]
async fn reader_of_another_installation_sees_nothing() {
    let (db, foreign) = (migrated_postgres().await, migrated_postgres().await);
    let (acme, _) = two_tenants(&db).await;
    two_tenants(&foreign).await;
    for tenant in [Some(acme.id), None] {
        let reader = Reader::grant(&db, tenant).await;
        let elsewhere = connect(&admin_url(url(&foreign)), &reader.login).await;

        for view in VIEWS {
            let count = format!("select from {}", view.name);
            assert!(elsewhere.query_typed(&count, &[]).await.unwrap().is_empty(), "{}", view.name);
        }
        drop(elsewhere);
        reader.leave().await;
    }
}

#[tokio::test]
async fn revoked_reader_sees_nothing_at_once() {
    let db = migrated_postgres().await;
    let (acme, _) = two_tenants(&db).await;
    let (dropped, kept) = (Reader::grant(&db, Some(acme.id)).await, Reader::grant(&db, None).await);
    let system = db.store.system();
    // A role that something of another database depends on cannot be dropped from here; it can log in no more.
    let owned = format!("grant create on schema public to {}", kept.login);
    run_sql(url(&db), &owned).await.unwrap();
    assert_eq!(dropped.count("select from mailroom_emails").await, Ok(2));

    for reader in [&dropped, &kept] {
        system.revoke_sql_reader(&reader.login, true).await.unwrap();

        let seen = reader.count("select from mailroom_emails").await;
        assert!(seen.is_err(), "{}: {seen:?}", reader.login);
    }
    assert_eq!(system.find_server_role(&dropped.login).await.unwrap(), None);
    assert!(system.find_server_role(&kept.login).await.unwrap().is_some());
    let can_log_in = format!("select rolcanlogin from pg_roles where rolname = '{}'", kept.login);
    assert!(!db.rows(&can_log_in).await[0].get::<bool>(0).unwrap());
    assert!(system.list_sql_readers().await.unwrap().is_empty());
    run_sql(url(&db), &format!("revoke create on schema public from {}", kept.login)).await.unwrap();
    dropped.leave().await;
    kept.leave().await;
}

#[tokio::test]
async fn deleted_tenant_is_read_no_more() {
    let db = migrated_postgres().await;
    let (acme, _) = two_tenants(&db).await;
    let reader = Reader::grant(&db, Some(acme.id)).await;

    db.run(&format!("update tenants set deleted_at = now() where id = '{}'", acme.id)).await;

    assert_eq!(reader.count("select from mailroom_emails").await, Ok(0));
    reader.leave().await;
}

#[tokio::test]
async fn erased_tenant_leaves_no_reader() {
    let db = migrated_postgres().await;
    let system = db.store.system();
    let gone = tenant(&db.store, "gone").await;
    let reader = Reader::grant(&db, Some(gone.id)).await;
    let row = system.find_tenant(&gone.id.to_string()).await.unwrap().unwrap();

    assert!(system.forget_tenant(&row).await.unwrap());

    assert!(system.list_sql_readers().await.unwrap().is_empty());
    assert_eq!(reader.count("select from mailroom_tenants").await, Ok(0));
    reader.leave().await;
}

/// And a tenant's rows come by an index, not by reading those of all.
#[tokio::test]
async fn plans_of_a_reader_open_only_what_they_need() {
    let db = migrated_postgres().await;
    let (acme, _) = two_tenants(&db).await;
    let reader = Reader::grant(&db, Some(acme.id)).await;
    let plan = async |sql: &str| -> String {
        let rows = reader.client.query_typed(&format!("explain {sql}"), &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect()
    };
    let of_month =
        "email_id >= '019b76da-a800-0000-0000-000000000000' and email_id < '019c167f-cc00-0000-0000-000000000000'";

    let pruned = plan(&format!("select subject from mailroom_emails where {of_month}")).await;
    reader.client.batch_execute("set enable_seqscan = off").await.unwrap();
    let indexed = plan("select kind, count(*) from mailroom_recipients group by kind").await;

    let partitions = pruned.matches(" on emails_").count();
    assert!((1..=2).contains(&partitions), "{pruned}");
    assert!(indexed.contains("Index Cond: (tenant_id = $"), "{indexed}");
    reader.leave().await;
}
