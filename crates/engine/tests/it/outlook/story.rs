//! What happens to a mailbox over its life.

use domain::MailboxState;
use sim::microsoft::{Operation, Route};
use store::testing::on_each_database;

use super::scene::Scene;
use crate::scene::Owner;

/// Something went for good, of which only all folders tell.
async fn sweep(scene: &Scene, owner: &Owner) {
    scene.db.run("update push_watches set sweep_since = mailroom_now()").await;
    scene.sync(owner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_is_taken_in_and_followed_and_survives_changes_that_are_forgotten() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let ann = scene.connect("ann", 130).await;
        scene.settle().await;
        scene.assert_equal(&ann).await;
        assert_eq!(scene.state(&ann).await, MailboxState::Active);

        for _ in 0..5 {
            scene.world.step(&ann.address, 25);
            sweep(&scene, &ann).await;
            scene.assert_equal(&ann).await;
        }

        scene.world.step(&ann.address, 30);
        scene.world.apply(&ann.address, Operation::ExpireDelta { folder: None }).unwrap();
        scene.world.step(&ann.address, 5);
        sweep(&scene, &ann).await;
        scene.assert_equal(&ann).await;

        let compared = scene.syncer.compare(&ann.mailbox).await.unwrap().unwrap();
        assert_eq!(compared.difference(), 0, "{compared:?}");
        assert_eq!(scene.world.violations(), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_costs_no_bytes_and_is_no_deletion_and_nothing_new_costs_one_call() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let ann = scene.connect("ann", 20).await;
        scene.settle().await;
        let truth = scene.world.truth(&ann.address).unwrap();
        let inbox = truth.folders.iter().find(|(_, folder)| folder.well_known.as_deref() == Some("inbox")).unwrap().0;
        let (id, _) = truth.messages.iter().find(|(_, message)| message.folder_id == *inbox).unwrap();
        scene.world.forget_requests();

        scene.world.apply(&ann.address, Operation::Move { message: id.clone(), folder: "archive".into() }).unwrap();
        scene.sync(&ann).await;
        scene.assert_equal(&ann).await;
        let asked: Vec<Route> = scene.requests(&ann).iter().map(|entry| entry.route).collect();
        assert!(!asked.contains(&Route::MessagesValue), "{asked:?}");
        let said = scene.db.rows("select type from events where type in ('email.moved', 'email.deleted')").await;
        let said: Vec<String> = said.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(said, ["email.moved"]);

        scene.world.forget_requests();
        scene.sync(&ann).await;
        let asked: Vec<Route> = scene.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked, [Route::MessagesList]);
    })
    .await;
}
