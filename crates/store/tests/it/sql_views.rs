//! Queries that people write: what they see of the views, and that nothing else is to be had.

use std::time::Duration;

use domain::TenantId;
use serde_json::{Value, json};
use store::sql_query::{SqlQuery, SqlQueryError, SqlResult};
use store::testing::{TestDatabase, migrated_sqlite, on_each_database};
use store::views::VIEWS;
use store::{Dialect, Location, TenantStore};
use tempfile::tempdir;

use crate::samples::{attachment, blobs, email, mailbox, record, tenant, time};

/// Longer than any query here takes that is not meant to be stopped.
const ENOUGH: Duration = Duration::from_secs(60);

fn query(text: &str, tenant: Option<TenantId>) -> SqlQuery {
    SqlQuery { text: text.to_owned(), tenant, max_rows: 1000, timeout: ENOUGH }
}

async fn run(db: &TestDatabase, text: &str, tenant: Option<TenantId>) -> SqlResult {
    let found = db.store.run_sql_query(query(text, tenant)).await;
    found.unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Two tenants, each with something in every view.
pub async fn two_tenants(db: &TestDatabase) -> (TenantStore, TenantStore) {
    let folder = tempdir().unwrap();
    let (acme, other) = (tenant(&db.store, "acme").await, tenant(&db.store, "other").await);
    for (store, subject) in [(&acme, "acme secret"), (&other, "other secret")] {
        let mailbox = mailbox(store).await;
        let mut new = email(mailbox.id, subject, time("2026-01-02T03:04:05Z"));
        new.attachments = vec![attachment(new.id, subject.as_bytes())];
        let old = email(mailbox.id, &format!("old {subject}"), time("1997-01-02T03:04:05Z"));
        record(store, &blobs(&folder), vec![new, old]).await.unwrap();
        let (id, now) = (store.id, "'2026-01-02T03:04:05.000Z'");
        db.run_all(&[
            &format!(
                "insert into sync_states (tenant_id, mailbox_id, updated_at)
                 select tenant_id, id, {now} from mailboxes where tenant_id = '{id}'"
            ),
            &format!(
                "insert into events (tenant_id, seq, at, type, is_backfill, data) values ('{id}', 1000, {now}, 'x', false, '{{}}')"
            ),
            &format!("insert into tenant_keys values ('{id}', 1, 'x', 'x', {now})"),
            &format!("insert into secrets values ('{id}', '{id}', 'password', 1, 'hidden', {now}, {now})"),
        ])
        .await;
    }
    (acme, other)
}

#[tokio::test]
async fn every_view_shows_a_tenant_its_rows_alone() {
    on_each_database(|db| async move {
        let (acme, other) = two_tenants(&db).await;
        for view in VIEWS {
            let count = format!("select count(*), count(distinct tenant_id), min(tenant_id || '') from {}", view.name);

            let all = run(&db, &count, None).await.rows;
            let of_acme = run(&db, &count, Some(acme.id)).await.rows;
            let of_other = run(&db, &count, Some(other.id)).await.rows;

            assert_eq!(all[0][1], 2, "{}", view.name);
            assert_eq!((&of_acme[0][1], &of_acme[0][2]), (&json!(1), &json!(acme.id)), "{}", view.name);
            assert_eq!(of_other[0][2], json!(other.id), "{}", view.name);
            assert_eq!(all[0][0].as_i64(), Some(of_acme[0][0].as_i64().unwrap() + of_other[0][0].as_i64().unwrap()));
            let columns: Vec<&str> = view.columns.iter().map(|column| column.name).collect();
            let shown = run(&db, &format!("select * from {}", view.name), Some(acme.id)).await;
            assert_eq!(shown.columns, columns, "{}", view.name);
        }
        let nobody = TenantId(uuid::Uuid::from_u128(1));
        let found = db.store.run_sql_query(query("select * from mailroom_emails", Some(nobody))).await;
        // PostgreSQL refuses a tenant that is none.
        assert!(found.map_or(true, |found| found.rows.is_empty()));
    })
    .await;
}

#[tokio::test]
async fn one_query_gives_the_same_on_both_databases() {
    on_each_database(|db| async move {
        let (acme, _) = two_tenants(&db).await;
        let joined = "with newest as (select * from mailroom_emails where subject not like 'old%')
            select n.received_day, n.received_month, n.size_bytes, n.raw_sha256, a.filename, r.address, n.defects ->> 0 as defect,
                   (select count(*) from newest) as emails
            from newest n join mailroom_attachments a using (tenant_id, email_id) join mailroom_recipients r using (tenant_id, email_id)
            order by r.position limit 1";

        let found = run(&db, joined, Some(acme.id)).await;

        let hash = domain::Sha256::of(b"acme secret").hex();
        let expected = json!(["2026-01-02", "2026-01", 11, hash, "a.txt", "bob@acme.test", "bad_date", 1]);
        assert_eq!(Value::from(found.rows[0].clone()), expected);
        // What `with` and aliases are called does not matter, nor values made from JSON.
        let named = "with mailroom_emails as (select 1 as a), x as (select 2 as b)
            select (select count(*) from x), (select a from mailroom_emails), (select count(*) from mailroom_tenants t)";
        assert_eq!(run(&db, named, Some(acme.id)).await.rows, [[json!(1), json!(1), json!(1)]]);
    })
    .await;
}

#[tokio::test]
async fn result_says_when_it_is_cut() {
    let numbers =
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 10) select i from n order by i";
    on_each_database(|db| async move {
        for (max_rows, shown, is_cut) in [(3, 3, true), (9, 9, true), (10, 10, false), (0, 0, true)] {
            let found = db.store.run_sql_query(SqlQuery { max_rows, ..query(numbers, None) }).await.unwrap();

            assert_eq!((found.rows.len(), found.is_cut), (shown, is_cut), "{max_rows}");
        }
        let nothing = run(&db, "select subject, size_bytes from mailroom_emails", None).await;
        assert_eq!((nothing.columns, nothing.rows.len()), (vec!["subject".to_owned(), "size_bytes".to_owned()], 0));
        let twice = run(&db, "select 1 as a, 2 as a, null as b", None).await;
        assert_eq!(twice.rows, [[json!(1), json!(2), Value::Null]]);
    })
    .await;
}

/// Both by its rows together and by a single value.
#[tokio::test]
async fn huge_result_is_refused() {
    on_each_database(|db| async move {
        let (long, one) = match db.store.dialect() {
            Dialect::Sqlite => ("hex(zeroblob(1000000))", "hex(zeroblob(40000000))"),
            Dialect::Postgres => ("repeat('0', 2000000)", "repeat('0', 80000000)"),
        };
        let numbers = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 100)";
        for text in [format!("{numbers} select {long} as a from n"), format!("select {one} as a")] {
            let refused = db.store.run_sql_query(query(&text, None)).await;

            assert!(matches!(refused, Err(SqlQueryError::TooLarge)), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn endless_query_is_stopped() {
    on_each_database(|db| async move {
        let mut endless = vec![
            "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n",
            "with recursive n (i) as (select 1 union all select 1 from n) select i from n where i = 2",
        ];
        if db.store.dialect() == Dialect::Postgres {
            endless.push("select pg_sleep(600)");
            // What it sets itself comes too late.
            endless.push("select set_config('statement_timeout', '0', false), pg_sleep(600)");
        }
        for text in endless {
            let timeout = Duration::from_millis(100);
            let stopped = db.store.run_sql_query(SqlQuery { timeout, ..query(text, None) }).await;

            assert!(matches!(stopped, Err(SqlQueryError::TimedOut(_))), "{text}: {stopped:?}");
        }
    })
    .await;
}

/// Statements that would change or reach something, on either database, and for a tenant's reader as for that of all.
fn attacks(dialect: Dialect, other: TenantId) -> Vec<String> {
    let mut attacks: Vec<String> = [
        "",
        ";",
        "select 1; select 2",
        "select 1; delete from emails",
        "delete from emails",
        "delete from emails returning id",
        "update mailroom_emails set subject = 'x' returning email_id",
        "insert into mailroom_tenants (tenant_id) values (null) returning 1",
        "with gone as (delete from emails returning id) select * from gone",
        "create table mine (a int)",
        "create temp table mine (a int)",
        "create temp view mine as select 1 as a",
        "drop view mailroom_emails",
        "begin",
        "commit",
        "rollback",
        "vacuum",
        "explain analyze delete from emails",
        "select * from secrets",
        "select ciphertext from secrets",
        "select count(*) from secrets",
        "select count(*) from SECRETS as s",
        "select 1 from secrets limit 1",
        "select exists (select 1 from secrets)",
        "select 1 where exists (select * from tenant_keys)",
        "select t.name from mailroom_tenants t, secrets",
        "select key_hash from api_keys",
        "select payload from jobs",
        "select count(*) from jobs",
        "select body from idempotency_keys",
        "select entry from audit",
        "select settings from mailboxes",
        "select secret_ref from mailboxes",
        "select tokens from email_search",
        "select count(*) from email_search",
        "select * from emails",
        "select * from schema_migrations",
        "with mailroom_emails as (select * from secrets) select * from mailroom_emails",
        "with mailroom_emails as (select count(*) from secrets) select * from mailroom_emails",
        "with recursive mailroom_emails as (select ciphertext from secrets) select * from mailroom_emails",
        "select * from (select * from secrets) as mailroom_emails",
        "select (select ciphertext from secrets limit 1) from mailroom_tenants",
        "select * from mailroom_tenants order by (select ciphertext from secrets)",
        // Joins name columns in ways of their own.
        "select count(*) from mailroom_tenants join secrets using (tenant_id)",
        "select count(*) from mailroom_tenants natural join secrets",
        "with g (ciphertext) as (select null) select count(*) from g join secrets using (ciphertext)",
        "with g (ciphertext) as (select null) select ciphertext from g full join secrets using (ciphertext)",
        "with g (ciphertext) as (select null) select ciphertext from g natural full join secrets",
        "with g (ciphertext) as (select null) select * from g right join secrets using (ciphertext)",
        "with g (message_id_hash) as (select null) select message_id_hash from g full join emails using (message_id_hash)",
        "values ((select count(*) from secrets))",
    ]
    .map(str::to_owned)
    .into();
    attacks.extend(match dialect {
        Dialect::Sqlite => sqlite_attacks(),
        Dialect::Postgres => postgres_attacks(other),
    });
    attacks
}

fn sqlite_attacks() -> Vec<String> {
    [
        "attach 'other.db' as other",
        "attach ':memory:' as other",
        "detach main",
        "pragma query_only = off",
        "pragma table_list",
        "pragma writable_schema = on",
        "pragma temp_store_directory = '/tmp'",
        "select * from pragma_table_list",
        "select count(*) from pragma_table_list",
        "select * from pragma_table_info('secrets')",
        "select * from pragma_query_only",
        "select load_extension('libm.so.6')",
        "select LOAD_EXTENSION('libm.so.6', 'main')",
        "select readfile('/etc/passwd')",
        "select writefile('/tmp/x', 'x')",
        "select edit('x')",
        "select * from sqlite_schema",
        "select sql from sqlite_master",
        "select name from sqlite_temp_schema",
        "select name from sqlite_temp_master",
        "select count(*) from sqlite_temp_schema",
        "select count(*) from sqlite_schema",
        "select * from dbstat",
        "select count(*) from dbstat",
        "select * from sqlite_dbpage",
        "select * from email_search_data",
        "select count(*) from email_search_content",
        "select * from sqlite_stat1",
        "select * from main.emails",
        "select subject from main.mailroom_emails",
        "select count(*) from main.mailroom_emails",
        "select count(*) from main.emails",
        "select e.rowid from emails e",
        "with mailroom_emails as (select * from main.mailroom_emails) select * from mailroom_emails",
        "with v as (select * from main.emails) select * from v",
        "select * from emails as mailroom_emails",
        "with g (subject) as (values ('old other secret')) select count(*) from g join emails using (subject)",
        "with g (subject) as (values ('old other secret')) select count(*) from g natural join emails",
        "with g (subject) as (values ('old other secret')) select subject from g full join emails using (subject)",
        "with g (subject) as (values ('x')) select 1 from g where subject in (select subject from emails)",
        "with g (name) as (values ('x')) select 1 from g where name in sqlite_schema",
        "select 1 in schema_migrations",
        "select count(*) filter (where exists (select 1 from emails)) from mailroom_tenants",
        "select max((select count(*) from emails)) over () from mailroom_tenants",
        "select (select count(*) from emails) + 0 as n group by n",
        "select 1 limit (select count(*) from emails)",
        "select 1 limit 1 offset (select count(*) from emails)",
        "select json_group_array(subject) from emails",
        "select * from json_each((select body_text from emails limit 1))",
        "select count(*) from json_each((select count(*) from emails))",
        "create temp trigger t after insert on emails begin select 1; end",
        "create virtual table temp.v using fts5vocab(main, email_search, row)",
        "vacuum into '/tmp/x.db'",
        "analyze",
        "reindex",
        "savepoint s",
    ]
    .map(str::to_owned)
    .into()
}

fn postgres_attacks(other: TenantId) -> Vec<String> {
    let mut attacks: Vec<String> = [
        "set role mailroom_system",
        "reset role",
        "set session authorization postgres",
        "set local transaction_read_only = off",
        "set mailroom.tenant = 'x'",
        "select set_config('role', 'mailroom_system', true)",
        "select set_config('role', 'none', false)",
        "select set_config('session_authorization', 'postgres', true)",
        "select set_config('transaction_read_only', 'off', true)",
        "select set_config('role', 'mailroom_system', true), query_to_xml('select * from secrets', true, false, '')",
        "with a as materialized (select set_config('role', 'mailroom_system', true)) select * from a, secrets",
        "select query_to_xml('select * from secrets', true, false, '')",
        "select query_to_xml('delete from emails', true, false, '')",
        "select table_to_xml('secrets', true, false, '')",
        "select pg_read_file('/etc/passwd')",
        "select pg_read_binary_file('PG_VERSION')",
        "select * from pg_ls_dir('.')",
        "select lo_import('/etc/passwd')",
        "select lo_export(1, '/tmp/x')",
        "select * from pg_authid",
        "select rolpassword from pg_authid",
        "select * from pg_shadow",
        "select * from pg_user_mapping",
        "copy mailroom_emails to stdout",
        "copy mailroom_emails to program 'cat'",
        "do $$ begin null; end $$",
        "create function pg_temp.f() returns int language sql as 'select 1'",
        "call pg_temp.f()",
        "listen mailroom_jobs",
        "lock table emails",
        "prepare a as select 1",
        "execute a",
        "declare c cursor for select 1",
        "select * from sql_readers",
        "select * from emails_default",
        "select subject from emails_default",
        "select * from only emails",
        "select raw_blob_sha256 from emails",
        "select message_id_hash from emails",
        "select e from emails e",
        "select * from emails for update",
        "select * from mailroom_emails for update",
        "select mailroom_search(null, null, null, null, null, null, null, false, 10)",
        "select * from mailroom_places('{}')",
        "select mailroom_upkeep_partitions('{}', 1)",
        "select mailroom_settle_emails(null, null)",
        "select mailroom_secure('emails', false)",
        "select mailroom_state_view('mailroom_emails', 'select 1', '{}')",
        "select mailroom_claim_jobs()",
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = session_user",
        "select pg_reload_conf()",
        "select pg_switch_wal()",
        "select setval('x', 1)",
        "select * from dblink('', 'select 1') as t (a int)",
    ]
    .map(str::to_owned)
    .into();
    attacks.push(format!("insert into sql_readers values (session_user, '{other}', 1, now()) returning 1"));
    attacks.push(format!("update sql_readers set tenant_id = '{other}' returning 1"));
    attacks
}

#[tokio::test]
async fn query_reaches_nothing_but_the_views() {
    on_each_database(|db| async move {
        let (acme, other) = two_tenants(&db).await;
        for text in attacks(db.store.dialect(), other.id) {
            for tenant in [Some(acme.id), None] {
                let refused = db.store.run_sql_query(query(&text, tenant)).await;

                assert!(matches!(refused, Err(SqlQueryError::Refused(_))), "{text}: {refused:?}");
            }
        }
        assert_eq!(acme.totals().await.unwrap().emails, 2);
        assert_eq!(run(&db, "select count(*) from mailroom_emails", None).await.rows, [[json!(4)]]);
    })
    .await;
}

/// What a session may set decides nothing.
#[tokio::test]
async fn settings_show_no_other_tenant() {
    on_each_database(|db| async move {
        if db.store.dialect() == Dialect::Sqlite {
            return; // It has none.
        }
        let (acme, other) = two_tenants(&db).await;
        let count = "(select count(*) from mailroom_emails)";
        for set in [
            format!("set_config('mailroom.tenant', '{}', true)", other.id),
            format!("set_config('mailroom.tenant', '{}', false)", other.id),
            "set_config('row_security', 'on', true)".to_owned(),
            "set_config('search_path', 'pg_temp, public', true)".to_owned(),
            "set_config('session_preload_libraries', '', true)".to_owned(),
        ] {
            let text = format!("with s as materialized (select {set}) select {count} from s");
            match db.store.run_sql_query(query(&text, Some(acme.id))).await {
                Ok(found) => assert_eq!(found.rows, [[json!(2)]], "{set}"),
                Err(e) => assert!(matches!(e, SqlQueryError::Refused(_)), "{set}: {e}"),
            }
        }
        // What it finds by itself is what it may read.
        let everything = run(&db, "select database_to_xml(true, false, '')::text", Some(acme.id)).await.rows;
        let everything = everything[0][0].as_str().unwrap();
        assert!(everything.contains("acme secret") && everything.contains("<mailroom_events>"));
        assert!(!["other secret", "<emails>", "hidden", "<secrets>"].iter().any(|shown| everything.contains(shown)));
        let locked = run(&db, "select pg_advisory_lock(7)", None).await;
        assert_eq!(locked.rows.len(), 1);
        // It ends with the session, which nobody gets again.
        let held = "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and database = (select oid from pg_database where datname = current_database())";
        store::testing::wait_until("the lock is gone", async || db.rows(held).await[0].get::<i64>(0).unwrap() == 0).await;
        assert!(db.rows("select login from sql_readers").await.is_empty(), "no query leaves a reader behind");
    })
    .await;
}

#[tokio::test]
async fn sqlite_shell_finds_the_views_in_the_file() {
    let folder = tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    two_tenants(&db).await;
    let Location::Sqlite { path, .. } = &db.location else { panic!("it is an SQLite") };
    let shell = rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    for view in VIEWS {
        let count = format!("select count(*) from {}", view.name);
        let rows: i64 = shell.query_row(&count, [], |row| row.get(0)).unwrap();

        assert!(rows > 0, "{}", view.name);
    }
}

#[tokio::test]
async fn changed_sqlite_views_are_stated_again() {
    let folder = tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let Location::Sqlite { path, .. } = &db.location else { panic!("it is an SQLite") };
    let before = views(path);
    let shell = rusqlite::Connection::open(path).unwrap();
    let damage = "drop view mailroom_emails; create view mailroom_emails as select 1 as a; drop view mailroom_tenants;
                  create view mailroom_retired as select 1 as a; create view own as select * from emails";
    shell.execute_batch(damage).unwrap();

    assert_eq!(db.store.migrate().await.unwrap(), Vec::<&str>::new());

    let own = views(path).into_iter().filter(|(name, _)| name == "own");
    assert_eq!(own.count(), 1, "a view of somebody's own stays");
    assert_eq!(views(path).into_iter().filter(|(name, _)| name != "own").collect::<Vec<_>>(), before);
}

fn views(path: &std::path::Path) -> Vec<(String, String)> {
    let shell = rusqlite::Connection::open(path).unwrap();
    let mut statement = shell.prepare("select name, sql from sqlite_schema where type = 'view' order by name").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}
