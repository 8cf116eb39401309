//! Placements of messages, listed completely or reported with their bytes.

use domain::Flags;
use domain::connector::{Cursors, ListingPage};
use store::sql::sync::{ListingPhase, PageRows};
use store::testing::on_each_database;
use testkit::ScriptedApp;
use testkit::pages::{page, placement, seen_message};

use super::pairs;

const M1: &str = "Subject: m1\n\nhello";

#[tokio::test(flavor = "multi_thread")]
async fn complete_placements_remove_all_others() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        for id in ["m1", "m2", "m3"] {
            app.connector.fetches(id, format!("Subject: {id}\n\nhello"));
        }
        let all =
            ["m1", "m2", "m3"].iter().flat_map(|id| [seen_message(id, "INBOX", &[]), seen_message(id, "Archive", &[])]);
        app.connector.queue_changes(page(all.collect()));
        app.sync().await;

        // One is in fewer places, one has other flags, one is nowhere.
        let messages = vec![
            seen_message("m1", "Archive", &["seen"]),
            seen_message("m2", "INBOX", &["seen"]),
            seen_message("m2", "Archive", &[]),
        ];
        let complete_placements = ["m1", "m2", "m3", "m4"].map(str::to_owned).to_vec();
        app.connector.queue_changes(ListingPage { complete_placements, ..page(messages) });
        app.sync().await;

        let left = [("m1", r#"Archive["seen"]"#), ("m2", "Archive[]"), ("m2", r#"INBOX["seen"]"#)];
        assert_eq!(app.stored_emails().await, pairs(&left));
        let gone = [("m1", "processed"), ("m2", "processed"), ("m3", "gone")];
        assert_eq!(app.ledger().await, pairs(&gone));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn placements_may_come_with_the_bytes() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        for (id, folders) in
            [("m1", vec!["Archive"]), ("m2", vec!["Trash"]), ("m3", vec!["INBOX", "Archive", "Nowhere"])]
        {
            let places = folders.into_iter().map(|folder| (placement(id, folder), Flags::from_names(["seen"])));
            app.connector.fetches_with_places(id, format!("Subject: {id}\n\nhello"), places.collect());
        }
        let mut after = 0;
        app.connector.queue_changes(page(["m1", "m2", "m3"].map(|id| seen_message(id, "INBOX", &[])).to_vec()));
        app.sync().await;

        // What turns out to be in the trash is not wanted, and not told of.
        let there = [("m1", r#"Archive["seen"]"#), ("m3", r#"Archive["seen"]"#), ("m3", r#"INBOX["seen"]"#)];
        assert_eq!(app.stored_emails().await, pairs(&there));
        assert_eq!(app.ledger().await, pairs(&[("m1", "processed"), ("m2", "gone"), ("m3", "processed")]));
        assert_eq!(app.email_events(&mut after).await, ["email.received", "email.received"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn later_listing_wins_over_fetched_placements() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fetches_with_places("m1", M1, vec![(placement("m1", "INBOX"), Flags::default())]);
        // The same as is recorded already, so that nothing but the telling shows.
        let told = PageRows {
            phase: ListingPhase::Changes,
            folders: Vec::new(),
            missing_folders: Vec::new(),
            confirmed_missing_folders: Vec::new(),
            messages: vec![seen_message("m1", "Archive", &[])],
            fully_placed: vec!["m1".into()],
            outdated_placements: vec!["m1".into()],
            unchanged: Vec::new(),
            removed_placements: Vec::new(),
            binds_by_content: false,
            snapshots: Vec::new(),
            cursors: Cursors::new(),
            listing: None,
            is_comparison_done: false,
            is_history_done: false,
            new_messages: 0,
            is_backfill: false,
            excluded_folders: Vec::new(),
        };
        let (connector, tenant, mailbox) = (app.connector.clone(), app.tenant.clone(), app.mailbox);
        app.connector.before_message_end(async move {
            connector.fetches_with_places("m1", M1, vec![(placement("m1", "Archive"), Flags::default())]);
            let mut unit = tenant.write();
            unit.record_page(mailbox, told);
            unit.commit().await.unwrap();
        });
        app.connector.queue_changes(page(vec![seen_message("m1", "Archive", &[])]));
        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("m1", "Archive[]")]));
        // It was read once more.
        assert_eq!(app.connector.fetched(), ["m1", "m1"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_listed_by_id_stays_where_it_is() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let places = vec![(placement("m1", "Archive"), Flags::from_names(["seen"]))];
        app.connector.fetches_with_places("m1", M1, places);
        for _ in 0..2 {
            // As when a page of a list is told twice.
            app.connector
                .queue_changes(ListingPage { id_only: vec![seen_message("m1", "INBOX", &[])], ..page(vec![]) });
            app.sync().await;
            assert_eq!(app.stored_emails().await, pairs(&[("m1", r#"Archive["seen"]"#)]));
        }
        app.finish().await;
    })
    .await;
}
