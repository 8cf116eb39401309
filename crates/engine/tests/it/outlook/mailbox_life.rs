//! What happens to a mailbox over its life.

use domain::MailboxState;
use sim::microsoft::{MicrosoftRoute, MicrosoftWorld, OutlookOperation};
use store::testing::on_each_database;
use testkit::SimulatedApp;
use testkit::simulated::AccountOwner;

/// Something went for good, of which only all folders tell.
async fn sweep(app: &SimulatedApp<MicrosoftWorld>, owner: &AccountOwner) {
    app.db.run("update push_watches set sweep_since = mailroom_now()").await;
    app.sync(owner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_survives_deltas_that_expire() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<MicrosoftWorld>::new(db).await;
        let ann = app.connect("ann", 130).await;
        app.run_jobs_until_idle().await;
        app.assert_equal(&ann).await;
        assert_eq!(app.state(&ann).await, MailboxState::Active);

        for _ in 0..5 {
            app.world.step(&ann.address, 25);
            sweep(&app, &ann).await;
            app.assert_equal(&ann).await;
        }

        app.world.step(&ann.address, 30);
        app.world.apply(&ann.address, OutlookOperation::ExpireDelta { folder: None }).unwrap();
        app.world.step(&ann.address, 5);
        sweep(&app, &ann).await;
        app.assert_equal(&ann).await;

        let compared = app.syncer.compare(&ann.mailbox).await.unwrap().unwrap();
        assert_eq!(compared.difference(), 0, "{compared:?}");
        assert_eq!(app.world.violations(), []);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn move_fetches_no_bytes() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<MicrosoftWorld>::new(db).await;
        let ann = app.connect("ann", 20).await;
        app.run_jobs_until_idle().await;
        let truth = app.world.truth(&ann.address).unwrap();
        let inbox = truth.folders.iter().find(|(_, folder)| folder.well_known.as_deref() == Some("inbox")).unwrap().0;
        let (id, _) = truth.messages.iter().find(|(_, message)| message.folder_id == *inbox).unwrap();
        app.world.clear_requests();

        app.world
            .apply(&ann.address, OutlookOperation::Move { message: id.clone(), folder: "archive".into() })
            .unwrap();
        app.sync(&ann).await;
        app.assert_equal(&ann).await;
        let asked: Vec<MicrosoftRoute> = app.requests(&ann).iter().map(|entry| entry.route).collect();
        assert!(!asked.contains(&MicrosoftRoute::MessagesValue), "{asked:?}");
        let said = app.db.rows("select type from events where type in ('email.moved', 'email.deleted')").await;
        let said: Vec<String> = said.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(said, ["email.moved"]);

        app.world.clear_requests();
        app.sync(&ann).await;
        let asked: Vec<MicrosoftRoute> = app.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked, [MicrosoftRoute::MessagesList]);
        app.finish().await;
    })
    .await;
}
