//! Mailboxes are listened to, each by one process of all.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::connector::{Account, Answer, Cursors, Page, Sink, Wanted};
use domain::{Connector, ConnectorError, Lane, MailboxId, PlanTier, Provider, SystemClock, TenantId};
use engine::calls::Calls;
use engine::sync::{SyncSettings, Syncer};
use engine::watch::{WatchSettings, watch};
use jiff::Timestamp;
use jobs::SystemDice;
use serde_json::json;
use store::sql::jobs::JobFilter;
use store::sql::mailboxes::{Mailbox, NewMailbox};
use store::testing::{TestDatabase, on_each_database};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::bench::Bench;

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(60);

const LONG: Duration = Duration::from_secs(3600);

type Said = Result<bool, ConnectorError>;

/// A provider that says something only when it is told to.
#[derive(Debug, Default)]
struct Server {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// How many listen to a mailbox, and the most that ever did.
    now: BTreeMap<MailboxId, u32>,
    most: u32,
    calls: u32,
    says: HashMap<MailboxId, VecDeque<Said>>,
}

/// What one process sees of the server.
#[derive(Debug)]
struct Door {
    server: Arc<Server>,
    /// Those that listen through it.
    here: Arc<Mutex<BTreeMap<MailboxId, u32>>>,
}

struct Ear<'a> {
    door: &'a Door,
    mailbox: MailboxId,
}

impl Drop for Ear<'_> {
    fn drop(&mut self) {
        *self.door.here.lock().unwrap().get_mut(&self.mailbox).unwrap() -= 1;
        *self.door.server.state.lock().unwrap().now.get_mut(&self.mailbox).unwrap() -= 1;
    }
}

impl Door {
    fn enter(&self, mailbox: MailboxId) -> Ear<'_> {
        *self.here.lock().unwrap().entry(mailbox).or_default() += 1;
        let mut state = self.server.state.lock().unwrap();
        state.calls += 1;
        let now = state.now.entry(mailbox).or_default();
        *now += 1;
        let now = *now;
        state.most = state.most.max(now);
        Ear { door: self, mailbox }
    }
}

impl Connector for Door {
    fn provider(&self) -> Provider {
        Provider::Scripted
    }

    fn changes<'a>(&'a self, _: &'a Account, _: &'a Cursors) -> Answer<'a, Page> {
        Box::pin(async { unreachable!("nobody works on jobs here") })
    }

    fn history<'a>(
        &'a self,
        _: &'a Account,
        _: &'a Cursors,
        _: &'a Cursors,
        _: Option<jiff::Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(async { unreachable!("nobody works on jobs here") })
    }

    fn list<'a>(
        &'a self,
        _: &'a Account,
        _: &'a Cursors,
        _: Option<&'a Cursors>,
        _: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(async { unreachable!("nobody works on jobs here") })
    }

    fn fetch<'a>(&'a self, _: &'a Account, _: &'a [Wanted], _: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(async { unreachable!("nobody works on jobs here") })
    }

    fn check<'a>(&'a self, _: &'a Account) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn listen<'a>(&'a self, account: &'a Account, _: Duration) -> Option<Answer<'a, bool>> {
        Some(Box::pin(async {
            let _ear = self.enter(account.mailbox);
            loop {
                let told = self.server.told.notified();
                tokio::pin!(told);
                told.as_mut().enable();
                let said =
                    self.server.state.lock().unwrap().says.get_mut(&account.mailbox).and_then(VecDeque::pop_front);
                match said {
                    Some(said) => return said,
                    None => told.await,
                }
            }
        }))
    }
}

struct Scene<'a> {
    db: &'a TestDatabase,
    tenant: TenantId,
    server: Arc<Server>,
    folder: tempfile::TempDir,
}

/// One that listens; dropped, it dies without a word.
struct Process {
    here: Arc<Mutex<BTreeMap<MailboxId, u32>>>,
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Process {
    fn listens_to(&self) -> usize {
        self.here.lock().unwrap().values().filter(|count| **count > 0).count()
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.task).await.unwrap();
    }
}

impl<'a> Scene<'a> {
    async fn new(db: &'a TestDatabase) -> Self {
        let tenant = db.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        Self { db, tenant, server: Arc::default(), folder: tempfile::tempdir().unwrap() }
    }

    /// At work, as if it had been looked at before.
    async fn mailbox(&self, n: u32) -> Mailbox {
        let store = self.db.store.tenant(self.tenant);
        let (id, address) = (MailboxId::new(&SystemClock), format!("{n}@acme.test"));
        let mut unit = store.write();
        unit.add_mailbox(NewMailbox {
            id,
            provider: Provider::Scripted,
            address: address.clone(),
            settings: json!({}),
            secret_ref: None,
            since: None,
        });
        unit.commit().await.unwrap();
        self.db.run(&format!("update mailboxes set state = 'active' where id = '{id}'")).await;
        store.find_mailbox(&address).await.unwrap().unwrap()
    }

    async fn mailboxes(&self, count: u32) -> Vec<Mailbox> {
        let mut mailboxes = Vec::new();
        for n in 0..count {
            mailboxes.push(self.mailbox(n).await);
        }
        mailboxes
    }

    fn settings(&self, holder: &str) -> WatchSettings {
        let every = Duration::from_millis(50);
        let retry = jobs::Retry { first: Duration::from_millis(1), longest: LONG, retries: u32::MAX };
        let settings = WatchSettings::new(holder, Arc::new(SystemDice));
        WatchSettings { lease: Duration::from_secs(60), every, settled: LONG, retry, ..settings }
    }

    fn syncer(&self, holder: &str) -> (Syncer, Arc<Mutex<BTreeMap<MailboxId, u32>>>) {
        let here = Arc::new(Mutex::default());
        let door: Arc<dyn Connector> = Arc::new(Door { server: self.server.clone(), here: Arc::clone(&here) });
        let settings = SyncSettings { holder: holder.into(), lease: LONG, duplicate_check: true };
        let engine = Bench::engine(&self.db.store, self.folder.path());
        let connectors = HashMap::from([(Provider::Scripted, door)]);
        (Syncer::new(engine, settings, connectors, Calls::default()), here)
    }

    fn start_with(&self, settings: WatchSettings) -> Process {
        let (syncer, here) = self.syncer(&settings.holder);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            watch(&syncer, &settings, stopped).await;
        });
        Process { here, task, stop: Some(stop) }
    }

    fn start(&self, holder: &str) -> Process {
        self.start_with(self.settings(holder))
    }

    fn say(&self, mailbox: &Mailbox, said: Said) {
        self.server.state.lock().unwrap().says.entry(mailbox.id).or_default().push_back(said);
        self.server.told.notify_waiters();
    }

    fn listening(&self) -> usize {
        self.server.state.lock().unwrap().now.values().filter(|count| **count > 0).count()
    }

    fn calls(&self) -> u32 {
        self.server.state.lock().unwrap().calls
    }

    /// The looks at mailboxes that were asked for, by lane.
    async fn looks(&self, lane: Lane) -> usize {
        let filter = JobFilter { kind: Some("sync_mailbox".into()), ..JobFilter::default() };
        let jobs = self.db.store.system().list_jobs(&filter, None, 100).await.unwrap();
        jobs.iter().filter(|job| job.lane == lane).count()
    }
}

async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("waited too long until {what}"));
}

#[tokio::test]
async fn two_processes_share_the_mailboxes_evenly_and_never_listen_to_the_same() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.mailboxes(9).await;
        let first = scene.start("first");
        until("one listens to all", async || first.listens_to() == 9).await;

        let second = scene.start("second");
        until("they share", async || first.listens_to().max(second.listens_to()) == 5 && scene.listening() == 9).await;
        assert_eq!(scene.server.state.lock().unwrap().most, 1, "two listened to one mailbox");

        // Who leaves properly is followed at once, though its leases are long.
        first.stop().await;
        until("the other has all", async || second.listens_to() == 9).await;
        assert_eq!(scene.server.state.lock().unwrap().most, 1, "two listened to one mailbox");
        assert_eq!(db.rows("select 1 from leases where name like 'listener:%'").await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_mailboxes_of_a_process_that_dies_are_listened_to_by_another() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.mailboxes(6).await;
        let short = |holder| WatchSettings { lease: Duration::from_secs(2), ..scene.settings(holder) };
        let (first, second) = (scene.start_with(short("first")), scene.start_with(short("second")));
        until("they share", async || first.listens_to() == 3 && second.listens_to() == 3).await;

        drop(first);
        until("the other has all", async || second.listens_to() == 6).await;
    })
    .await;
}

#[tokio::test]
async fn a_mailbox_that_is_switched_off_in_any_way_is_left_alone_and_then_listened_to_again() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let mailbox = scene.mailboxes(5).await.remove(0);
        let process = scene.start("first");
        let (syncer, _) = scene.syncer("somebody");
        let is_listened_to = || process.here.lock().unwrap().get(&mailbox.id).is_some_and(|count| *count > 0);
        until("all are listened to", async || scene.listening() == 5).await;

        assert!(syncer.engine.pause_mailbox(&mailbox).await.unwrap());
        until("it is left alone", async || !is_listened_to()).await;
        assert_eq!((scene.calls(), scene.listening()), (5, 4), "the others are listened to as before");
        let store = db.store.tenant(mailbox.tenant_id);
        let paused = store.find_mailbox(&mailbox.id.to_string()).await.unwrap().unwrap();
        assert!(syncer.engine.resume_mailbox(&paused, None).await.unwrap());
        until("it is listened to again", async || is_listened_to()).await;
        db.run("update mailboxes set state = 'needs_reauth'").await;
        until("nobody is listened to", async || scene.listening() == 0).await;
        db.run("update mailboxes set state = 'active'").await;
        until("all are listened to", async || scene.listening() == 5).await;
        db.run("update tenants set is_active = false").await;
        until("nobody is listened to", async || scene.listening() == 0).await;
    })
    .await;
}

#[tokio::test]
async fn news_ask_for_one_look_at_the_mailbox_and_it_is_listened_to_on() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let mailboxes = scene.mailboxes(2).await;
        let _process = scene.start("first");
        until("all are listened to", async || scene.listening() == 2).await;
        assert_eq!(scene.looks(Lane::High).await, 0);

        scene.say(&mailboxes[0], Ok(false));
        until("it is listened to once more", async || scene.calls() == 3 && scene.listening() == 2).await;
        assert_eq!(scene.looks(Lane::High).await, 0, "nothing happened");

        for n in 4..7 {
            scene.say(&mailboxes[0], Ok(true));
            until("it is listened to once more", async || scene.calls() == n && scene.listening() == 2).await;
        }
        until("a look is asked for", async || scene.looks(Lane::High).await == 1).await;
        assert_eq!(scene.looks(Lane::Normal).await, 0, "and only one");
    })
    .await;
}

#[tokio::test]
async fn what_came_while_nobody_listened_is_looked_for() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let mailbox = scene.mailbox(1).await;
        let at_once = WatchSettings { settled: Duration::ZERO, ..scene.settings("first") };

        let _process = scene.start_with(at_once);
        until("a look is asked for", async || scene.looks(Lane::Normal).await == 1).await;

        db.run("delete from jobs").await;
        scene.say(&mailbox, Err(ConnectorError::Unavailable("gone".into())));
        until("a look is asked for when it listens again", async || scene.looks(Lane::Normal).await == 1).await;
        assert_eq!(scene.calls(), 2);
    })
    .await;
}

#[tokio::test]
async fn refused_credentials_ask_for_one_look_and_are_not_tried_again() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let mailboxes = scene.mailboxes(2).await;
        let _process = scene.start("first");
        until("all are listened to", async || scene.listening() == 2).await;

        scene.say(&mailboxes[0], Err(ConnectorError::Unauthorized("the password is wrong".into())));
        until("a look is asked for", async || scene.looks(Lane::High).await == 1).await;
        // Others go on meanwhile, as often as they like.
        for n in 3..6 {
            scene.say(&mailboxes[1], Ok(false));
            until("another is listened to once more", async || scene.calls() == n && scene.listening() == 1).await;
        }
        assert_eq!(scene.looks(Lane::High).await, 1);
    })
    .await;
}
