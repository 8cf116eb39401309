//! Tenants are isolated by the database itself, also from clients that bypass our code.

use std::time::Duration;

use domain::{JobId, Sha256, SystemClock, TenantId};
use store::sql::jobs::{AfterFailure, AttemptFailure, AttemptOutcome, JobEnd};
use store::sql::search::SearchPage;
use store::testing::{
    LOGIN, TestDatabase, isolation_problems_after, migrate_fresh_postgres, migrated_postgres, run_sql, wait_until,
};
use store::{Location, TenantStore};
use tempfile::tempdir;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::jobs::transitions::{claim, job};
use crate::samples::{attachment, blobs, email, mailbox, record, tenant, time};

fn url(db: &TestDatabase) -> &str {
    match &db.location {
        Location::Postgres { url, .. } => url,
        Location::Sqlite { .. } => panic!("these tests are about PostgreSQL"),
    }
}

async fn problems(db: &TestDatabase) -> Vec<String> {
    db.store.system().isolation_problems().await.unwrap()
}

#[tokio::test]
async fn fresh_schema_has_no_isolation_problems() {
    let db = migrate_fresh_postgres().await;

    assert_eq!(problems(&db).await, Vec::<String>::new());
}

/// Each is named, and `migrate` puts it right.
#[tokio::test]
async fn manual_damage_is_reported_and_mended() {
    let damages = [
        (
            "drop policy mailroom_tenant on emails_default",
            "the partition emails_default lacks the policy mailroom_tenant",
        ),
        ("drop policy mailroom_system on tenants", "the table tenants lacks the policy mailroom_system"),
        ("alter policy mailroom_tenant on ledger using (true)", "the table ledger lacks the policy mailroom_tenant"),
        ("alter policy mailroom_tenant on blobs with check (true)", "the table blobs lacks the policy mailroom_tenant"),
        ("create policy mine on blobs using (true)", "the table blobs has the policy mine"),
        ("alter table packs disable row level security", "the table packs has no row security"),
        ("alter table emails no force row level security", "the table emails does not force row security"),
        ("grant select on emails_default to mailroom_tenant", "the partition emails_default does not have its grants"),
        ("grant select on mailboxes to public", "the table mailboxes is open to everybody (SELECT)"),
        ("grant select (address) on mailboxes to public", "open to everybody (SELECT of address)"),
        ("revoke insert on folders from mailroom_tenant", "the table folders does not have its grants"),
        ("grant update on tenants to mailroom_tenant", "the table tenants does not have its grants"),
        (
            "grant execute on function mailroom_upkeep_partitions to mailroom_tenant",
            "may call the function mailroom_upkeep",
        ),
        (
            "revoke execute on function mailroom_find_emails from mailroom_tenant",
            "may not call the function mailroom_find_emails",
        ),
        (
            "grant execute on function mailroom_find_emails to public",
            "everybody may call the function mailroom_find_emails",
        ),
        ("alter function mailroom_find_emails reset search_path", "mailroom_find_emails has no search path of its own"),
        (
            "alter function mailroom_find_emails security invoker",
            "mailroom_find_emails does not run with its owner's rights",
        ),
        ("drop function mailroom_find_emails", "the function mailroom_find_emails is missing"),
        ("drop view mailroom_emails", "the view mailroom_emails is missing"),
        (
            "drop view mailroom_tenants; create view mailroom_tenants as select 1 as a; alter view mailroom_tenants owner to mailroom_system;
             grant select on mailroom_tenants to mailroom_tenant_reader, mailroom_all_reader",
            "the view mailroom_tenants was changed",
        ),
        (
            "alter view mailroom_emails reset (security_invoker)",
            "the view mailroom_emails reads with the rights of its owner",
        ),
        ("revoke select on mailroom_emails from mailroom_all_reader", "the view mailroom_emails does not have its grants"),
        ("grant insert on mailroom_emails to mailroom_tenant_reader", "the view mailroom_emails does not have its grants"),
        ("grant select on emails to mailroom_tenant_reader", "the table emails does not have its grants for mailroom_tenant_r"),
        ("grant select (settings) on tenants to mailroom_all_reader", "the table tenants does not have its grants"),
        ("grant select on schema_migrations to mailroom_all_reader", "the table schema_migrations does not have its grants"),
        ("grant select on emails_default to mailroom_all_reader", "the partition emails_default does not have its grants"),
        ("grant select on sql_readers to mailroom_tenant", "the table sql_readers does not have its grants for mailroom_tenant"),
        ("drop policy mailroom_all_reader on events", "the table events lacks the policy mailroom_all_reader"),
        (
            "alter policy mailroom_tenant_reader on ledger using (true)",
            "the table ledger lacks the policy mailroom_tenant_reader",
        ),
        (
            "create policy mailroom_tenant_reader on jobs to mailroom_tenant_reader using (true)",
            "the table jobs has the policy mailroom_tenant_reader",
        ),
        ("create policy mine on blobs to mailroom_all_reader using (true)", "the table blobs has the policy mine"),
        (
            "revoke execute on function mailroom_reader_tenant from mailroom_tenant_reader",
            "mailroom_tenant_reader may not call the function mailroom_reader_tenant",
        ),
        (
            "grant execute on function mailroom_search to mailroom_all_reader",
            "mailroom_all_reader may call the function mailroom_search",
        ),
        ("alter function mailroom_reader_tenant reset search_path", "mailroom_reader_tenant has no search path of its own"),
        (
            "alter function mailroom_reader_sees_all security invoker",
            "mailroom_reader_sees_all does not run with its owner's rights",
        ),
    ];
    let db = migrated_postgres().await;
    for (damage, named) in damages {
        run_sql(url(&db), damage).await.unwrap();
        let found = problems(&db).await;
        assert!(found.len() == 1 && found[0].contains(named), "{damage}: {found:?}");
        // A view has its cure at hand as well.
        let cures = ["; run `mailroom migrate`, which puts it right", "set (security_invoker = true)"];
        assert!(cures.iter().any(|cure| found[0].ends_with(cure)), "{found:?}");

        db.store.migrate().await.unwrap();

        assert_eq!(problems(&db).await, Vec::<String>::new(), "{damage}");
    }
}

#[tokio::test]
async fn administrator_problems_are_reported() {
    let db = migrated_postgres().await;
    let by_login = format!("set session authorization {LOGIN}");
    let changes = [
        ("alter role mailroom_system rename to mailroom_gone", "the role mailroom_system is missing; run"),
        (
            "alter role mailroom_tenant bypassrls",
            "the role mailroom_tenant bypasses row security; let an administrator",
        ),
        ("alter role mailroom_tenant login", "the role mailroom_tenant can log in; let an administrator"),
        (
            "alter role mailroom_all_reader bypassrls",
            "the role mailroom_all_reader bypasses row security; let an admin",
        ),
        (
            "grant mailroom_system to mailroom_tenant_reader",
            "the role mailroom_tenant_reader is a member of mailroom_system",
        ),
        (
            "create role mailroom_test_clerk superuser in role mailroom_tenant_reader",
            "the login mailroom_test_clerk is a reader for whom row security does not hold; let an administrator",
        ),
        ("grant pg_read_all_data to mailroom_tenant", "the role mailroom_tenant is a member of pg_read_all_data"),
        ("select 1", "the login postgres is a superuser, whom row security does not hold"),
        (&format!("alter role {LOGIN} inherit; {by_login}"), "inherits from mailroom_system"),
        (
            &format!("alter role {LOGIN} bypassrls; {by_login}"),
            "bypasses row security; let an administrator run: alter role",
        ),
        (&format!("revoke mailroom_tenant from {LOGIN}; {by_login}"), "is not a member of mailroom_tenant"),
        ("create view letters as select * from emails", "the view letters reads with the rights of its owner"),
        ("create materialized view letters as select * from emails", "row security cannot hold for letters"),
        ("create table notes (tenant_id uuid)", "the table notes has no row security"),
        ("alter table packs owner to postgres", "the table packs belongs to postgres; let an administrator"),
    ];
    for (change, named) in changes {
        let found = isolation_problems_after(url(&db), change).await;
        assert!(found.iter().any(|problem| problem.contains(named)), "{change}: {found:?}");
    }
    let harmless = "create role mailroom_test_reader; create policy mine on blobs to mailroom_test_reader using (true)";
    let found = isolation_problems_after(url(&db), &format!("{harmless}; {by_login}")).await;
    assert_eq!(found, Vec::<String>::new());
}

/// Two tenants, each with an email of its own.
async fn two_tenants(db: &TestDatabase) -> (TenantStore, TenantStore) {
    let folder = tempdir().unwrap();
    let (acme, other) = (tenant(&db.store, "acme").await, tenant(&db.store, "other").await);
    for (store, subject) in [(&acme, "acme secret"), (&other, "other secret")] {
        let mailbox = mailbox(store).await;
        let mut new = email(mailbox.id, subject, time("2026-01-02T03:04:05Z"));
        new.attachments = vec![attachment(new.id, subject.as_bytes())];
        let old = email(mailbox.id, &format!("old {subject}"), time("1997-01-02T03:04:05Z"));
        record(store, &blobs(&folder), vec![new, old]).await.unwrap();
        leave_jobs(db, store).await;
    }
    (acme, other)
}

/// A row in each table of the queue. What a tenant does to its own jobs, it does with its own rights.
async fn leave_jobs(db: &TestDatabase, tenant: &TenantStore) {
    let system = db.store.system();
    let (done, failed, mut child) = (job("a"), job("a"), job("b"));
    child.after = vec![failed.id];
    child.order_key = Some("key".into());
    let mut unit = tenant.write();
    unit.admit(1);
    unit.enqueue(vec![done, failed, child]);
    unit.commit().await.unwrap();

    let worker = system.register_worker("test", &[], Duration::from_secs(60)).await.unwrap();
    let claimed = claim(&db.store, worker, 10).await;
    assert_eq!(claimed.len(), 2);
    let mut unit = tenant.write();
    unit.finish(&claimed[0], JobEnd::Done, JobId::new(&SystemClock));
    unit.enqueue(vec![job("a")]);
    unit.commit().await.unwrap();
    let failure = AttemptFailure {
        outcome: AttemptOutcome::Failed,
        error_class: "x".into(),
        message: "x".into(),
        fingerprint: "x".into(),
    };
    let later = AfterFailure::RetryIn(Duration::from_secs(3600));
    system.fail_job(&claimed[1], &failure, later, JobId::new(&SystemClock)).await.unwrap();
    db.run(&format!("insert into job_tenants (tenant_id) values ('{}')", tenant.id)).await;
    db.run(&format!(
        "insert into probe_effects select tenant_id, id, 1, now() from jobs where tenant_id = '{}'",
        tenant.id
    ))
    .await;
    db.run(&format!(
        "insert into job_schedules (name, tenant_id, kind, lane, payload, cron, zone, missed, overlap, next_at, updated_at)
         values ('nightly', '{}', 'a', 2, '{{}}', '0 0 * * *', 'UTC', 'skip', 'skip', now(), now())",
        tenant.id
    ))
    .await;
    leave_sync(db, tenant).await;
    // Its jobs must not be claimed with those of the other tenant.
    db.run("update jobs set run_at = now() + interval '1 hour', state = 'scheduled' where state = 'ready'").await;
}

/// And one in each table of what is synced.
async fn leave_sync(db: &TestDatabase, tenant: &TenantStore) {
    let id = tenant.id;
    let of_mailbox = format!("from mailboxes where tenant_id = '{id}'");
    let draft = "type, is_backfill, data) values";
    db.run_all(&[
        &format!(
            "insert into sync_states (tenant_id, mailbox_id, updated_at) select tenant_id, id, now() {of_mailbox}"
        ),
        &format!("insert into push_watches (tenant_id, mailbox_id, next_at) select tenant_id, id, now() {of_mailbox}"),
        &format!(
            "insert into directories (tenant_id, provider, settings, rules, interval_seconds, next_at, created_at, updated_at)
             values ('{id}', 'gmail', '{{}}', '{{}}', 60, now(), now(), now())"
        ),
        &format!(
            "insert into users (id, tenant_id, provider, provider_user_id, listed, state, created_at, updated_at)
             values ('{id}', '{id}', 'gmail', '1', 1, 'inactive', now(), now())"
        ),
        &format!("insert into provider_usage (tenant_id, provider, hour, calls, bytes) select tenant_id, 'gmail', now(), 1, 1 {of_mailbox}"),
        &format!("insert into sync_cursors select tenant_id, id, 'changes', '', 'x' {of_mailbox}"),
        &format!("insert into events (tenant_id, seq, at, {draft} ('{id}', 1000, now(), 'x', false, '{{}}')"),
        &format!("insert into event_gaps values ('{id}', 1, 1000, now())"),
        &format!("insert into event_drafts (tenant_id, unit, step, {draft} ('{id}', '{id}', 1, 'x', false, '{{}}')"),
        &format!("insert into tenant_keys values ('{id}', 1, 'x', 'x', now())"),
        &format!("insert into secrets values ('{id}', '{id}', 'password', 1, 'x', now(), now())"),
        &format!("insert into audit values ('{id}', 1, now(), '{{}}', 'x')"),
        &format!("insert into audit_heads values ('{id}', 1, 'x')"),
        &format!("insert into idempotency_keys values ('{id}', 'x', 'x', 200, '{{}}', '', null, now())"),
        &format!("insert into discarded_emails values ('{id}', '{id}', now())"),
        &format!("insert into restored_emails values ('{id}', '{id}', now())"),
        &format!(
            "insert into webhooks (tenant_id, id, url, types, signing, cursor, created_at, updated_at)
             values ('{id}', '{id}', 'x', '[]', '[]', 0, now(), now())"
        ),
        &format!(
            "insert into webhook_deliveries (tenant_id, id, webhook_id, type, state, attempts, created_at)
             values ('{id}', '{id}', '{id}', 'ping', 'waiting', 0, now())"
        ),
    ])
    .await;
}

/// A key that two tenants could share would reveal one of them to the other.
#[tokio::test]
async fn every_unique_key_begins_with_the_tenant() {
    let db = migrated_postgres().await;
    let sql = "select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
               join pg_attribute first on first.attrelid = i.indrelid and first.attnum = i.indkey[0]
               where i.indisunique and c.relnamespace = current_schema()::regnamespace and not c.relispartition
                 and exists (select from pg_attribute a where a.attrelid = i.indrelid and a.attname = 'tenant_id')
                 and first.attname <> 'tenant_id'
                 -- A hash of something random: nobody comes upon another's.
                 and i.indexrelid <> 'api_keys_key_hash_key'::regclass
                 -- No tenant may read or write it.
                 and i.indexrelid <> 'sql_readers_pkey'::regclass";
    let found: Vec<String> = db.rows(sql).await.iter().map(|row| row.get(0).unwrap()).collect();

    assert_eq!(found, Vec::<String>::new());
}

/// Connects with the login, without our code.
async fn connect(db: &TestDatabase) -> Client {
    let (client, connection) = tokio_postgres::connect(url(db), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// What a transaction of Mailroom's looks like.
async fn begin(client: &Client, role: &str, tenant: Option<TenantId>) {
    let tenant = tenant.map(|id| id.to_string()).unwrap_or_default();
    let begin =
        format!("begin; select set_config('role', '{role}', true), set_config('mailroom.tenant', '{tenant}', true)");
    client.batch_execute(&begin).await.unwrap();
}

/// Rows that a statement shows; none where it is refused.
async fn count(client: &Client, sql: &str) -> Result<u64, SqlState> {
    client.batch_execute("savepoint before").await.unwrap();
    match client.simple_query(sql).await {
        Ok(answer) => Ok(answer.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count() as u64),
        Err(e) => {
            client.batch_execute("rollback to savepoint before").await.unwrap();
            Err(e.code().unwrap().clone())
        }
    }
}

/// Every table, partition and view with a tenant_id, by name.
async fn relations(client: &Client) -> Vec<(String, bool)> {
    let sql = "select c.relname::text, c.relispartition from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
               where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') order by 1";
    client.query_typed(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn raw_sql_sees_only_its_own_tenant() {
    let db = migrated_postgres().await;
    let (acme, other) = two_tenants(&db).await;
    let client = connect(&db).await;
    let relations = relations(&client).await;
    assert!(relations.iter().filter(|(_, is_partition)| *is_partition).count() > 100);

    begin(&client, "mailroom_tenant", Some(other.id)).await;
    for (name, is_partition) in &relations {
        let of_acme = count(&client, &format!("select from {name} where tenant_id = '{}'", acme.id)).await;
        let all = count(&client, &format!("select from {name}")).await;
        if *is_partition {
            assert_eq!(
                (of_acme, all),
                (Err(SqlState::INSUFFICIENT_PRIVILEGE), Err(SqlState::INSUFFICIENT_PRIVILEGE)),
                "{name}"
            );
        } else if name == "sql_readers" || name.starts_with("mailroom_") {
            // Those of readers, which have tests of their own.
            assert_eq!(all, Err(SqlState::INSUFFICIENT_PRIVILEGE), "{name}");
        } else {
            assert_eq!(of_acme, Ok(0), "{name}");
            assert!(name == "api_keys" || all.unwrap() > 0, "{name} shows nothing at all, so this proves nothing");
        }
    }
    assert_eq!(count(&client, "select from tenants").await, Ok(1));
    for refused in [
        "select from schema_migrations",
        "select mailroom_upkeep_partitions('{}', 1)",
        "update tenants set name = 'x'",
        "insert into tenants select * from tenants",
        "copy emails from stdin",
        "create table mine (a int)",
        "alter table emails disable row level security",
        "lock table emails_default",
        "truncate blobs",
    ] {
        assert!(count(&client, refused).await.is_err(), "{refused}");
    }
    assert_eq!(
        count(&client, &format!("update emails set subject = 'x' where tenant_id = '{}' returning id", acme.id)).await,
        Ok(0)
    );
    assert_eq!(
        count(&client, &format!("delete from placements where tenant_id = '{}' returning 1", acme.id)).await,
        Ok(0)
    );
    let found =
        count(&client, "select mailroom_find_emails('acme', null, null, null, null, null, null, false, 10, true)")
            .await;
    assert_eq!(found, Ok(0));
    let found =
        count(&client, "select mailroom_find_emails('other', null, null, null, null, null, null, false, 10, true)")
            .await;
    assert_eq!(found, Ok(2));
    let moved = format!("update emails set tenant_id = '{}' where tenant_id = '{}'", acme.id, other.id);
    assert_eq!(count(&client, &moved).await, Err(SqlState::INSUFFICIENT_PRIVILEGE));
    // There is no sequence whose numbers would reveal how much the others have.
    assert_eq!(
        count(&client, "select from pg_class where relkind = 'S' and relnamespace = 'public'::regnamespace").await,
        Ok(0)
    );
}

#[tokio::test]
async fn copy_out_gives_only_own_rows() {
    use futures_util::TryStreamExt;
    let db = migrated_postgres().await;
    let (_, other) = two_tenants(&db).await;
    let client = connect(&db).await;
    begin(&client, "mailroom_tenant", Some(other.id)).await;

    for copied in ["placements", "(select * from email_recipients)"] {
        let out = client.copy_out(&format!("copy {copied} to stdout")).await.unwrap();
        let parts: Vec<_> = out.try_collect().await.unwrap();
        let text = String::from_utf8(parts.concat()).unwrap();

        assert!(!text.is_empty() && text.lines().all(|line| line.contains(&other.id.to_string())), "{text}");
    }
}

#[tokio::test]
async fn transaction_without_tenant_sees_no_rows() {
    let db = migrated_postgres().await;
    two_tenants(&db).await;
    let client = connect(&db).await;

    begin(&client, "mailroom_tenant", None).await;
    for (name, _) in relations(&client).await.iter().filter(|(_, is_partition)| !is_partition) {
        let is_of_readers = name == "sql_readers" || name.starts_with("mailroom_");
        let expected = if is_of_readers { Err(SqlState::INSUFFICIENT_PRIVILEGE) } else { Ok(0) };
        assert_eq!(count(&client, &format!("select from {name}")).await, expected, "{name}");
    }
    assert_eq!(count(&client, "select from tenants").await, Ok(0));
    let found =
        count(&client, "select mailroom_find_emails(null, null, null, null, null, null, null, false, 10, true)").await;
    assert_eq!(found, Ok(0));
    client.batch_execute("rollback; begin").await.unwrap();
    // And the login by itself, in no role.
    for (name, _) in relations(&client).await {
        let seen = count(&client, &format!("select from {name}")).await;
        assert!(matches!(seen, Ok(0) | Err(SqlState::INSUFFICIENT_PRIVILEGE)), "{name}: {seen:?}");
    }
    client.batch_execute("rollback").await.unwrap();
    // The system's transactions do see across.
    begin(&client, "mailroom_system", None).await;
    assert_eq!(count(&client, "select from emails").await, Ok(4));
}

/// A key that is there and one that is nowhere are refused, or taken, in the same words.
#[tokio::test]
async fn unique_keys_reveal_no_other_tenant() {
    let db = migrated_postgres().await;
    let (acme, other) = two_tenants(&db).await;
    let (mine, theirs) = (mailbox(&other).await.id, mailbox(&acme).await.id);
    let page = SearchPage { limit: 1, ..SearchPage::default() };
    let email_id = acme.search(&Default::default(), &page).await.unwrap()[0];
    let email = acme.find_email(email_id).await.unwrap().unwrap();
    let (tenant, there, nowhere) = (other.id, email.sha256.hex(), Sha256::of(b"nowhere").hex());
    let client = connect(&db).await;
    let folder: String = {
        begin(&client, "mailroom_tenant", Some(acme.id)).await;
        let row = &client.query_typed("select id::text from folders limit 1", &[]).await.unwrap()[0];
        client.batch_execute("rollback").await.unwrap();
        row.get(0)
    };
    let now = "now()";
    let statements = [
        format!(
            "insert into ledger (tenant_id, mailbox_id, provider_message_id, state, first_seen_at) values ('{tenant}', '{theirs}', 'sha256:KEY', 'queued', {now})"
        ),
        format!(
            "insert into email_contents (tenant_id, mailbox_id, raw_sha256, email_id) values ('{tenant}', '{theirs}', '\\xKEY', '{email_id}')"
        ),
        format!(
            "insert into email_contents (tenant_id, mailbox_id, raw_sha256, email_id) values ('{tenant}', '{theirs}', '\\xKEY', '{email_id}') on conflict do nothing"
        ),
        format!(
            "insert into blobs (tenant_id, sha256, pack_id, pack_offset, stored_bytes, size_bytes, encoding, created_at) values ('{tenant}', '\\xKEY', gen_random_uuid(), 0, 0, 0, 'zstd', {now})"
        ),
        format!(
            "insert into placements (tenant_id, mailbox_id, folder_id, provider_uid, provider_message_id, created_at, updated_at) values ('{tenant}', '{theirs}', '{folder}', 'sha256:KEY', 'sha256:KEY', {now}, {now})"
        ),
    ];
    for statement in statements {
        let mut said = Vec::new();
        for key in [&there, &nowhere] {
            begin(&client, "mailroom_tenant", Some(tenant)).await;
            let e = client.batch_execute(&statement.replace("KEY", key)).await.unwrap_err();
            client.batch_execute("rollback").await.unwrap();
            let e = e.as_db_error().unwrap().clone();
            let hidden = [acme.id.to_string(), email.subject.clone().unwrap()];
            let text = format!("{} {:?}", e.message(), e.detail());
            assert!(hidden.iter().all(|secret| !text.contains(secret)), "{text}");
            said.push((e.code().clone(), e.message().to_owned()));
        }
        assert_eq!(said[0], said[1], "{statement}");
    }
    // Ids of another's rows can be taken, because they mean something else here.
    begin(&client, "mailroom_tenant", Some(tenant)).await;
    let taken = format!(
        "insert into mailboxes (id, tenant_id, provider, address, state, state_since, created_at, updated_at)
             values ('{theirs}', '{tenant}', 'files', 'x@x.test', 'active', {now}, {now}, {now});
         insert into folders (id, tenant_id, mailbox_id, provider_folder_id, name, name_key, last_segment_key, created_at)
             values ('{folder}', '{tenant}', '{mine}', 'INBOX2', 'a', 'a', 'a', {now}), ('{mine}', '{tenant}', '{theirs}', 'INBOX', 'a', 'a', 'a', {now})"
    );
    client.batch_execute(&taken).await.unwrap();
    client.batch_execute("rollback").await.unwrap();
}

/// A call that is cancelled half-way leaves nothing behind for the next one on the same connection.
#[tokio::test]
async fn cancelled_call_leaves_no_open_transaction() {
    let db = migrated_postgres().await;
    let (acme, other) = two_tenants(&db).await;
    for _ in 0..50 {
        let write = acme.ensure_files_mailbox("given-up@acme.test");
        let _ = tokio::time::timeout(Duration::from_micros(300), write).await;
        let read = acme.list_mailboxes();
        let _ = tokio::time::timeout(Duration::from_micros(300), read).await;

        assert_eq!(other.list_mailboxes().await.unwrap().len(), 1);
        assert_eq!(other.totals().await.unwrap().emails, 2);
    }
    let client = connect(&db).await;
    let open = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'";
    wait_until("no transaction is open", async || {
        client.query_typed(open, &[]).await.unwrap()[0].get::<_, i64>(0) == 0
    })
    .await;
}
