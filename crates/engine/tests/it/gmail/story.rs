//! What happens to a mailbox over its life.

use domain::{MailboxState, Provider, Secret};
use engine::mailboxes::{Backfill, Connect};
use serde_json::json;
use sim::google::{Operation, Route};
use store::testing::on_each_database;

use super::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_is_taken_in_and_followed_and_survives_a_history_that_expires() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let ann = scene.connect("ann", 130).await;
        scene.settle().await;
        scene.assert_equal(&ann).await;
        assert_eq!(scene.state(&ann).await, MailboxState::Active);

        for _ in 0..5 {
            scene.world.step(&ann.address, 25);
            scene.sync(&ann).await;
            scene.assert_equal(&ann).await;
        }

        // What happens while nobody looks, and is forgotten before anybody does.
        scene.world.step(&ann.address, 30);
        scene.world.apply(&ann.address, Operation::ExpireHistory).unwrap();
        scene.world.step(&ann.address, 5);
        scene.sync(&ann).await;
        scene.assert_equal(&ann).await;
        let healed = scene.db.rows("select data from events where type = 'mailbox.gap_healed'").await;
        assert_eq!(healed.len(), 1);

        let compared = scene.syncer.compare(&ann.mailbox).await.unwrap().unwrap();
        assert_eq!(compared.difference(), 0, "{compared:?}");
        assert_eq!(scene.world.violations(), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_labels_cost_no_bytes_and_nothing_new_costs_one_call() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let ann = scene.connect("ann", 10).await;
        scene.settle().await;
        let id = scene.world.truth(&ann.address).unwrap().messages.keys().next().unwrap().clone();
        scene.world.forget_requests();

        let (add, remove) = (vec!["STARRED".into()], vec!["INBOX".into()]);
        scene.world.apply(&ann.address, Operation::Label { message: id, add, remove }).unwrap();
        scene.sync(&ann).await;
        scene.assert_equal(&ann).await;
        let asked: Vec<Route> = scene.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked.iter().filter(|route| **route == Route::MessagesGet).count(), 1, "{asked:?}");

        scene.world.forget_requests();
        scene.sync(&ann).await;
        let asked: Vec<Route> = scene.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked, [Route::HistoryList]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wanted_may_change_and_a_label_that_is_no_more_hinders_nobody() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let ann = scene.connect("ann", 30).await;
        let label =
            scene.world.apply(&ann.address, Operation::CreateLabel { name: "Taxes".into() }).unwrap().label.unwrap();
        scene.settle().await;

        let now = || async { ann.store.find_mailbox(&ann.address).await.unwrap().unwrap() };
        scene.engine.change_mailbox(&now().await, json!({"folders": ["INBOX", "Taxes"]}), None).await.unwrap();
        scene.settle().await;
        let inbox = scene.truth(&ann).into_iter().filter(|line| line.contains(" in INBOX "));
        assert_eq!(scene.stored(&ann).await, inbox.collect());

        // Everything is to be listed anew, with a label that nobody has told of being gone.
        scene.world.apply(&ann.address, Operation::DeleteLabel { label, silently: true }).unwrap();
        scene.world.apply(&ann.address, Operation::ExpireHistory).unwrap();
        scene.world.apply(&ann.address, Operation::deliver()).unwrap();
        scene.sync(&ann).await;
        let inbox = scene.truth(&ann).into_iter().filter(|line| line.contains(" in INBOX "));
        assert_eq!(scene.stored(&ann).await, inbox.collect());

        scene.engine.change_mailbox(&now().await, json!({}), None).await.unwrap();
        scene.settle().await;
        scene.assert_equal(&ann).await;
        assert_eq!(scene.state(&ann).await, MailboxState::Active);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_from_before_a_new_beginning_stays_whatever_happens_to_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let ann = scene.connect("ann", 12).await;
        scene.settle().await;
        let all = scene.stored(&ann).await;
        let mailbox = ann.store.find_mailbox(&ann.address).await.unwrap().unwrap();
        scene.engine.disconnect(&mailbox, None).await.unwrap();

        // Nothing from before now is wanted any more; what is here is kept in step all the same.
        let connect = Connect {
            provider: Provider::Gmail,
            address: ann.address.clone(),
            settings: json!({}),
            secret: scene.world.grant(&ann.address).unwrap().refresh_token.map(Secret::new),
            backfill: Backfill::None,
        };
        scene.engine.connect(ann.store.id, connect).await.unwrap().unwrap();
        scene.settle().await;
        for id in scene.world.truth(&ann.address).unwrap().messages.into_keys().take(5) {
            let (add, remove) = (vec!["STARRED".into()], Vec::new());
            scene.world.apply(&ann.address, Operation::Label { message: id, add, remove }).unwrap();
        }
        scene.sync(&ann).await;
        scene.assert_equal(&ann).await;

        scene.world.apply(&ann.address, Operation::ExpireHistory).unwrap();
        scene.world.apply(&ann.address, Operation::deliver()).unwrap();
        scene.sync(&ann).await;
        scene.assert_equal(&ann).await;
        assert!(scene.stored(&ann).await.len() > all.len());
    })
    .await;
}
