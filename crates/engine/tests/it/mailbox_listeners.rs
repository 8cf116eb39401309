//! Processes share the mailboxes that they listen to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::SystemRandom;
use domain::{ConnectorError, Lane, MailboxId, Provider};
use engine::sync::mailbox_listeners::{ListenSettings, listen_to_mailboxes};
use outbound::Gateway;
use store::TenantStore;
use store::sql::jobs::JobFilter;
use store::sql::mailboxes::Mailbox;
use store::testing::{TestDatabase, on_each_database};
use testkit::MailboxOperations;
use testkit::app::syncer;
use testkit::{AppOptions, ScriptedConnector, ScriptedReply, TestApp, wait_until};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

const HOUR: Duration = Duration::from_secs(3600);

/// Calls that listen to mailboxes, over all processes.
#[derive(Debug, Default)]
struct ListenHub {
    state: Mutex<HubState>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct HubState {
    listeners: BTreeMap<MailboxId, u32>,
    max_listeners: u32,
    calls: u32,
    answers: HashMap<MailboxId, VecDeque<Result<bool, ConnectorError>>>,
}

impl ListenHub {
    /// Answers the call that listens to this mailbox, or the next one.
    fn answer(&self, mailbox: &Mailbox, answer: Result<bool, ConnectorError>) {
        self.state.lock().unwrap().answers.entry(mailbox.id).or_default().push_back(answer);
        self.answered.notify_waiters();
    }

    /// Mailboxes that are listened to.
    fn listening(&self) -> usize {
        self.state.lock().unwrap().listeners.values().filter(|count| **count > 0).count()
    }

    fn calls(&self) -> u32 {
        self.state.lock().unwrap().calls
    }

    /// The most that ever listened to one mailbox at the same time.
    fn max_listeners(&self) -> u32 {
        self.state.lock().unwrap().max_listeners
    }

    async fn listen(
        self: Arc<Self>,
        process: Arc<Mutex<BTreeMap<MailboxId, u32>>>,
        mailbox: MailboxId,
    ) -> Result<bool, ConnectorError> {
        let _call = ListenCall::begin(self.clone(), process, mailbox);
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            let answer = self.state.lock().unwrap().answers.get_mut(&mailbox).and_then(VecDeque::pop_front);
            match answer {
                Some(answer) => return answer,
                None => answered.await,
            }
        }
    }
}

/// A call that is counted as long as it lasts.
struct ListenCall {
    hub: Arc<ListenHub>,
    process: Arc<Mutex<BTreeMap<MailboxId, u32>>>,
    mailbox: MailboxId,
}

impl ListenCall {
    fn begin(hub: Arc<ListenHub>, process: Arc<Mutex<BTreeMap<MailboxId, u32>>>, mailbox: MailboxId) -> Self {
        *process.lock().unwrap().entry(mailbox).or_default() += 1;
        {
            let mut state = hub.state.lock().unwrap();
            state.calls += 1;
            let listeners = state.listeners.entry(mailbox).or_default();
            *listeners += 1;
            let listeners = *listeners;
            state.max_listeners = state.max_listeners.max(listeners);
        }
        Self { hub, process, mailbox }
    }
}

impl Drop for ListenCall {
    fn drop(&mut self) {
        *self.process.lock().unwrap().get_mut(&self.mailbox).unwrap() -= 1;
        *self.hub.state.lock().unwrap().listeners.get_mut(&self.mailbox).unwrap() -= 1;
    }
}

/// A process that listens; dropped, it dies without releasing its leases.
struct ListenerProcess {
    listeners: Arc<Mutex<BTreeMap<MailboxId, u32>>>,
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Drop for ListenerProcess {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ListenerProcess {
    fn listens_to(&self) -> usize {
        self.listeners.lock().unwrap().values().filter(|count| **count > 0).count()
    }

    fn is_listening_to(&self, mailbox: MailboxId) -> bool {
        self.listeners.lock().unwrap().get(&mailbox).is_some_and(|count| *count > 0)
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.task).await.unwrap();
    }
}

/// An application whose mailboxes are listened to by other processes.
struct ListenerApp {
    app: TestApp,
    tenant: TenantStore,
    hub: Arc<ListenHub>,
}

impl Deref for ListenerApp {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

fn settings(holder: &str) -> ListenSettings {
    let retry = jobs::RetryPolicy { first_delay: Duration::from_millis(1), max_delay: HOUR, max_retries: u32::MAX };
    ListenSettings {
        lease: Duration::from_secs(60),
        renew_interval: Duration::from_millis(50),
        settle_delay: HOUR,
        retry,
        ..ListenSettings::new(holder, Arc::new(SystemRandom))
    }
}

impl ListenerApp {
    async fn new(db: TestDatabase) -> Self {
        let app = TestApp::new(db, AppOptions::default());
        let tenant = app.create_tenant("acme").await;
        Self { app, tenant, hub: Arc::default() }
    }

    /// Active, as if it had been synced before.
    async fn mailbox(&self, n: u32) -> Mailbox {
        let address = format!("{n}@acme.test");
        let id = self.add_mailbox(&self.tenant, Provider::Imap, &address).await;
        self.db.run(&format!("update mailboxes set state = 'active' where id = '{id}'")).await;
        self.app.mailbox(&self.tenant, &address).await
    }

    async fn mailboxes(&self, count: u32) -> Vec<Mailbox> {
        let mut mailboxes = Vec::new();
        for n in 0..count {
            mailboxes.push(self.mailbox(n).await);
        }
        mailboxes
    }

    fn start_with(&self, settings: ListenSettings) -> ListenerProcess {
        let listeners: Arc<Mutex<BTreeMap<MailboxId, u32>>> = Arc::default();
        let connector = ScriptedConnector::new(Provider::Imap);
        self.check_scripted(&connector);
        let (hub, process) = (self.hub.clone(), listeners.clone());
        connector.on_listen(move |account| ScriptedReply::later(hub.clone().listen(process.clone(), account.mailbox)));
        let syncer = syncer(&self.engine, [connector as _], Gateway::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            listen_to_mailboxes(&syncer, &settings, stopped).await;
        });
        ListenerProcess { listeners, task, stop: Some(stop) }
    }

    fn start(&self, holder: &str) -> ListenerProcess {
        self.start_with(settings(holder))
    }

    /// Syncs that are enqueued in this lane.
    async fn enqueued_syncs(&self, lane: Lane) -> usize {
        let filter = JobFilter { kind: Some("sync_mailbox".into()), ..JobFilter::default() };
        let jobs = self.db.store.system().list_jobs(&filter, None, 100).await.unwrap();
        jobs.iter().filter(|job| job.lane == lane).count()
    }
}

#[tokio::test]
async fn processes_share_mailboxes_evenly() {
    on_each_database(|db| async move {
        let app = ListenerApp::new(db).await;
        app.mailboxes(9).await;
        let first = app.start("first");
        wait_until("one listens to all", async || first.listens_to() == 9).await;

        let second = app.start("second");
        wait_until("they share", async || first.listens_to().max(second.listens_to()) == 5 && app.hub.listening() == 9)
            .await;
        assert_eq!(app.hub.max_listeners(), 1, "two listened to one mailbox");

        // Who leaves properly is followed at once, though its leases are long.
        first.stop().await;
        wait_until("the other has all", async || second.listens_to() == 9).await;
        assert_eq!(app.hub.max_listeners(), 1, "two listened to one mailbox");
        assert_eq!(app.db.rows("select 1 from leases where name like 'listener:%'").await.len(), 1);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn mailboxes_of_a_dead_process_are_taken_over() {
    on_each_database(|db| async move {
        let app = ListenerApp::new(db).await;
        app.mailboxes(6).await;
        let short = Duration::from_secs(2);
        let (first, second) = (
            app.start_with(ListenSettings { lease: short, ..settings("first") }),
            app.start_with(ListenSettings { lease: short, ..settings("second") }),
        );
        wait_until("they share", async || first.listens_to() == 3 && second.listens_to() == 3).await;

        drop(first);
        wait_until("the other has all", async || second.listens_to() == 6).await;
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn inactive_mailbox_is_not_listened_to() {
    on_each_database(|db| async move {
        let app = ListenerApp::new(db).await;
        let mailbox = app.mailboxes(5).await.remove(0);
        let process = app.start("first");
        wait_until("all are listened to", async || app.hub.listening() == 5).await;

        app.engine.pause_mailbox(&mailbox).await.unwrap();
        wait_until("it is left alone", async || !process.is_listening_to(mailbox.id)).await;
        assert_eq!((app.hub.calls(), app.hub.listening()), (5, 4), "the others are listened to as before");
        let store = app.db.store.tenant(mailbox.tenant_id);
        let paused = store.find_mailbox(&mailbox.id.to_string()).await.unwrap().unwrap();
        app.engine.resume_mailbox(&paused).await.unwrap();
        wait_until("it is listened to again", async || process.is_listening_to(mailbox.id)).await;
        app.db.run("update mailboxes set state = 'needs_reauth'").await;
        wait_until("nobody is listened to", async || app.hub.listening() == 0).await;
        app.db.run("update mailboxes set state = 'active'").await;
        wait_until("all are listened to", async || app.hub.listening() == 5).await;
        app.db.run("update tenants set is_active = false").await;
        wait_until("nobody is listened to", async || app.hub.listening() == 0).await;
        app.leaves_jobs(&["fetch_failed", "sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn news_enqueue_one_sync() {
    on_each_database(|db| async move {
        let app = ListenerApp::new(db).await;
        let mailboxes = app.mailboxes(2).await;
        let _process = app.start("first");
        wait_until("all are listened to", async || app.hub.listening() == 2).await;
        assert_eq!(app.enqueued_syncs(Lane::High).await, 0);

        app.hub.answer(&mailboxes[0], Ok(false));
        wait_until("it is listened to once more", async || app.hub.calls() == 3 && app.hub.listening() == 2).await;
        assert_eq!(app.enqueued_syncs(Lane::High).await, 0, "nothing happened");

        for n in 4..7 {
            app.hub.answer(&mailboxes[0], Ok(true));
            wait_until("it is listened to once more", async || app.hub.calls() == n && app.hub.listening() == 2).await;
        }
        wait_until("a look is asked for", async || app.enqueued_syncs(Lane::High).await == 1).await;
        assert_eq!(app.enqueued_syncs(Lane::Normal).await, 0, "and only one");
        app.leaves_jobs(&["sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn mailbox_is_synced_after_a_listening_gap() {
    on_each_database(|db| async move {
        let app = ListenerApp::new(db).await;
        let mailbox = app.mailbox(1).await;
        let at_once = ListenSettings { settle_delay: Duration::ZERO, ..settings("first") };

        let _process = app.start_with(at_once);
        wait_until("a look is asked for", async || app.enqueued_syncs(Lane::Normal).await == 1).await;

        app.db.run("delete from jobs").await;
        app.hub.answer(&mailbox, Err(ConnectorError::Unavailable("gone".into())));
        wait_until("a look is asked for when it listens again", async || app.enqueued_syncs(Lane::Normal).await == 1)
            .await;
        assert_eq!(app.hub.calls(), 2);
        app.leaves_jobs(&["sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn refused_credentials_enqueue_one_sync() {
    on_each_database(|db| async move {
        let app = ListenerApp::new(db).await;
        let mailboxes = app.mailboxes(2).await;
        let _process = app.start("first");
        wait_until("all are listened to", async || app.hub.listening() == 2).await;

        app.hub.answer(&mailboxes[0], Err(ConnectorError::Unauthorized("the password is wrong".into())));
        wait_until("a look is asked for", async || app.enqueued_syncs(Lane::High).await == 1).await;
        // Others go on meanwhile, as often as they like.
        for n in 3..6 {
            app.hub.answer(&mailboxes[1], Ok(false));
            wait_until("another is listened to once more", async || app.hub.calls() == n && app.hub.listening() == 1)
                .await;
        }
        assert_eq!(app.enqueued_syncs(Lane::High).await, 1);
        app.leaves_jobs(&["sync_mailbox"]);
        app.finish().await;
    })
    .await;
}
