//! A tenant is switched off while messages of its mailbox are fetched.

use futures_util::future::BoxFuture;

use super::polls::until;
use super::*;

/// The same provider, but before the messages come that are asked for next, something happens.
struct Late {
    script: Arc<Script>,
    meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Late").finish_non_exhaustive()
    }
}

impl Connector for Late {
    fn provider(&self) -> Provider {
        self.script.provider()
    }

    fn changes<'a>(&'a self, account: &'a Account, cursors: &'a Cursors) -> Answer<'a, Page> {
        self.script.changes(account, cursors)
    }

    fn history<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        told: &'a Cursors,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        self.script.history(account, cursors, told, since)
    }

    fn list<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        told: Option<&'a Cursors>,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        self.script.list(account, cursors, told, since)
    }

    fn fetch<'a>(&'a self, account: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        Box::pin(async move {
            if let Some(meanwhile) = meanwhile {
                meanwhile.await;
            }
            self.script.fetch(account, wanted, sink).await
        })
    }

    fn check<'a>(&'a self, account: &'a Account) -> Answer<'a, ()> {
        self.script.check(account)
    }
}

impl Scene<'_> {
    /// Syncs, until what happens meanwhile has begun.
    async fn sync_late(&self, settings: jobs::Settings, meanwhile: BoxFuture<'static, ()>) -> Worker {
        let late = Arc::new(Late { script: self.script.clone(), meanwhile: Mutex::new(Some(meanwhile)) });
        let connectors: HashMap<Provider, Arc<dyn Connector>> =
            HashMap::from([(Provider::Scripted, late.clone() as _)]);
        let sync = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let syncer = Syncer::new(self.syncer.engine.clone(), sync, connectors, Calls::default());
        let kinds = syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with).with(syncer.fetch_kind());
        let job = new_job(&SyncMailbox { mailbox: self.mailbox }, &SystemClock, None).unwrap();
        let mut unit = self.store.write();
        unit.enqueue(vec![only_one(job, self.mailbox)]);
        unit.commit().await.unwrap();
        let worker = Worker::start(self.db.store.clone(), kinds, settings, Arc::new(SystemDice));
        until("messages are asked for", async || late.meanwhile.lock().unwrap().is_none()).await;
        worker
    }

    async fn switch(&self, is_active: bool) {
        assert!(self.db.store.system().set_tenant_active(self.store.id, is_active).await.unwrap());
    }

    async fn fetches_that_are(&self, state: &str) -> usize {
        let sql = format!("select 1 from jobs where kind = 'fetch_emails' and state = '{state}' and attempt = 0");
        self.db.rows(&sql).await.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_waits_for_its_provider_is_stopped_with_its_tenant_and_goes_on_when_it_is_back() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.has("m1", "Subject: one\n\nhello");
        scene.says(page(vec![seen("m1", "INBOX", &[])]));
        let worker = scene.sync_late(worker_settings(), Box::pin(std::future::pending())).await;

        scene.switch(false).await;

        until("it is given back", async || scene.fetches_that_are("ready").await == 1).await;
        assert!(scene.script.fetched.lock().unwrap().is_empty());
        assert_eq!(scene.ledger().await, pairs(&[("m1", "queued")]));

        scene.switch(true).await;
        until("it is stored", async || !scene.emails().await.is_empty()).await;
        assert_eq!(scene.events(&mut 0).await, ["email.received"]);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_before_a_worker_has_heard_that_its_tenant_is_off_is_not_stored() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.sync().await;
        // Where it is may come with its bytes, and is recorded before.
        for (message, comes_with_places) in [("m1", false), ("m2", true)] {
            let mut after = scene.store.list_events(0, 1000).await.unwrap().len() as u64;
            scene.has(message, &format!("Subject: {message}\n\nhello"));
            if comes_with_places {
                let marked = (place(message, "INBOX"), Flags::from_names(["seen"]));
                scene.script.places.lock().unwrap().insert(message.into(), vec![marked]);
            }
            scene.says(page(vec![seen(message, "INBOX", &[])]));
            let (system, tenant) = (db.store.system(), scene.store.id);
            let off = Box::pin(async move { assert!(system.set_tenant_active(tenant, false).await.unwrap()) });
            // It does not ask before all is over.
            let hour = Duration::from_secs(3600);
            let deaf = jobs::Settings { lease: hour * 10, poll: hour, ..worker_settings() };
            let worker = scene.sync_late(deaf, off).await;
            // Which waits for what runs.
            worker.shut_down().await;

            assert!(scene.script.fetched.lock().unwrap().contains(&message.to_owned()), "it came");
            assert!(scene.ledger().await.contains(&(message.to_owned(), "queued".to_owned())));
            let seen = format!("select 1 from placements where provider_message_id = '{message}' and is_live and cast(flags as text) = '[]'");
            assert_eq!(db.rows(&seen).await.len(), 1, "it is where it was listed");
            assert!(scene.events(&mut after).await.is_empty());
            assert_eq!(scene.fetches_that_are("ready").await, 1);

            scene.switch(true).await;
            scene.settle().await;
            assert_eq!(scene.events(&mut after).await, ["email.received"]);
        }
        assert_eq!(scene.emails().await, pairs(&[("m1", "INBOX[]"), ("m2", "INBOX[\"seen\"]")]));
    })
    .await;
}
