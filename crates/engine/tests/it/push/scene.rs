//! A provider that pushes and mailboxes at it, from their connection to their end.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::connector::{
    Account, Answer, Cursors, Facts, Page, Place, Seen, SeenFolder, Sink, Wanted, Watch, WatchWish,
};
use domain::{Clock, Connector, ConnectorError, Flags, FolderRole, JobState, MailboxId, PlanTier, Provider, Secret};
use domain::{SystemClock, TenantId};
use engine::calls::Calls;
use engine::jobs::{Keep, RenewWatches};
use engine::mailboxes::{Backfill, Connect};
use engine::push::{Standing, find_standing};
use engine::sync::{SyncMailbox, SyncSettings, Syncer, only_one};
use jiff::{SignedDuration, Timestamp};
use jobs::{Job, SystemDice, Worker, new_job};
use serde_json::json;
use store::sql::jobs::{JobFilter, KeepFor};
use store::sql::mailboxes::Mailbox;
use store::sql::watches::WatchState;
use store::testing::TestDatabase;

use crate::bench::{Bench, worker_settings};

/// Only a hang gets there.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub const ADDRESS: &str = "me@acme.test";

/// A provider that agrees to tell for a week, unless it is told to say something else; and what it was asked.
#[derive(Debug)]
pub struct Server {
    provider: Provider,
    pub watches: Mutex<VecDeque<Option<Result<Watch, ConnectorError>>>>,
    pub unwatches: Mutex<VecDeque<ConnectorError>>,
    /// While this is somebody's, whoever stops a watch waits.
    pub stopping: tokio::sync::Mutex<()>,
    /// While this is somebody's, whoever asks for a subscription waits.
    pub subscribing: tokio::sync::Mutex<()>,
    /// What it has subscribed to: name and password of each there ever was, and whether the last one is still there.
    pub subscriptions: Mutex<Vec<(String, String)>>,
    pub is_subscribed: AtomicBool,
    /// It does what it is asked for, and nobody hears of it.
    pub loses_answers: AtomicBool,
    pub asked: Mutex<Vec<String>>,
    pub changes: Mutex<VecDeque<Page>>,
    /// Since when accounts were to be looked at whole, as listings were told.
    pub sweeps: Mutex<Vec<Option<Timestamp>>>,
}

impl Server {
    fn new(provider: Provider) -> Self {
        Self {
            provider,
            watches: Mutex::default(),
            unwatches: Mutex::default(),
            stopping: tokio::sync::Mutex::default(),
            subscribing: tokio::sync::Mutex::default(),
            subscriptions: Mutex::default(),
            is_subscribed: AtomicBool::default(),
            loses_answers: AtomicBool::default(),
            asked: Mutex::default(),
            changes: Mutex::default(),
            sweeps: Mutex::default(),
        }
    }

    /// One for the account, as Graph has it: asked for again, it takes the place of the one before.
    async fn subscribe(&self, account: &Account, wish: &WatchWish) -> Result<Watch, ConnectorError> {
        match &wish.known {
            Some(known) => self.note(&format!("renew {known}"), account),
            None => self.note("begin", account),
        }
        let _turn = self.subscribing.lock().await;
        let said = self.watches.lock().unwrap().pop_front().flatten();
        if let Some(said) = said {
            return said;
        }
        let name = {
            let mut all = self.subscriptions.lock().unwrap();
            let last = all.last().map(|(name, _)| name.clone());
            match &wish.known {
                Some(known) if self.is_subscribed.load(Ordering::SeqCst) && last.as_ref() == Some(known) => {}
                Some(_) => return Err(ConnectorError::Gone),
                None => {
                    let name = format!("s{}", all.len() + 1);
                    all.push((name, wish.password.expose().clone()));
                    self.is_subscribed.store(true, Ordering::SeqCst);
                }
            }
            all.last().map(|(name, _)| name.clone())
        };
        match self.loses_answers.swap(false, Ordering::SeqCst) {
            true => Err(ConnectorError::Unavailable("no answer".into())),
            false => Ok(Watch { expires_at: SystemClock.now() + SignedDuration::from_hours(7 * 24), name }),
        }
    }

    fn note(&self, what: &str, account: &Account) {
        let secret = account.secret.as_ref().map_or("none", |secret| secret.expose());
        self.asked.lock().unwrap().push(format!("{what} {secret}"));
    }

    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Connector for Server {
    fn provider(&self) -> Provider {
        self.provider
    }

    fn changes<'a>(&'a self, account: &'a Account, _: &'a Cursors) -> Answer<'a, Page> {
        self.sweeps.lock().unwrap().push(account.sweep_since);
        let page = self.changes.lock().unwrap().pop_front();
        let first = Page { cursors: Cursors::from([(String::new(), "1".into())]), is_last: true, ..Page::default() };
        Box::pin(async move { Ok(page.unwrap_or(first)) })
    }

    fn history<'a>(&'a self, _: &'a Account, _: &'a Cursors, _: &'a Cursors, _: Option<Timestamp>) -> Answer<'a, Page> {
        Box::pin(async { Ok(Page { is_last: true, ..Page::default() }) })
    }

    fn list<'a>(
        &'a self,
        _: &'a Account,
        _: &'a Cursors,
        _: Option<&'a Cursors>,
        _: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(async { Ok(Page { is_last: true, ..Page::default() }) })
    }

    fn fetch<'a>(&'a self, _: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(async move {
            for wanted in wanted {
                sink.begin(&wanted.message);
                sink.write(format!("Subject: {}\n\nhello", wanted.message).as_bytes()).unwrap();
                sink.end(Facts::default()).unwrap();
            }
            Ok(())
        })
    }

    fn check<'a>(&'a self, _: &'a Account) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn watch<'a>(&'a self, account: &'a Account, wish: &'a WatchWish) -> Option<Answer<'a, Watch>> {
        if self.provider.subscribes() {
            return Some(Box::pin(self.subscribe(account, wish)));
        }
        let agreed = || Watch { expires_at: SystemClock.now() + SignedDuration::from_hours(7 * 24), name: None };
        let said = self.watches.lock().unwrap().pop_front().unwrap_or_else(|| Some(Ok(agreed())))?;
        self.note("watch", account);
        Some(Box::pin(async move { said }))
    }

    fn unwatch<'a>(&'a self, account: &'a Account, name: Option<&'a str>) -> Option<Answer<'a, ()>> {
        Some(Box::pin(async move {
            let which = name.map(|name| format!(" {name}")).unwrap_or_default();
            self.note(&format!("unwatch{which}"), account);
            let _turn = self.stopping.lock().await;
            self.unwatches.lock().unwrap().pop_front().map_or(Ok(()), Err)
        }))
    }
}

pub struct Scene<'a> {
    pub db: &'a TestDatabase,
    pub server: Arc<Server>,
    pub syncer: Syncer,
    _folder: tempfile::TempDir,
}

impl<'a> Scene<'a> {
    pub fn new(db: &'a TestDatabase, provider: Provider) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Arc::new(Server::new(provider));
        let connectors: HashMap<Provider, Arc<dyn Connector>> = HashMap::from([(provider, server.clone() as _)]);
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let engine = Bench::engine(&db.store, folder.path());
        let syncer = Syncer::new(engine, settings, connectors, Calls::default());
        Self { db, server, syncer, _folder: folder }
    }

    pub async fn tenant(&self, name: &str) -> TenantId {
        self.db.store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id
    }

    /// With a secret by which its calls can be told apart.
    pub async fn connect(&self, tenant: TenantId, secret: &str) -> MailboxId {
        let connect = Connect {
            provider: self.server.provider,
            address: ADDRESS.into(),
            settings: json!({}),
            secret: Some(Secret::new(secret.to_owned())),
            backfill: Backfill::None,
        };
        self.syncer.engine.connect(tenant, connect).await.unwrap().unwrap()
    }

    pub async fn mailbox(&self, tenant: TenantId) -> Mailbox {
        self.db.store.tenant(tenant).find_mailbox(ADDRESS).await.unwrap().unwrap()
    }

    pub async fn watch(&self, tenant: TenantId) -> Option<WatchState> {
        let mailbox = self.mailbox(tenant).await;
        self.db.store.tenant(tenant).find_watch(mailbox.id).await.unwrap()
    }

    pub async fn standing(&self, tenant: TenantId) -> Standing {
        let mailbox = self.mailbox(tenant).await;
        find_standing(&self.db.store.tenant(tenant), &mailbox).await.unwrap().unwrap()
    }

    pub async fn disconnect(&self, tenant: TenantId) {
        self.syncer.engine.disconnect(&self.mailbox(tenant).await, None).await.unwrap();
    }

    pub async fn enqueue<J: Job>(&self, tenant: TenantId, job: &J) {
        let mut unit = self.db.store.system().write_for(tenant);
        unit.enqueue(vec![new_job(job, &SystemClock, None).unwrap()]);
        unit.commit().await.unwrap();
    }

    pub fn start_worker(&self) -> Worker {
        let week = Duration::from_secs(7 * 86_400);
        let keep = Keep {
            jobs: KeepFor { finished: week, dead: week },
            events: SignedDuration::MAX,
            deliveries: week,
            blobs: SignedDuration::MAX,
        };
        let kinds = engine::jobs::kinds(&self.syncer, keep);
        Worker::start(self.db.store.clone(), kinds, worker_settings(), Arc::new(SystemDice))
    }

    /// Works until nothing is left to do.
    pub async fn work(&self) {
        let worker = self.start_worker();
        let idle = async {
            while !self.db.rows("select 1 from jobs where state <> 'scheduled'").await.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, idle).await.is_err() {
            let jobs = self.db.store.system().list_jobs(&JobFilter::default(), None, 10).await.unwrap();
            panic!("something never ends: {jobs:?}");
        }
        worker.shut_down().await;
        let dead = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        assert_eq!(self.db.store.system().list_jobs(&dead, None, 10).await.unwrap().len(), 0);
    }

    /// What happens every minute.
    pub async fn tick(&self) {
        self.enqueue(TenantId::SYSTEM, &RenewWatches {}).await;
        self.work().await;
    }

    /// As when its time has come.
    pub async fn make_due(&self) {
        self.db.run("update push_watches set next_at = '2026-01-01T00:00:00.000Z'").await;
    }

    /// A look that finds a new message.
    pub async fn find_news(&self, tenant: TenantId, message: &str) {
        let inbox = SeenFolder {
            id: "INBOX".into(),
            name: "INBOX".into(),
            role: Some(FolderRole::Inbox),
            delimiter: None,
            uid_validity: None,
        };
        let seen = Seen {
            message: message.into(),
            place: Place { folder: "INBOX".into(), uid: message.into() },
            flags: Flags::from_names([""; 0]),
            size_bytes: Some(10),
            received_at: None,
            revision: None,
        };
        let page = Page {
            folders: vec![inbox],
            messages: vec![seen],
            cursors: Cursors::from([(String::new(), message.into())]),
            is_last: true,
            ..Page::default()
        };
        self.server.changes.lock().unwrap().push_back(page);
        let mailbox = self.mailbox(tenant).await.id;
        let mut unit = self.db.store.tenant(tenant).write();
        unit.enqueue(vec![only_one(new_job(&SyncMailbox { mailbox }, &SystemClock, None).unwrap(), mailbox)]);
        unit.commit().await.unwrap();
        self.work().await;
    }

    /// Events of pushes, all of them.
    pub async fn told(&self, tenant: TenantId) -> Vec<String> {
        let events = self.db.store.tenant(tenant).list_events(0, 1000).await.unwrap();
        events.into_iter().map(|event| event.kind).filter(|kind| kind.contains("push")).collect()
    }

    pub async fn secrets(&self) -> usize {
        self.db.rows("select 1 from secrets").await.len()
    }
}
