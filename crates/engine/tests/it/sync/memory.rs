//! Memory for messages that are fetched, which providers share.

use domain::connector::{ListingPage, SeenMessage};
use domain::{FolderRole, Provider};
use store::testing::on_each_database;
use testkit::app::all_kinds;
use testkit::pages::{folder, page, seen_message};
use testkit::{AppOptions, ScriptedApp, ScriptedConnector, ScriptedReply, wait_until};

use super::pairs;
use super::polls::{impatient_worker, synced_mailboxes};

/// More new mail than fits, of unknown size.
fn full_page() -> ListingPage {
    let messages =
        (0..120).map(|n| SeenMessage { size_bytes: None, ..seen_message(&format!("slow {n}"), "INBOX", &[]) });
    ListingPage { folders: vec![folder("INBOX", Some(FolderRole::Inbox))], ..page(messages.collect()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_provider_does_not_block_another() {
    on_each_database(|db| async move {
        let slow = ScriptedConnector::new(Provider::Gmail);
        slow.on_changes(|_, _| full_page().into());
        slow.on_history(|_, _| ScriptedReply::hang());
        slow.on_list(|_, _| ScriptedReply::hang());
        slow.on_fetch(|_| ScriptedReply::hang());
        let app = ScriptedApp::with_options(db, AppOptions::default().scripted(&slow)).await;
        for n in 0..4 {
            let (store, mailboxes) = synced_mailboxes(&app, &format!("tenant {n}"), &["me@acme.test"]).await;
            app.app.enqueue_sync(&store, mailboxes[0]).await;
        }
        let worker = app.start_worker_with(all_kinds(&app.syncer), impatient_worker(30));
        // Of twelve batches of 4 MB, in the 24 MB that one provider can have.
        wait_until("as many as fit are begun", async || slow.fetches_admitted() >= 6).await;

        app.connector.fetches("m1", "Subject: one\n\nhello");
        app.connector.queue_changes(page(vec![SeenMessage { size_bytes: None, ..seen_message("m1", "INBOX", &[]) }]));
        app.enqueue_sync().await;

        wait_until("the other's mail is stored", async || app.stored_emails().await == pairs(&[("one", "INBOX[]")]))
            .await;
        assert_eq!(slow.fetches_admitted(), 6, "and the slow one has no more than before");
        worker.shut_down().await;
        app.leaves_jobs(&["fetch_emails"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_message_goes_through_the_spool() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let spool = app.engine.spool.folder.clone();
        for (message, mb, is_spooled) in [("m1", 3, false), ("m2", 5, true)] {
            let line = "so many words are in it that it takes its time\n";
            app.connector.fetches(message, format!("Subject: {message}\n\n{}", line.repeat((mb << 20) / line.len())));
            app.connector.queue_changes(page(vec![SeenMessage {
                size_bytes: Some((mb as u64) << 20),
                ..seen_message(message, "INBOX", &[])
            }]));
            app.sync().await;
            assert_eq!(spool.exists(), is_spooled, "{message}");
        }
        assert_eq!(app.stored_emails().await, pairs(&[("m1", "INBOX[]"), ("m2", "INBOX[]")]));
        app.finish().await;
    })
    .await;
}
