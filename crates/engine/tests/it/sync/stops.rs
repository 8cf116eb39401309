//! A tenant is switched off while messages of its mailbox are fetched.

use std::time::Duration;

use domain::Flags;
use store::testing::on_each_database;
use testkit::app::{all_kinds, worker_settings};
use testkit::pages::{page, placement, seen_message};
use testkit::{ScriptedApp, wait_until};

use super::pairs;

async fn set_active(app: &ScriptedApp, is_active: bool) {
    assert!(app.db.store.system().set_tenant_active(app.tenant.id, is_active).await.unwrap());
}

/// Fetches in this state that have spent no attempt.
async fn unspent_fetches(app: &ScriptedApp, state: &str) -> usize {
    app.count(&format!("jobs where kind = 'fetch_emails' and state = '{state}' and attempt = 0")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_fetch_stops_with_its_tenant() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fetches("m1", "Subject: one\n\nhello");
        app.connector.queue_changes(page(vec![seen_message("m1", "INBOX", &[])]));
        app.connector.before_fetch(std::future::pending());
        app.enqueue_sync().await;
        let worker = app.start_worker();
        wait_until("messages are fetched", async || !app.connector.awaits_fetch()).await;

        set_active(&app, false).await;

        wait_until("it is given back", async || unspent_fetches(&app, "ready").await == 1).await;
        assert!(app.connector.fetched().is_empty());
        assert_eq!(app.ledger().await, pairs(&[("m1", "queued")]));

        set_active(&app, true).await;
        wait_until("it is stored", async || !app.stored_emails().await.is_empty()).await;
        assert_eq!(app.email_events(&mut 0).await, ["email.received"]);
        app.wait_until_idle().await;
        worker.shut_down().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_an_inactive_tenant_is_not_stored() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.sync().await;
        // Where it is may come with its bytes, and is recorded before.
        for (message, comes_with_places) in [("m1", false), ("m2", true)] {
            let mut after = app.tenant.list_events(0, 1000).await.unwrap().len() as u64;
            let content = format!("Subject: {message}\n\nhello");
            if comes_with_places {
                let marked = (placement(message, "INBOX"), Flags::from_names(["seen"]));
                app.connector.fetches_with_places(message, content, vec![marked]);
            } else {
                app.connector.fetches(message, content);
            }
            app.connector.queue_changes(page(vec![seen_message(message, "INBOX", &[])]));
            let (system, tenant) = (app.db.store.system(), app.tenant.id);
            app.connector.before_fetch(async move { assert!(system.set_tenant_active(tenant, false).await.unwrap()) });
            // It does not ask before all is over.
            let hour = Duration::from_secs(3600);
            let deaf = jobs::WorkerSettings { lease: hour * 10, poll: hour, ..worker_settings() };
            app.enqueue_sync().await;
            let worker = app.start_worker_with(all_kinds(&app.syncer), deaf);
            wait_until("messages are fetched", async || {
                // It polls once an hour, so a hint that it missed as it started would be missed for good.
                app.db.store.wake_workers();
                !app.connector.awaits_fetch()
            })
            .await;
            // Which waits for what runs.
            worker.shut_down().await;

            assert!(app.connector.fetched().contains(&message.to_owned()), "it came");
            assert!(app.ledger().await.contains(&(message.to_owned(), "queued".to_owned())));
            let seen = format!("select 1 from placements where provider_message_id = '{message}' and is_live and cast(flags as text) = '[]'");
            assert_eq!(app.db.rows(&seen).await.len(), 1, "it is where it was listed");
            assert!(app.email_events(&mut after).await.is_empty());
            assert_eq!(unspent_fetches(&app, "ready").await, 1);

            set_active(&app, true).await;
            app.run_jobs_until_idle().await;
            assert_eq!(app.email_events(&mut after).await, ["email.received"]);
        }
        assert_eq!(app.stored_emails().await, pairs(&[("m1", "INBOX[]"), ("m2", "INBOX[\"seen\"]")]));
        app.finish().await;
    })
    .await;
}
