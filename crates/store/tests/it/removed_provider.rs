//! Mailboxes of the scripted provider, which schema 11 still had.

use domain::{EmailId, JobId, Lane, MailboxId, MailboxState, Provider, SecretId, SecretKind, SystemClock};
use serde_json::json;
use store::sql::jobs::{NewJob, StartTime};
use store::sql::mailboxes::NewMailbox;
use store::sql::secrets::{SealedSecret, WrappedKey};
use store::testing::{TestDatabase, on_each_database};
use store::{Dialect, TenantStore, migrate};

use crate::samples::{blobs, email, record, tenant, time};

/// What schema 11 has of a scripted mailbox.
struct ScriptedMailbox {
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

/// Stores an active scripted mailbox with an email, a secret, a cursor, a poll and its usage, and sets the schema back to 11:
/// migration 12 changes rows only.
async fn at_schema_11(db: &TestDatabase, acme: &TenantStore) -> ScriptedMailbox {
    db.store.system().record_first_master_key("one").await.unwrap();
    let key = WrappedKey { version: 1, wrapped: b"key".to_vec(), master: "one".to_owned() };
    db.store.system().add_tenant_key(acme.id, &key).await.unwrap();
    let (mailbox, secret) = (MailboxId::new(&SystemClock), SecretId::new(&SystemClock));
    let mut unit = acme.write();
    unit.put_secret(&SealedSecret { id: secret, kind: SecretKind::Password, key_version: 1, ciphertext: vec![7; 32] });
    unit.add_mailbox(NewMailbox {
        id: mailbox,
        provider: Provider::Imap,
        address: "box1@scripted.example".to_owned(),
        settings: json!({"folders": ["INBOX"], "connection": {"url": "http://127.0.0.1:8026"}}),
        secret_ref: Some(secret.to_string()),
        since: None,
    });
    unit.enqueue(vec![poll_job("scripted", mailbox), poll_job("gmail", mailbox)]);
    unit.commit().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let new = email(mailbox, "one", time("2026-02-01T12:00:00Z"));
    record(acme, &blobs(&folder), vec![new.clone()]).await.unwrap();
    let usage = format!(
        "insert into provider_usage (tenant_id, provider, hour, calls, bytes)
         select '{}', 'scripted', created_at, 3, 300 from mailboxes",
        acme.id
    );
    let cursor = format!("insert into sync_cursors values ('{}', '{mailbox}', 'changes', 'mailbox', 'c1-7')", acme.id);
    db.run_all(&[
        "update mailboxes set provider = 'scripted', state = 'active'",
        "update emails set provider = 'scripted'",
        &usage,
        &cursor,
        "delete from schema_migrations where version = 12",
    ])
    .await;
    ScriptedMailbox { mailbox, email: new.id, secret }
}

#[tokio::test]
async fn scripted_mailbox_becomes_disconnected() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let scripted = at_schema_11(&db, &acme).await;
        assert_eq!(db.store.schema_version().await.unwrap(), 11);

        let later = db.second_store();
        assert_eq!(later.migrate().await.unwrap(), ["without_scripted"]);

        later.check_schema().await.unwrap();
        assert_eq!(later.schema_version().await.unwrap(), migrate::latest_version());
        let mailbox = acme.find_mailbox(&scripted.mailbox.to_string()).await.unwrap().unwrap();
        assert_eq!((mailbox.provider, mailbox.state), (Provider::Files, MailboxState::Disconnected));
        assert_eq!(mailbox.state_reason.as_deref(), Some("the scripted provider was removed"));
        assert_eq!((mailbox.settings, mailbox.secret_ref), (json!({"folders": ["INBOX"]}), None));
        let email = acme.find_email(scripted.email).await.unwrap().unwrap();
        assert_eq!(email.subject.as_deref(), Some("one"));
        assert_eq!(acme.find_secret(scripted.secret).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn nothing_names_the_removed_provider() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        at_schema_11(&db, &acme).await;

        db.second_store().migrate().await.unwrap();

        assert_eq!(db.rows("select 1 from mailboxes where provider = 'scripted'").await.len(), 0);
        assert_eq!(db.rows("select 1 from emails where provider = 'scripted'").await.len(), 0);
        assert_eq!(db.rows("select 1 from provider_usage").await.len(), 0);
        assert_eq!(db.rows("select 1 from sync_cursors").await.len(), 0);
        assert_eq!(db.rows("select 1 from sync_states where next_sync_at is not null").await.len(), 0);
        let polls = db.rows("select payload ->> 'provider' from jobs where kind = 'poll_mailboxes'").await;
        assert_eq!(polls.iter().map(|row| row.get(0).unwrap()).collect::<Vec<String>>(), ["gmail"]);
        // PostgreSQL adds changes up when jobs are claimed.
        let waiting = match db.store.dialect() {
            Dialect::Sqlite => "select waiting from job_queues where kind = 'poll_mailboxes'",
            Dialect::Postgres => "select cast(sum(change) as bigint) from job_arrivals where kind = 'poll_mailboxes'",
        };
        let waiting = db.rows(waiting).await;
        assert_eq!(waiting.iter().map(|row| row.get(0).unwrap()).collect::<Vec<i64>>(), [1]);
    })
    .await;
}
