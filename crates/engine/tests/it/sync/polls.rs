//! Looks at mailboxes together with others.

use domain::{MailboxState, SecretId};
use engine::sync::PollMailboxes;
use futures_util::future::BoxFuture;
use store::sql::sync::SyncState;

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

    pub(super) fn refuses(&self, e: ConnectorError) {
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
async fn what_a_look_finds_gets_a_job_of_its_own_that_asks_once_more_and_records_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        let calls = scene.calls();
        assert!(db.rows("select 1 from sync_states where news_at is not null").await.len() == 1, "folders are news");
        db.run("update sync_states set news_at = null").await;

        scene.has("m1", "Subject: one\n\nhello");
        for _ in 0..2 {
            scene.says(page(vec![seen("m1", "INBOX", &[])]));
        }
        scene.poll().await;

        assert_eq!(scene.emails().await, pairs(&[("one", "INBOX[]")]));
        assert_eq!(scene.calls(), calls + 2);
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

/// What mailboxes at a provider do, by address; others have nothing new.
#[derive(Default)]
pub(super) struct Odd {
    pub(super) does: Mutex<HashMap<String, Does>>,
    calls: Mutex<u32>,
}

pub(super) enum Does {
    Hangs,
    Panics,
    Refuses(ConnectorError),
    /// Each time.
    Says(Box<Page>),
    /// Something happens before the answer comes.
    Meanwhile(BoxFuture<'static, Page>),
}

impl std::fmt::Debug for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Odd").finish_non_exhaustive()
    }
}

impl Connector for Odd {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn changes<'a>(&'a self, account: &'a Account, _: &'a Cursors) -> Answer<'a, Page> {
        *self.calls.lock().unwrap() += 1;
        let mut does = self.does.lock().unwrap();
        match does.get_mut(&account.address) {
            None => Box::pin(async { Ok(Page { is_last: true, ..Page::default() }) }),
            Some(Does::Hangs) => Box::pin(std::future::pending()),
            Some(Does::Panics) => Box::pin(async { panic!("as it was told") }),
            Some(Does::Refuses(e)) => {
                let e = e.clone();
                Box::pin(async move { Err(e) })
            }
            Some(Does::Says(page)) => {
                let page = Page::clone(page);
                Box::pin(async move { Ok(page) })
            }
            Some(Does::Meanwhile(..)) => match does.remove(&account.address) {
                Some(Does::Meanwhile(what)) => Box::pin(async move { Ok(what.await) }),
                _ => unreachable!(),
            },
        }
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

/// Mailboxes of a tenant that were synced before.
pub(super) async fn settled(db: &TestDatabase, tenant: &str, addresses: &[&str]) -> (TenantStore, Vec<MailboxId>) {
    let tenant = db.store.system().create_tenant(tenant, PlanTier::Standard).await.unwrap().unwrap();
    let store = db.store.tenant(tenant.id);
    let mut ids = Vec::new();
    for address in addresses {
        let id = MailboxId::new(&SystemClock);
        let mut unit = store.write();
        unit.add_mailbox(NewMailbox {
            id,
            provider: Provider::Gmail,
            address: (*address).into(),
            settings: json!({}),
            // One that opens nothing.
            secret_ref: (*address == "locked").then(|| SecretId::new(&SystemClock).to_string()),
            since: None,
        });
        unit.commit().await.unwrap();
        let (mailbox, cursors) = (format!("'{id}'"), "sync_cursors (tenant_id, mailbox_id, phase, scope, cursor)");
        db.run(&format!("update mailboxes set state = 'active' where id = {mailbox}")).await;
        db.run(&format!("update sync_states set is_history_done = true where mailbox_id = {mailbox}")).await;
        db.run(&format!("insert into {cursors} values ('{}', {mailbox}, 'changes', '', '1')", tenant.id)).await;
        ids.push(id);
    }
    (store, ids)
}

/// Of a provider of which some mailboxes are odd.
pub(super) fn syncer_with(scene: &Scene<'_>, odd: &Arc<Odd>, workers: usize) -> Syncer {
    let connectors: HashMap<Provider, Arc<dyn Connector>> =
        HashMap::from([(Provider::Scripted, scene.script.clone() as _), (Provider::Gmail, odd.clone() as _)]);
    let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
    Syncer::new(scene.syncer.engine.clone(), settings, connectors, Calls::default()).with_workers(workers)
}

pub(super) async fn ask(store: &TenantStore, provider: Provider, mailboxes: &[MailboxId]) {
    let mut unit = store.write();
    let job = PollMailboxes { provider, mailboxes: mailboxes.to_vec() };
    unit.enqueue(vec![new_job(&job, &SystemClock, None).unwrap()]);
    unit.commit().await.unwrap();
}

pub(super) fn start(db: &TestDatabase, kinds: Kinds, slots: usize) -> Worker {
    let settings = jobs::Settings { remote_slots: slots, grace: Duration::ZERO, ..worker_settings() };
    Worker::start(db.store.clone(), kinds, settings, Arc::new(SystemDice))
}

pub(super) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let so = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, so).await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_never_answers_does_not_keep_another_waiting() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        let calls = scene.calls();
        let hanging = Arc::new(Odd::default());
        hanging.does.lock().unwrap().insert("me@acme.test".into(), Does::Hangs);
        let syncer = syncer_with(&scene, &hanging, 10);
        for n in 0..30 {
            let (store, mailboxes) = settled(&db, &format!("tenant {n}"), &["me@acme.test"]).await;
            ask(&store, Provider::Gmail, &mailboxes).await;
        }
        let worker = start(&db, Kinds::default().with(syncer.poll_kind()), 10);
        until("as many as may be are called", async || *hanging.calls.lock().unwrap() == 4).await;

        ask(&scene.store, Provider::Scripted, &[scene.mailbox]).await;

        until("the other is looked at", async || scene.calls() == calls + 1).await;
        assert_eq!(*hanging.calls.lock().unwrap(), 4, "and no more are kept waiting than may be");
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_hangs_panics_or_cannot_be_opened_is_its_own_matter() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let odd = Arc::new(Odd::default());
        odd.does.lock().unwrap().extend([("hangs".into(), Does::Hangs), ("panics".into(), Does::Panics)]);
        let addresses = ["quiet", "hangs", "panics", "locked", "quiet too"];
        let (store, mailboxes) = settled(&db, "odd", &addresses).await;
        ask(&store, Provider::Gmail, &mailboxes).await;
        let syncer = syncer_with(&scene, &odd, 500);

        let worker = start(&db, Kinds::default().with(syncer.poll_kind()), 10);

        let is_told = async |n: usize| {
            let state = store.find_sync(mailboxes[n]).await.unwrap().unwrap();
            state.last_sync_at.is_some() || state.error_count > 0
        };
        for n in [0, 2, 3, 4] {
            until(addresses[n], async || is_told(n).await).await;
        }
        assert!(!is_told(1).await, "of the one that hangs nothing is known");
        let reason = async |n: usize| store.find_sync(mailboxes[n]).await.unwrap().unwrap().last_error;
        assert_eq!(reason(2).await.as_deref(), Some("a look at it panicked"));
        assert!(reason(3).await.unwrap().contains("is not there any more"), "{:?}", reason(3).await);
        let own = db.rows("select cast(payload as text) from jobs where kind = 'sync_mailbox'").await;
        let own: Vec<String> = own.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(own.len(), 2, "{own:?}");
        assert!([2, 3].iter().all(|n| own.iter().any(|job| job.contains(&mailboxes[*n].to_string()))), "{own:?}");
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mailboxes_of_which_one_kills_whoever_looks_are_looked_at_one_by_one() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let odd = Arc::new(Odd::default());
        let (store, mailboxes) = settled(&db, "odd", &["one", "two", "three"]).await;
        ask(&store, Provider::Gmail, &mailboxes).await;
        db.run("update jobs set suspected = 1").await;
        let syncer = syncer_with(&scene, &odd, 500);

        let worker = start(&db, Kinds::default().with(syncer.poll_kind()), 10);

        let own = "select 1 from jobs where kind = 'sync_mailbox'";
        until("each has a job", async || db.rows(own).await.len() == 3).await;
        assert_eq!(*odd.calls.lock().unwrap(), 0);
        worker.shut_down().await;
    })
    .await;
}

fn with_news() -> Page {
    Page { folders: vec![folder("INBOX", Some(FolderRole::Inbox))], ..page(vec![seen("m1", "INBOX", &[])]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_found_in_a_mailbox_that_was_switched_off_meanwhile_is_not_recorded() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let odd = Arc::new(Odd::default());
        let (store, mailboxes) = settled(&db, "odd", &["paused", "removed", "fine"]).await;
        for (address, n) in [("paused", 0), ("removed", 1)] {
            let (store, id) = (store.clone(), mailboxes[n]);
            let switch_off = Box::pin(async move {
                let mut unit = store.write();
                match n {
                    0 => unit.move_mailbox(id, &[MailboxState::Active], MailboxState::Paused, None),
                    _ => {
                        unit.move_mailbox(id, &[MailboxState::Active], MailboxState::Disconnected, None);
                        unit.stop_syncing(id);
                    }
                }
                unit.commit().await.unwrap();
                with_news()
            });
            odd.does.lock().unwrap().insert(address.into(), Does::Meanwhile(switch_off));
        }
        let syncer = syncer_with(&scene, &odd, 500);
        let kinds = syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with).with(syncer.poll_kind());
        let worker = start(&db, kinds, 10);

        ask(&store, Provider::Gmail, &mailboxes).await;

        until("all is done", async || db.rows("select 1 from jobs").await.is_empty()).await;
        assert_eq!(*odd.calls.lock().unwrap(), 3);
        assert!(scene.ledger().await.is_empty());
        assert!(store.find_sync(mailboxes[2]).await.unwrap().unwrap().last_sync_at.is_some());

        let keys = [(store.id, mailboxes[2])];
        assert_eq!(db.store.system().list_standings(&keys).await.unwrap().len(), 1);
        db.store.system().set_tenant_active(store.id, false).await.unwrap();
        assert!(
            db.store.system().list_standings(&keys).await.unwrap().is_empty(),
            "nobody looks for a tenant that is off"
        );
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_that_wait_for_their_turn_stop_with_their_tenant_and_go_on_when_it_is_back() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        let odd = Arc::new(Odd::default());
        let addresses: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        let not_yet = || Does::Refuses(ConnectorError::NotYet(Duration::from_millis(1)));
        odd.does.lock().unwrap().extend(addresses.iter().map(|address| (address.clone(), not_yet())));
        let (store, mailboxes) = settled(&db, "odd", &addresses.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let syncer = syncer_with(&scene, &odd, 500);
        ask(&store, Provider::Gmail, &mailboxes).await;
        let worker = start(&db, Kinds::default().with(syncer.poll_kind()), 10);
        until("they ask again and again", async || *odd.calls.lock().unwrap() > 100).await;

        db.store.system().set_tenant_active(store.id, false).await.unwrap();

        let given_back = "select 1 from jobs where state = 'ready' and attempt = 0";
        until("the job is given back", async || db.rows(given_back).await.len() == 1).await;
        let calls = *odd.calls.lock().unwrap();
        // Somebody else is looked at meanwhile, as often as the others would have asked again.
        let others = format!("select 1 from jobs where cast(tenant_id as text) = '{}'", scene.store.id);
        let before = scene.calls();
        for _ in 0..3 {
            ask(&scene.store, Provider::Scripted, &[scene.mailbox]).await;
            until("somebody else is looked at", async || db.rows(&others).await.is_empty()).await;
        }
        assert_eq!(scene.calls(), before + 3);
        assert_eq!(*odd.calls.lock().unwrap(), calls);

        odd.does.lock().unwrap().clear();
        db.store.system().set_tenant_active(store.id, true).await.unwrap();
        until("all is done", async || db.rows("select 1 from jobs").await.is_empty()).await;
        assert_eq!(*odd.calls.lock().unwrap(), calls + 25);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_push_brought_while_a_look_was_under_way_is_neither_lost_nor_recorded_twice() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let odd = Arc::new(Odd::default());
        let (store, mailboxes) = settled(&db, "odd", &["pushed"]).await;
        let syncer = syncer_with(&scene, &odd, 500);
        let kinds = || syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with).with(syncer.poll_kind());
        let worker = start(&db, kinds(), 10);
        let (pushed, id) = (store.clone(), mailboxes[0]);
        let listed = odd.clone();
        let push = Box::pin(async move {
            // The next who asks is the job of the push, and finds it.
            let found = Does::Meanwhile(Box::pin(async { with_news() }));
            listed.does.lock().unwrap().insert("pushed".into(), found);
            let mut unit = pushed.write();
            unit.enqueue(vec![only_one(new_job(&SyncMailbox { mailbox: id }, &SystemClock, None).unwrap(), id)]);
            unit.commit().await.unwrap();
            let has_ended = |state: SyncState| state.last_sync_at.is_some() && state.status == "idle";
            while !has_ended(pushed.find_sync(id).await.unwrap().unwrap()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            with_news()
        });
        odd.does.lock().unwrap().insert("pushed".into(), Does::Meanwhile(push));

        ask(&store, Provider::Gmail, &mailboxes).await;

        let own = "select 1 from jobs where kind <> 'fetch_emails'";
        until("all is done", async || db.rows(own).await.is_empty()).await;
        let calls = *odd.calls.lock().unwrap();
        assert_eq!(calls, 3, "what was seen before is of no use, so it is asked for again");
        assert_eq!(scene.ledger().await, pairs(&[("m1", "queued")]));
        assert_eq!(db.rows("select 1 from jobs where kind = 'fetch_emails'").await.len(), 1);
        worker.shut_down().await;
    })
    .await;
}
