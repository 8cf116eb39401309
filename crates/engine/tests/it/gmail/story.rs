//! What happens to a mailbox over its life.

use domain::MailboxState;
use sim::google::{Operation, Route};
use store::testing::on_each_database;

use super::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_is_taken_in_and_followed_and_survives_a_history_that_expires() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let ann = scene.connect("ann", 130).await;
        scene.settle().await;
        assert_eq!(scene.stored(&ann).await, scene.truth(&ann));
        assert_eq!(scene.state(&ann).await, MailboxState::Active);

        for _ in 0..5 {
            scene.world.step(&ann.address, 25);
            scene.sync(&ann).await;
            assert_eq!(scene.stored(&ann).await, scene.truth(&ann));
        }

        // What happens while nobody looks, and is forgotten before anybody does.
        scene.world.step(&ann.address, 30);
        scene.world.apply(&ann.address, Operation::ExpireHistory).unwrap();
        scene.world.step(&ann.address, 5);
        scene.sync(&ann).await;
        assert_eq!(scene.stored(&ann).await, scene.truth(&ann));
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
        assert_eq!(scene.stored(&ann).await, scene.truth(&ann));
        let asked: Vec<Route> = scene.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked.iter().filter(|route| **route == Route::MessagesGet).count(), 1, "{asked:?}");

        scene.world.forget_requests();
        scene.sync(&ann).await;
        let asked: Vec<Route> = scene.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked, [Route::HistoryList]);
    })
    .await;
}
