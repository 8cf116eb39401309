//! What happens to a mailbox over its life.

use domain::MailboxState;
use sim::jmap::{JmapFault, JmapFaultKind, JmapOperation, JmapRoute, JmapWorld};
use store::testing::on_each_database;
use testkit::SimulatedApp;

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_survives_states_that_expire() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<JmapWorld>::new(db).await;
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
        app.world.apply(&ann.address, JmapOperation::ExpireStates).unwrap();
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
async fn restored_server_is_compared_with_what_is_stored() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<JmapWorld>::new(db).await;
        let ann = app.connect("ann", 20).await;
        app.run_jobs_until_idle().await;
        let message = app.world.truth(&ann.address).unwrap().messages.keys().next().unwrap().clone();

        // Mail that the backup did not have, and states from before ours, of which the server says that nothing has changed.
        app.world.apply(&ann.address, JmapOperation::Destroy { message }).unwrap();
        app.world.apply(&ann.address, JmapOperation::RewindStates).unwrap();
        app.sync(&ann).await;
        app.assert_equal(&ann).await;
        let healed = app.db.rows("select data from events where type = 'mailbox.gap_healed'").await;
        assert_eq!(healed.len(), 1);

        app.world.step(&ann.address, 10);
        app.sync(&ann).await;
        app.assert_equal(&ann).await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_keyword_fetches_no_bytes() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<JmapWorld>::new(db).await;
        let ann = app.connect("ann", 10).await;
        app.run_jobs_until_idle().await;
        let message = app.world.truth(&ann.address).unwrap().messages.keys().next().unwrap().clone();
        app.world.clear_requests();

        let keywords = vec!["$seen".to_owned(), "$flagged".to_owned()];
        app.world.apply(&ann.address, JmapOperation::SetKeywords { message, keywords }).unwrap();
        app.sync(&ann).await;
        app.assert_equal(&ann).await;
        let asked: Vec<JmapRoute> = app.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked, [JmapRoute::Api]);

        app.world.clear_requests();
        app.sync(&ann).await;
        let asked: Vec<JmapRoute> = app.requests(&ann).iter().map(|entry| entry.route).collect();
        assert_eq!(asked, [JmapRoute::Api], "a quiet mailbox costs one request");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_message_and_folder_are_removed_here() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<JmapWorld>::new(db).await;
        let ann = app.connect("ann", 6).await;
        let folder = JmapOperation::CreateFolder { name: "Taxes".to_owned(), parent: None };
        let folder = app.world.apply(&ann.address, folder).unwrap().folder.unwrap();
        let message = app.world.apply(&ann.address, JmapOperation::deliver(1)).unwrap().messages.remove(0);
        let folders = vec![folder.clone()];
        app.world.apply(&ann.address, JmapOperation::SetFolders { message: message.clone(), folders }).unwrap();
        app.run_jobs_until_idle().await;
        app.assert_equal(&ann).await;

        app.world.apply(&ann.address, JmapOperation::DeleteFolder { folder }).unwrap();
        app.sync(&ann).await;
        app.assert_equal(&ann).await;
        assert!(!app.stored(&ann).await.iter().any(|line| line.starts_with(&format!("{message} "))));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_password_needs_a_new_one() {
    on_each_database(|db| async move {
        let app = SimulatedApp::<JmapWorld>::new(db).await;
        let ann = app.connect("ann", 5).await;
        app.run_jobs_until_idle().await;

        app.world.apply(&ann.address, JmapOperation::deliver(1)).unwrap();
        app.world.add_fault(JmapFault::always(JmapFaultKind::Unauthorized));
        app.sync(&ann).await;
        assert_eq!(app.state(&ann).await, MailboxState::NeedsReauth);

        app.finish().await;
    })
    .await;
}
