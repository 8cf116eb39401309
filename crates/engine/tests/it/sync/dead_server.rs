//! An IMAP server that does not answer holds up the mailboxes at it, and no others of their tenant.

use domain::connector::ListingPage;
use domain::{Backfill, ConnectorError, FolderRole, MailboxId, MailboxSettings, Provider};
use engine::operations::mailboxes::ConnectRequest;
use serde_json::json;
use store::TenantStore;
use store::sql::jobs::{JobFilter, WaitReason};
use store::testing::on_each_database;
use testkit::MailboxOperations;
use testkit::pages::{folder, page, seen_message};
use testkit::{AppOptions, ScriptedConnector, TestApp};

async fn connect(app: &TestApp, tenant: &TenantStore, address: &str, host: &str) -> MailboxId {
    let settings = MailboxSettings { connection: json!({"host": host, "port": 993}), ..MailboxSettings::default() };
    let request = ConnectRequest {
        provider: Provider::Imap,
        address: address.to_owned(),
        settings,
        secret: None,
        backfill: Backfill::All,
    };
    app.engine.connect(tenant.id, request).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_server_does_not_stall_mailboxes_at_others() {
    on_each_database(|db| async move {
        let connector = ScriptedConnector::quiet(Provider::Imap);
        connector.on_changes(|account, _| {
            if account.settings.contains("dead.acme.test") {
                return ConnectorError::Unavailable("connection refused".to_owned()).into();
            }
            let folders = vec![folder("INBOX", Some(FolderRole::Inbox))];
            ListingPage { folders, ..page(vec![seen_message("m1", "INBOX", &[])]) }.into()
        });
        connector.fetches("m1", "Subject: one\n\nhello");
        let app = TestApp::new(db, AppOptions::default().scripted(&connector));
        let tenant = app.create_tenant("acme").await;
        let dead = connect(&app, &tenant, "dead@acme.test", "dead.acme.test").await;
        let healthy = connect(&app, &tenant, "me@acme.test", "imap.acme.test").await;
        // The breaker opens after ten calls; the next one is refused.
        for _ in 0..12 {
            app.make_retries_ready().await;
            app.sync(&tenant, dead).await;
            if !tenant.list_pauses().await.unwrap().is_empty() {
                break;
            }
        }
        // Asked at once: the pause is over when the breaker allows a probe.
        let jobs = app.store().system().list_jobs(&JobFilter::default(), None, 100).await.unwrap();
        let waiting = jobs.iter().find(|job| job.payload["mailbox"] == json!(dead)).unwrap();
        let diagnosis = app.store().system().diagnose_job(waiting.id).await.unwrap().unwrap();

        app.sync(&tenant, healthy).await;

        assert_eq!(app.stored_emails().await.len(), 1, "the healthy server is called all the same");
        let Some(WaitReason::MailboxPaused { reason, .. }) = diagnosis.reasons.first() else {
            panic!("{:?}", diagnosis.reasons)
        };
        assert!(reason.starts_with("the circuit breaker of dead.acme.test:993 is open since "), "{reason}");
        app.leaves_jobs(&["sync_mailbox"]);
        app.finish().await;
    })
    .await;
}
