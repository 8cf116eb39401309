//! Looks at mailboxes together with others.

use domain::MailboxState;
use engine::sync::PollMailboxes;

use super::*;

impl Scene<'_> {
    async fn poll(&self) {
        let job = PollMailboxes { provider: Provider::Scripted, mailboxes: vec![self.mailbox] };
        let mut unit = self.store.write();
        unit.enqueue(vec![new_job(&job, &SystemClock, None).unwrap()]);
        unit.commit().await.unwrap();
        self.settle().await;
    }

    fn calls(&self) -> u32 {
        *self.script.calls.lock().unwrap()
    }

    fn refuses(&self, e: ConnectorError) {
        self.script.changes.lock().unwrap().push_back(Err(e));
    }

    async fn token(&self) -> u64 {
        self.db.rows("select token from sync_states").await[0].get(0).unwrap()
    }

    async fn state(&self) -> MailboxState {
        self.store.find_mailbox(&self.mailbox.to_string()).await.unwrap().unwrap().state
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_finds_nothing_is_one_call_and_takes_no_right_to_list() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        let (calls, token) = (scene.calls(), scene.token().await);
        let before = scene.store.find_sync(scene.mailbox).await.unwrap().unwrap();

        scene.poll().await;

        assert_eq!((scene.calls(), scene.token().await), (calls + 1, token));
        let after = scene.store.find_sync(scene.mailbox).await.unwrap().unwrap();
        assert!(after.last_sync_at > before.last_sync_at && after.status == "idle", "{after:?}");
        assert!(db.rows("select 1 from jobs").await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_look_finds_is_recorded_without_asking_for_it_again() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        let calls = scene.calls();
        assert!(db.rows("select 1 from sync_states where news_at is not null").await.len() == 1, "folders are news");
        db.run("update sync_states set news_at = null").await;

        scene.has("m1", "Subject: one\n\nhello");
        scene.says(page(vec![seen("m1", "INBOX", &[])]));
        scene.poll().await;

        assert_eq!(scene.emails().await, pairs(&[("one", "INBOX[]")]));
        assert_eq!(scene.calls(), calls + 1);
        assert_eq!(db.rows("select 1 from sync_states where news_at is not null and holder is null").await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_away_makes_no_jobs_and_the_mailbox_tells_of_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        for failed in 1..=3 {
            scene.refuses(ConnectorError::Unavailable("no route".into()));
            scene.poll().await;
            let state = scene.store.find_sync(scene.mailbox).await.unwrap().unwrap();
            assert_eq!(state.error_count, failed);
            assert!(state.last_error.unwrap().contains("no route"));
            assert!(db.rows("select 1 from jobs").await.is_empty());
        }
        assert_eq!(scene.state().await, MailboxState::Error);

        scene.poll().await;
        assert_eq!(scene.state().await, MailboxState::Active);
        assert_eq!(scene.store.find_sync(scene.mailbox).await.unwrap().unwrap().error_count, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_needs_more_than_a_look_gets_a_job_of_its_own() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        let refused = ConnectorError::Unauthorized("revoked".into());
        scene.refuses(refused.clone());
        scene.refuses(refused);

        scene.poll().await;

        assert_eq!(scene.state().await, MailboxState::NeedsReauth);
        let calls = scene.calls();
        scene.poll().await;
        assert_eq!(scene.calls(), calls, "nobody calls for it any more");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_somebody_lists_or_has_just_looked_at_is_left_alone() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        let calls = scene.calls();
        let key = (scene.store.id, scene.mailbox);
        let lease = Duration::from_secs(600);
        assert_eq!(db.store.system().begin_syncs(&[key], "somebody", lease).await.unwrap().len(), 1);
        scene.poll().await;
        assert_eq!(scene.calls(), calls);

        db.run("update sync_states set holder = null, held_until = null").await;
        let later = match db.store.dialect() {
            Dialect::Postgres => "mailroom_now() + interval '1 hour'",
            Dialect::Sqlite => "strftime('%Y-%m-%dT%H:%M:%fZ', mailroom_now(), '1 hour')",
        };
        db.run(&format!("update sync_states set last_sync_at = {later}")).await;
        scene.poll().await;
        assert_eq!(scene.calls(), calls);
    })
    .await;
}
