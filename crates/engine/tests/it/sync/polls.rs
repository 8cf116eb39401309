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

/// A provider that takes calls and never answers.
#[derive(Debug, Default)]
struct Hanging {
    calls: Mutex<u32>,
}

impl Connector for Hanging {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn changes<'a>(&'a self, _: &'a Account, _: &'a Cursors) -> Answer<'a, Page> {
        *self.calls.lock().unwrap() += 1;
        Box::pin(std::future::pending())
    }

    fn history<'a>(&'a self, _: &'a Account, _: &'a Cursors, _: &'a Cursors, _: Option<Timestamp>) -> Answer<'a, Page> {
        Box::pin(std::future::pending())
    }

    fn list<'a>(
        &'a self,
        _: &'a Account,
        _: &'a Cursors,
        _: Option<&'a Cursors>,
        _: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(std::future::pending())
    }

    fn fetch<'a>(&'a self, _: &'a Account, _: &'a [Wanted], _: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(std::future::pending())
    }

    fn check<'a>(&'a self, _: &'a Account) -> Answer<'a, ()> {
        Box::pin(std::future::pending())
    }
}

/// Many more mailboxes than a process has workers for, of many tenants.
async fn mailboxes_at_gmail(db: &TestDatabase, tenants: u32) -> Vec<(TenantStore, MailboxId)> {
    let mut made = Vec::new();
    for n in 0..tenants {
        let tenant =
            db.store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await.unwrap().unwrap();
        let (store, id) = (db.store.tenant(tenant.id), MailboxId::new(&SystemClock));
        let mut unit = store.write();
        unit.add_mailbox(NewMailbox {
            id,
            provider: Provider::Gmail,
            address: "me@acme.test".into(),
            settings: json!({}),
            secret_ref: None,
            since: None,
        });
        unit.commit().await.unwrap();
        made.push((store, id));
    }
    db.run("update mailboxes set state = 'active' where provider = 'gmail'").await;
    let of_gmail = "mailbox_id in (select id from mailboxes where provider = 'gmail')";
    db.run(&format!("update sync_states set is_history_done = true where {of_gmail}")).await;
    let cursors = "select tenant_id, id, 'changes', '', '1' from mailboxes where provider = 'gmail'";
    db.run(&format!("insert into sync_cursors (tenant_id, mailbox_id, phase, scope, cursor) {cursors}")).await;
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_never_answers_does_not_keep_another_waiting() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        let calls = scene.calls();
        let hanging = Arc::new(Hanging::default());
        let connectors: HashMap<Provider, Arc<dyn Connector>> =
            HashMap::from([(Provider::Scripted, scene.script.clone() as _), (Provider::Gmail, hanging.clone() as _)]);
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let syncer = Syncer::new(scene.syncer.engine.clone(), settings, connectors, Calls::default()).with_workers(10);
        let poll = async |store: &TenantStore, provider, mailbox| {
            let mut unit = store.write();
            let job = PollMailboxes { provider, mailboxes: vec![mailbox] };
            unit.enqueue(vec![new_job(&job, &SystemClock, None).unwrap()]);
            unit.commit().await.unwrap();
        };
        for (store, mailbox) in mailboxes_at_gmail(&db, 30).await {
            poll(&store, Provider::Gmail, mailbox).await;
        }
        let slots = jobs::Settings { remote_slots: 10, grace: Duration::ZERO, ..worker_settings() };
        let kinds = Kinds::default().with(syncer.poll_kind());
        let worker = Worker::start(db.store.clone(), kinds, slots, Arc::new(SystemDice));
        let until = async |is_so: &dyn Fn() -> bool| {
            let so = async {
                while !is_so() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(DEADLINE, so).await.expect("it comes to that");
        };
        until(&|| *hanging.calls.lock().unwrap() == 4).await;

        poll(&scene.store, Provider::Scripted, scene.mailbox).await;

        until(&|| scene.calls() == calls + 1).await;
        assert_eq!(*hanging.calls.lock().unwrap(), 4, "and no more are kept waiting than may be");
        worker.shut_down().await;
    })
    .await;
}
