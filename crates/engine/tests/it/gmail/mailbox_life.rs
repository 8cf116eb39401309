//! What happens to a mailbox over its life.

use domain::{Backfill, MailboxState};
use serde_json::json;
use sim::google::{GmailOperation, GoogleRoute, GoogleWorld};
use store::testing::on_each_database;
use testkit::MailboxOperations;
use testkit::SimulatedApp;

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_survives_a_history_that_expires() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<GoogleWorld>::new(db).await;
        let ann = app.connect("ann", 130).await;
        app.run_jobs_until_idle().await;
        app.assert_equal(&ann).await;
        assert_eq!(app.state(&ann).await, MailboxState::Active);

        for _ in 0..5 {
            app.world.step(&ann.address, 25);
            app.sync(&ann).await;
            app.assert_equal(&ann).await;
        }

        // What happens while nobody looks, and is forgotten before anybody does.
        app.world.step(&ann.address, 30);
        app.world.apply(&ann.address, GmailOperation::ExpireHistory).unwrap();
        app.world.step(&ann.address, 5);
        app.sync(&ann).await;
        app.assert_equal(&ann).await;
        let healed = app.db.rows("select data from events where type = 'mailbox.gap_healed'").await;
        assert_eq!(healed.len(), 1);

        let compared = app.syncer.compare(&ann.mailbox).await.unwrap().unwrap();
        assert_eq!(compared.difference(), 0, "{compared:?}");
        assert_eq!(app.world.violations(), []);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn label_change_fetches_no_bytes() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<GoogleWorld>::new(db).await;
        let ann = app.connect("ann", 10).await;
        app.run_jobs_until_idle().await;
        let id = app.world.truth(&ann.address).unwrap().messages.keys().next().unwrap().clone();
        app.world.clear_requests();

        let (add, remove) = (vec!["STARRED".into()], vec!["INBOX".into()]);
        app.world.apply(&ann.address, GmailOperation::Label { message: id, add, remove }).unwrap();
        app.sync(&ann).await;
        app.assert_equal(&ann).await;
        let asked: Vec<GoogleRoute> = app.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked.iter().filter(|route| **route == GoogleRoute::MessagesGet).count(), 1, "{asked:?}");

        app.world.clear_requests();
        app.sync(&ann).await;
        let asked: Vec<GoogleRoute> = app.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked, [GoogleRoute::HistoryList]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scope_changes_though_a_label_is_deleted() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<GoogleWorld>::new(db).await;
        let ann = app.connect("ann", 30).await;
        let label =
            app.world.apply(&ann.address, GmailOperation::CreateLabel { name: "Taxes".into() }).unwrap().label.unwrap();
        app.run_jobs_until_idle().await;

        app.engine
            .change_mailbox(
                &app.mailbox(&ann.store, &ann.address).await,
                json!({"folders": ["INBOX", "Taxes"]}).into(),
                None,
            )
            .await
            .unwrap();
        app.run_jobs_until_idle().await;
        let inbox = app.truth(&ann).into_iter().filter(|line| line.contains(" in INBOX "));
        assert_eq!(app.stored(&ann).await, inbox.collect());

        // Everything is to be listed anew, with a label that nobody has told of being gone.
        app.world.apply(&ann.address, GmailOperation::DeleteLabel { label, silently: true }).unwrap();
        app.world.apply(&ann.address, GmailOperation::ExpireHistory).unwrap();
        app.world.apply(&ann.address, GmailOperation::deliver()).unwrap();
        app.sync(&ann).await;
        let inbox = app.truth(&ann).into_iter().filter(|line| line.contains(" in INBOX "));
        assert_eq!(app.stored(&ann).await, inbox.collect());

        app.engine.change_mailbox(&app.mailbox(&ann.store, &ann.address).await, json!({}).into(), None).await.unwrap();
        app.run_jobs_until_idle().await;
        app.assert_equal(&ann).await;
        assert_eq!(app.state(&ann).await, MailboxState::Active);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_mail_stays_after_a_reconnect() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<GoogleWorld>::new(db).await;
        let ann = app.connect("ann", 12).await;
        app.run_jobs_until_idle().await;
        let all = app.stored(&ann).await;
        let mailbox = ann.store.find_mailbox(&ann.address).await.unwrap().unwrap();
        app.engine.disconnect(&mailbox).await.unwrap();

        // Nothing from before now is wanted any more; what is here is kept in step all the same.
        app.reconnect(&ann.store, &ann.address, Backfill::None).await;
        app.run_jobs_until_idle().await;
        for id in app.world.truth(&ann.address).unwrap().messages.into_keys().take(5) {
            let (add, remove) = (vec!["STARRED".into()], Vec::new());
            app.world.apply(&ann.address, GmailOperation::Label { message: id, add, remove }).unwrap();
        }
        app.sync(&ann).await;
        app.assert_equal(&ann).await;

        app.world.apply(&ann.address, GmailOperation::ExpireHistory).unwrap();
        app.world.apply(&ann.address, GmailOperation::deliver()).unwrap();
        app.sync(&ann).await;
        app.assert_equal(&ann).await;
        assert!(app.stored(&ann).await.len() > all.len());
        app.finish().await;
    })
    .await;
}
