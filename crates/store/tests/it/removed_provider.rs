//! Mailboxes of the scripted provider, which schema 11 still had.

use domain::{EmailId, JobId, Lane, MailboxId, MailboxState, Provider, SecretId, SecretKind, SystemClock};
use serde_json::json;
use store::sql::jobs::{CancelOutcome, NewJob, StartTime};
use store::sql::mailboxes::NewMailbox;
use store::sql::secrets::{SealedSecret, WrappedKey};
use store::testing::{TestDatabase, on_each_database};
use store::{Dialect, TenantStore, migrate};

use crate::older_schemas::set_back;
use crate::samples::{blobs, email, record, tenant, time};

/// What schema 11 has of a mailbox.
struct OldMailbox {
    mailbox: MailboxId,
    email: EmailId,
    secret: SecretId,
}

fn poll_job(provider: &str, mailbox: MailboxId) -> NewJob {
    NewJob {
        id: JobId::new(&SystemClock),
        kind: "poll_mailboxes".to_owned(),
        lane: Lane::Normal,
        payload: json!({"provider": provider, "mailboxes": [mailbox]}),
        when: StartTime::Now,
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: None,
    }
}

/// Stores an active mailbox with an email, a secret, a cursor, a lease, polls, one of which is dead, and its usage.
async fn old_mailbox(db: &TestDatabase, tenant: &TenantStore, provider: &str, address: &str) -> OldMailbox {
    let key = WrappedKey { version: 1, wrapped: b"key".to_vec(), master: "one".to_owned() };
    db.store.system().add_tenant_key(tenant.id, &key).await.unwrap();
    let (mailbox, secret) = (MailboxId::new(&SystemClock), SecretId::new(&SystemClock));
    let (poll, dead_poll) = (poll_job(provider, mailbox), poll_job(provider, mailbox));
    let dead = dead_poll.id;
    let mut unit = tenant.write();
    unit.put_secret(&SealedSecret { id: secret, kind: SecretKind::Password, key_version: 1, ciphertext: vec![7; 32] });
    unit.add_mailbox(NewMailbox {
        id: mailbox,
        provider: Provider::Imap,
        address: address.to_owned(),
        settings: json!({"folders": ["INBOX"], "connection": {"url": "http://127.0.0.1:8026"}}).into(),
        secret_ref: Some(secret.to_string()),
        since: None,
    });
    unit.enqueue(vec![poll, dead_poll]);
    unit.commit().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let new = email(mailbox, address, time("2026-02-01T12:00:00Z"));
    record(tenant, &blobs(&folder), vec![new.clone()]).await.unwrap();
    let tenant = tenant.id;
    let cancelled = db.store.system().cancel_job(tenant, dead, "not wanted").await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Cancelled);
    db.run_all(&[
        &format!("update mailboxes set provider = '{provider}', state = 'active' where id = '{mailbox}'"),
        &format!("update emails set provider = '{provider}' where mailbox_id = '{mailbox}'"),
        &format!("update finished_jobs set state = 'dead' where id = '{dead}'"),
        &format!("insert into sync_cursors values ('{tenant}', '{mailbox}', 'changes', 'mailbox', 'c1-7')"),
        &format!("update sync_states set token = 5, holder = 'one' where mailbox_id = '{mailbox}'"),
        &format!(
            "insert into provider_usage (tenant_id, provider, hour, calls, bytes)
             select '{tenant}', '{provider}', created_at, 3, 300 from mailboxes where id = '{mailbox}'"
        ),
        &format!(
            "insert into ledger (mailbox_id, provider_message_id, tenant_id, state, first_seen_at)
             select id, 'waits', tenant_id, 'queued', created_at from mailboxes where id = '{mailbox}'"
        ),
    ])
    .await;
    OldMailbox { mailbox, email: new.id, secret }
}

async fn first_column(db: &TestDatabase, sql: &str) -> Vec<String> {
    db.rows(sql).await.iter().map(|row| row.get(0).unwrap()).collect()
}

#[tokio::test]
async fn scripted_mailbox_becomes_disconnected() {
    on_each_database(|db| async move {
        db.store.system().record_first_master_key("one").await.unwrap();
        let acme = tenant(&db.store, "acme").await;
        let scripted = old_mailbox(&db, &acme, "scripted", "box1@scripted.example").await;
        set_back(&db, 11).await;

        let later = db.second_store();
        assert_eq!(later.migrate().await.unwrap()[0], "without_scripted");

        later.check_schema().await.unwrap();
        assert_eq!(later.schema_version().await.unwrap(), migrate::latest_version());
        let mailbox = acme.find_mailbox(&scripted.mailbox.to_string()).await.unwrap().unwrap();
        assert_eq!((mailbox.provider, mailbox.state), (Provider::Files, MailboxState::Disconnected));
        assert_eq!(mailbox.state_reason.as_deref(), Some("the scripted provider was removed"));
        assert_eq!((mailbox.settings, mailbox.secret_ref), (json!({"folders": ["INBOX"]}).into(), None));
        let email = acme.find_email(scripted.email).await.unwrap().unwrap();
        assert_eq!(email.subject.as_deref(), Some("box1@scripted.example"));
        assert_eq!(acme.find_secret(scripted.secret).await.unwrap(), None);
        assert_eq!(
            first_column(&db, "select state from ledger where provider_message_id = 'waits'").await,
            ["skipped"]
        );
        // Its lease is over, and what its holder writes late is refused.
        let lease = "select 1 from sync_states where token = 6 and holder is null and next_sync_at is null";
        assert_eq!(db.rows(lease).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn disconnected_mailbox_keeps_its_reason() {
    on_each_database(|db| async move {
        db.store.system().record_first_master_key("one").await.unwrap();
        let acme = tenant(&db.store, "acme").await;
        let scripted = old_mailbox(&db, &acme, "scripted", "box1@scripted.example").await;
        db.run("update mailboxes set state = 'disconnected', state_reason = 'it was mine'").await;
        set_back(&db, 11).await;

        db.second_store().migrate().await.unwrap();

        let mailbox = acme.find_mailbox(&scripted.mailbox.to_string()).await.unwrap().unwrap();
        assert_eq!((mailbox.provider, mailbox.state_reason.as_deref()), (Provider::Files, Some("it was mine")));
    })
    .await;
}

#[tokio::test]
async fn nothing_names_the_removed_provider() {
    on_each_database(|db| async move {
        db.store.system().record_first_master_key("one").await.unwrap();
        let acme = tenant(&db.store, "acme").await;
        old_mailbox(&db, &acme, "scripted", "box1@scripted.example").await;
        set_back(&db, 11).await;

        db.second_store().migrate().await.unwrap();

        for table in ["mailboxes", "emails", "provider_usage"] {
            let named = db.rows(&format!("select 1 from {table} where provider = 'scripted'")).await;
            assert_eq!(named.len(), 0, "{table}");
        }
        for table in ["sync_cursors", "jobs", "finished_jobs"] {
            assert_eq!(db.rows(&format!("select 1 from {table}")).await.len(), 0, "{table}");
        }
        // PostgreSQL adds changes up when jobs are claimed.
        let waiting = match db.store.dialect() {
            Dialect::Sqlite => "select waiting from job_queues where kind = 'poll_mailboxes'",
            Dialect::Postgres => "select cast(sum(change) as bigint) from job_arrivals where kind = 'poll_mailboxes'",
        };
        let waiting = db.rows(waiting).await;
        assert_eq!(waiting.iter().map(|row| row.get(0).unwrap()).collect::<Vec<i64>>(), [0]);
    })
    .await;
}

#[tokio::test]
async fn mailboxes_of_other_providers_stay_as_they_are() {
    on_each_database(|db| async move {
        db.store.system().record_first_master_key("one").await.unwrap();
        let (acme, beta) = (tenant(&db.store, "acme").await, tenant(&db.store, "beta").await);
        old_mailbox(&db, &acme, "scripted", "box1@scripted.example").await;
        let neighbour = old_mailbox(&db, &beta, "imap", "me@beta.test").await;
        let before = beta.find_mailbox(&neighbour.mailbox.to_string()).await.unwrap().unwrap();
        set_back(&db, 11).await;

        db.second_store().migrate().await.unwrap();

        let after = beta.find_mailbox(&neighbour.mailbox.to_string()).await.unwrap().unwrap();
        assert_eq!(format!("{after:?}"), format!("{before:?}"));
        assert!(beta.find_secret(neighbour.secret).await.unwrap().is_some());
        assert_eq!(first_column(&db, "select provider from emails order by 1").await, ["files", "imap"]);
        assert_eq!(first_column(&db, "select provider from provider_usage").await, ["imap"]);
        assert_eq!(first_column(&db, "select cursor from sync_cursors").await, ["c1-7"]);
        let waiting =
            format!("select state from ledger where state = 'queued' and mailbox_id = '{}'", neighbour.mailbox);
        assert_eq!(first_column(&db, &waiting).await, ["queued"]);
        assert_eq!(first_column(&db, "select payload ->> 'provider' from jobs").await, ["imap"]);
        assert_eq!(first_column(&db, "select payload ->> 'provider' from finished_jobs").await, ["imap"]);
        assert_eq!(db.rows("select 1 from sync_states where token = 5 and holder = 'one'").await.len(), 1);
    })
    .await;
}
