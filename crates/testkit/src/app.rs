//! The whole application in the test's own process, over a real database.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response};
use content::spool::Spool;
use domain::{
    Backfill, Connector, Flags, JobState, MailboxId, MailboxSettings, MailboxState, MessageLimits, PlanTier, Provider,
    Secret, TenantId,
};
use engine::archive::ingest::{IncomingMessage, IngestReport, MessageSource};
use engine::credentials::secrets::KeySource;
use engine::jobs::RetentionPeriods;
use engine::operations::mailboxes::ConnectRequest;
use engine::sync::{ListHistory, ListMailbox, RemoveMissing, SyncMailbox, SyncSettings, Syncer};
use engine::{Cpu, Engine, StorageHealth, Vault};
use jiff::SignedDuration;
use jobs::{Job, JobKind, JobKinds, SystemRandom, Worker, new_job};
use outbound::Gateway;
use serde_json::Value;
use store::blobs::Blobs;
use store::sql::jobs::{JobFilter, JobRetention};
use store::sql::mailboxes::{Mailbox, NewMailbox};
use store::sql::sync::SyncState;
use store::testing::{TestDatabase, on_each_database, run_sql, wait_until};
use store::{Dialect, Location, Store, TenantStore};
use tokio::sync::OnceCell;

use crate::clock::OffsetClock;
use crate::http::{HttpOptions, HttpReply, InProcessServer, request};
use crate::mailbox_operations::MailboxOperations;
use crate::scripted::ScriptedConnector;

/// The address of the mailbox of tests that have one.
pub const ADDRESS: &str = "me@acme.test";

/// A retry that is due within this is waited for; one that was put off for longer is left alone.
const RETRY_HORIZON: Duration = Duration::from_secs(30);

const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// What a test chooses about its application.
#[derive(Debug, Default)]
pub struct AppOptions {
    connectors: Vec<Arc<dyn Connector>>,
    scripted: Vec<Arc<ScriptedConnector>>,
    calls: Gateway,
    limits: MessageLimits,
    http: HttpOptions,
    remote_slots: Option<usize>,
    retry_horizon: Option<Duration>,
}

impl AppOptions {
    /// Answers for the provider that the connector names.
    pub fn connector(mut self, connector: Arc<dyn Connector>) -> Self {
        self.connectors.push(connector);
        self
    }

    /// The same; and calls without a script, and queued replies that nobody asked for, fail the test when it finishes.
    pub fn scripted(mut self, connector: &Arc<ScriptedConnector>) -> Self {
        self.scripted.push(connector.clone());
        self.connector(connector.clone())
    }

    pub fn calls(mut self, calls: Gateway) -> Self {
        self.calls = calls;
        self
    }

    pub fn limits(mut self, limits: MessageLimits) -> Self {
        self.limits = limits;
        self
    }

    pub fn http(mut self, http: HttpOptions) -> Self {
        self.http = http;
        self
    }

    /// Jobs that may wait for providers at the same time.
    pub fn remote_slots(mut self, slots: usize) -> Self {
        self.remote_slots = Some(slots);
        self
    }

    /// Retries that are due within this are waited for by [`TestApp::run_jobs_until_idle`].
    pub fn retry_horizon(mut self, horizon: Duration) -> Self {
        self.retry_horizon = Some(horizon);
        self
    }
}

/// The application over a database of its own. Ended by [`TestApp::finish`], which fails the test if work is left over.
#[derive(Debug)]
pub struct TestApp {
    pub db: TestDatabase,
    pub engine: Engine,
    pub syncer: Syncer,
    pub clock: Arc<OffsetClock>,
    pub folder: tempfile::TempDir,
    scripted: Mutex<Vec<Arc<ScriptedConnector>>>,
    worker_settings: jobs::WorkerSettings,
    retry_horizon: Duration,
    http: HttpOptions,
    server: OnceCell<InProcessServer>,
    expected_dead_letters: AtomicUsize,
    expected_jobs: Mutex<BTreeSet<String>>,
    possible_jobs: Mutex<BTreeSet<String>>,
    is_finished: AtomicBool,
    operator_key: Mutex<Option<String>>,
}

impl Drop for TestApp {
    fn drop(&mut self) {
        if !self.is_finished.load(Ordering::Relaxed) && !std::thread::panicking() {
            panic!("a test ends its TestApp with finish().await");
        }
    }
}

/// Runs the test on SQLite and on PostgreSQL, each time with a fresh application without connectors, and finishes it.
pub async fn on_each_app(test: impl AsyncFn(&mut TestApp)) {
    on_each_app_with(AppOptions::default, test).await;
}

/// The same with options, which are made anew for each application.
pub async fn on_each_app_with(options: impl Fn() -> AppOptions, test: impl AsyncFn(&mut TestApp)) {
    let (options, test) = (&options, &test);
    on_each_database(|db| async move {
        let mut app = TestApp::new(db, options());
        test(&mut app).await;
        app.finish().await;
    })
    .await;
}

/// An engine whose blobs, spool and master key are in this folder.
pub fn engine(store: &Store, folder: &Path) -> Engine {
    Engine {
        store: store.clone(),
        blobs: Blobs::local(&folder.join("blobs")).unwrap(),
        vault: Vault::new(store.clone(), KeySource::File(folder.join("master.key"))),
        limits: MessageLimits::default(),
        spool: Spool::new(&folder.join("spool")),
        cpu: Cpu::all_cores(),
        storage: StorageHealth::default(),
        max_database_wait: Duration::ZERO,
    }
}

/// For a worker that lives as long as a test.
pub fn worker_settings() -> jobs::WorkerSettings {
    jobs::WorkerSettings {
        name: "test".into(),
        lease: Duration::from_secs(10),
        poll: Duration::from_millis(50),
        io_slots: 4,
        cpu_slots: 1,
        remote_slots: 4,
        grace: Duration::from_secs(10),
    }
}

/// A syncer that holds leases for a minute under the name `test`.
pub fn syncer(engine: &Engine, connectors: impl IntoIterator<Item = Arc<dyn Connector>>, calls: Gateway) -> Syncer {
    let settings = SyncSettings {
        holder: "test".into(),
        lease: Duration::from_secs(60),
        duplicate_check: true,
        second_look: Duration::ZERO,
    };
    let connectors: HashMap<Provider, Arc<dyn Connector>> =
        connectors.into_iter().map(|connector| (connector.provider(), connector)).collect();
    Syncer::new(engine.clone(), settings, connectors, calls)
}

/// Returns the kinds that list mailboxes, and none that fetches.
pub fn listing_kinds(syncer: &Syncer) -> JobKinds {
    JobKinds::default()
        .with(JobKind::of::<SyncMailbox>(syncer.clone()))
        .with(JobKind::of::<ListHistory>(syncer.clone()))
        .with(JobKind::of::<ListMailbox>(syncer.clone()))
        .with(JobKind::of::<RemoveMissing>(syncer.clone()))
}

/// All kinds of jobs; what they prune, they prune after a week.
pub fn all_kinds(syncer: &Syncer) -> JobKinds {
    let keep = RetentionPeriods {
        jobs: JobRetention { finished: WEEK, dead: WEEK },
        events: SignedDuration::MAX,
        deliveries: WEEK,
        blobs: SignedDuration::MAX,
    };
    engine::jobs::kinds(syncer, keep)
}

impl TestApp {
    pub fn new(db: TestDatabase, options: AppOptions) -> Self {
        let clock = Arc::new(OffsetClock::default());
        let store = Store::open(&db.location, clock.clone()).unwrap();
        let db = TestDatabase { store, location: db.location.clone() };
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine { limits: options.limits, ..engine(&db.store, folder.path()) };
        let syncer = syncer(&engine, options.connectors, options.calls);
        let settings = worker_settings();
        let remote_slots = options.remote_slots.unwrap_or(settings.remote_slots);
        Self {
            db,
            engine,
            syncer,
            clock,
            folder,
            scripted: Mutex::new(options.scripted),
            worker_settings: jobs::WorkerSettings { remote_slots, ..settings },
            retry_horizon: options.retry_horizon.unwrap_or(RETRY_HORIZON),
            http: options.http,
            server: OnceCell::new(),
            expected_dead_letters: AtomicUsize::new(0),
            expected_jobs: Mutex::default(),
            possible_jobs: Mutex::default(),
            is_finished: AtomicBool::new(false),
            operator_key: Mutex::default(),
        }
    }

    /// Checks this connector, too, when the test finishes: one of another process over the same database.
    pub fn check_scripted(&self, connector: &Arc<ScriptedConnector>) {
        self.scripted.lock().unwrap().push(connector.clone());
    }

    pub fn store(&self) -> &Store {
        &self.db.store
    }

    /// Moves the time of this process and of its database forward.
    pub async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        let Location::Postgres { url, .. } = &self.db.location else { return };
        let name = url.rsplit('/').next().unwrap();
        let milliseconds = self.clock.offset().as_millis();
        // Sessions keep the setting that they began with, so they begin anew.
        let sql = format!(
            "alter database {name} set mailroom.clock_offset = '{milliseconds} milliseconds';
             select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}' and pid <> pg_backend_pid()"
        );
        run_sql(url, &sql).await.unwrap();
    }
}

/// Tenants, keys and mailboxes.
impl TestApp {
    pub async fn create_tenant(&self, name: &str) -> TenantStore {
        let tenant = self.db.store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap();
        self.db.store.tenant(tenant.id)
    }

    /// A key of this tenant, such as `create_key(&acme, &["read"])`.
    pub async fn create_key(&self, tenant: &TenantStore, scopes: &[&str]) -> String {
        let is_known = |scope: &&str| engine::credentials::api_keys::SCOPES.contains(scope);
        assert!(scopes.iter().all(is_known), "a scope is not known: {scopes:?}");
        let scopes: Vec<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let (_, key) = engine::credentials::api_keys::create(tenant, "test", &scopes, None).await.unwrap();
        key.expose().clone()
    }

    pub async fn operator_key(&self) -> String {
        if let Some(key) = &*self.operator_key.lock().unwrap() {
            return key.clone();
        }
        let file = self.folder.path().join("operator.key");
        engine::credentials::api_keys::ensure_operator_key(&self.db.store, &file).await.unwrap();
        let key = std::fs::read_to_string(file).unwrap().trim().to_owned();
        *self.operator_key.lock().unwrap() = Some(key.clone());
        key
    }

    /// A mailbox as it is before the first look at it, for which no job is enqueued.
    pub async fn add_mailbox(&self, tenant: &TenantStore, provider: Provider, address: &str) -> MailboxId {
        let id = MailboxId::new(self.db.store.clock());
        let mut unit = tenant.write();
        unit.add_mailbox(NewMailbox {
            id,
            provider,
            address: address.to_owned(),
            settings: MailboxSettings::default(),
            secret_ref: None,
            since: None,
        });
        unit.commit().await.unwrap();
        id
    }

    /// A mailbox that its owner has connected; the first look at it is enqueued.
    pub async fn connect(
        &self,
        tenant: &TenantStore,
        provider: Provider,
        address: &str,
        secret: Option<&str>,
        backfill: Backfill,
    ) -> MailboxId {
        let connect = ConnectRequest {
            provider,
            address: address.to_owned(),
            settings: MailboxSettings::default(),
            secret: secret.map(|secret| Secret::new(secret.to_owned())),
            backfill,
        };
        self.engine.connect(tenant.id, connect).await.unwrap().unwrap()
    }

    pub async fn mailbox(&self, tenant: &TenantStore, address: &str) -> Mailbox {
        tenant.find_mailbox(address).await.unwrap().unwrap_or_else(|| panic!("there is no mailbox {address}"))
    }

    pub async fn mailbox_state(&self, tenant: &TenantStore, mailbox: MailboxId) -> MailboxState {
        self.mailbox(tenant, &mailbox.to_string()).await.state
    }

    pub async fn sync_state(&self, tenant: &TenantStore, mailbox: MailboxId) -> SyncState {
        tenant.find_sync_state(mailbox).await.unwrap().unwrap()
    }

    /// Puts messages into a folder of a mailbox of files, as an import does.
    pub async fn import(
        &self,
        tenant: &TenantStore,
        address: &str,
        folder: &str,
        messages: impl IntoIterator<Item = impl Into<Vec<u8>>>,
    ) -> IngestReport {
        let mailbox = Arc::new(tenant.ensure_files_mailbox(address).await.unwrap());
        let folder = tenant.ensure_folders(mailbox.id, &[folder.to_owned()]).await.unwrap()[folder];
        let messages = messages.into_iter().enumerate().map(|(n, raw)| IncomingMessage {
            raw: raw.into().into(),
            source: MessageSource::File { folder, flags: Flags::default() },
            received_at: None,
            origin: format!("{n}.eml"),
        });
        ingest(&self.engine, &mailbox, messages).await
    }
}

/// Messages of one batch of an import, roughly.
const IMPORT_BATCH_MESSAGES: usize = 250;

/// Prepares and commits messages in batches.
pub async fn ingest(
    engine: &Engine,
    mailbox: &Arc<Mailbox>,
    messages: impl IntoIterator<Item = IncomingMessage>,
) -> IngestReport {
    let mut messages = messages.into_iter().peekable();
    let mut total = IngestReport::default();
    while messages.peek().is_some() {
        let batch = messages.by_ref().take(IMPORT_BATCH_MESSAGES).collect();
        let prepared = engine.prepare(mailbox.clone(), batch).await.unwrap();
        total.add(engine.commit(mailbox, prepared).await.unwrap());
    }
    total
}

/// Jobs.
impl TestApp {
    pub async fn enqueue<J: Job>(&self, tenant: TenantId, job: &J) {
        let mut unit = self.db.store.system().write_for(tenant);
        unit.enqueue(vec![new_job(job, self.db.store.clock(), None).unwrap()]);
        unit.commit().await.unwrap();
    }

    /// Enqueues a sync of the mailbox, unless one waits already.
    pub async fn enqueue_sync(&self, tenant: &TenantStore, mailbox: MailboxId) {
        let mut unit = tenant.write();
        unit.enqueue(vec![SyncMailbox::request(self.db.store.clock(), mailbox).unwrap()]);
        unit.commit().await.unwrap();
    }

    /// Syncs the mailbox and works until nothing is left to do.
    pub async fn sync(&self, tenant: &TenantStore, mailbox: MailboxId) {
        self.enqueue_sync(tenant, mailbox).await;
        self.run_jobs_until_idle().await;
    }

    /// A worker for all kinds of jobs.
    pub fn start_worker(&self) -> Worker {
        self.start_worker_with(all_kinds(&self.syncer), self.worker_settings.clone())
    }

    pub fn start_worker_with(&self, kinds: JobKinds, settings: jobs::WorkerSettings) -> Worker {
        Worker::start(self.db.store.clone(), kinds, settings, Arc::new(SystemRandom))
    }

    /// Works until no job is ready, runs or is retried soon. Jobs that are scheduled for later stay.
    pub async fn run_jobs_until_idle(&self) {
        let worker = self.start_worker();
        self.wait_until_idle().await;
        worker.shut_down().await;
    }

    /// Waits until no job is ready, runs or is retried soon.
    pub async fn wait_until_idle(&self) {
        let seconds = self.retry_horizon.as_secs();
        let soon = match self.db.store.dialect() {
            Dialect::Postgres => format!("mailroom_now() + interval '{seconds} seconds'"),
            Dialect::Sqlite => format!("strftime('%Y-%m-%dT%H:%M:%fZ', mailroom_now(), '{seconds} seconds')"),
        };
        let left = format!(
            "select 1 from jobs where parked_on is null and state <> 'scheduled' and (state <> 'retry' or run_at < (select {soon}))"
        );
        wait_until("no job is left to do", async || self.db.rows(&left).await.is_empty()).await;
    }

    /// Makes jobs ready that wait for their next attempt.
    pub async fn make_retries_ready(&self) {
        self.db.run("update jobs set state = 'ready', run_at = mailroom_now() where state = 'retry'").await;
    }

    /// The test ends with so many dead letters, and not with none.
    pub fn expect_dead_letters(&self, count: usize) {
        self.expected_dead_letters.store(count, Ordering::Relaxed);
    }

    /// The test ends with jobs of exactly these kinds left to do, however many of each, and not with none.
    pub fn leaves_jobs(&self, kinds: &[&str]) {
        *self.expected_jobs.lock().unwrap() = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    }

    /// Besides, jobs of these kinds may be left or not: where that differs from one database or run to another.
    pub fn may_leave_jobs(&self, kinds: &[&str]) {
        *self.possible_jobs.lock().unwrap() = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    }

    /// Fails the test if other kinds of jobs are ready, run or wait for a retry, or if there are other dead letters, than
    /// expected; if a scripted connector was asked for what it has no script for, or never for what is queued.
    pub async fn finish(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
        let dead = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        let dead = self.db.store.system().list_jobs(&dead, None, 1000).await.unwrap();
        assert_eq!(dead.len(), self.expected_dead_letters.load(Ordering::Relaxed), "dead letters: {dead:?}");
        let scripted = self.scripted.lock().unwrap().clone();
        for connector in scripted {
            assert_eq!(connector.refusals(), [], "calls without a script");
            assert_eq!(connector.queued_replies(), [], "replies that nobody asked for");
        }
        let left = self.db.rows("select kind from jobs where state <> 'scheduled'").await;
        let mut left: BTreeSet<String> = left.iter().map(|row| text(row, 0)).collect();
        left.retain(|kind| !self.possible_jobs.lock().unwrap().contains(kind));
        let expected = self.expected_jobs.lock().unwrap().clone();
        assert_eq!(left, expected, "other jobs are left than expected");
    }
}

/// What is stored.
impl TestApp {
    /// Rows of a table, or of `table where …`.
    pub async fn count(&self, from: &str) -> usize {
        self.db.rows(&format!("select 1 from {from}")).await.len()
    }

    /// A line for each place of each email of this tenant that is not deleted: provider's message, folder, flags and
    /// hash of its bytes. A simulated provider tells its truth in the same lines.
    pub async fn stored_messages(&self, tenant: &TenantStore) -> BTreeSet<String> {
        let hash = match self.db.store.dialect() {
            Dialect::Sqlite => "e.raw_sha256",
            Dialect::Postgres => "encode(e.raw_sha256, 'hex')",
        };
        let sql = format!(
            "select p.provider_message_id, f.provider_folder_id, cast(p.flags as text), {hash}
             from placements p join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id and f.gone_at is null
             join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id and e.deleted_at is null
             where p.is_live and cast(p.tenant_id as text) = '{}'",
            tenant.id
        );
        let rows = self.db.rows(&sql).await;
        rows.iter()
            .map(|row| message_line(&text(row, 0), &text(row, 1), &flags(&text(row, 2)), &text(row, 3)))
            .collect()
    }

    /// Subject of each email that is not deleted, with its folder and flags, such as `("one", "INBOX[]")`.
    pub async fn stored_emails(&self) -> Vec<(String, String)> {
        let rows = self
            .db
            .rows(
                "select e.subject, f.name, cast(p.flags as text) from emails e
                 join placements p on p.tenant_id = e.tenant_id and p.email_id = e.id and p.is_live
                 join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
                 where e.deleted_at is null order by 1, 2, 3",
            )
            .await;
        rows.iter().map(|row| (text(row, 0), format!("{}{}", text(row, 1), text(row, 2)))).collect()
    }

    /// The provider's id of each message, with its state.
    pub async fn ledger(&self) -> Vec<(String, String)> {
        let rows = self.db.rows("select provider_message_id, state from ledger order by 1").await;
        rows.iter().map(|row| (text(row, 0), text(row, 1))).collect()
    }

    /// Types of the tenant's events after this one, which moves on; panics if their numbers have a gap.
    pub async fn events(&self, tenant: &TenantStore, after: &mut u64) -> Vec<String> {
        let events = tenant.list_events(*after, 1000).await.unwrap();
        for (n, event) in events.iter().enumerate() {
            assert_eq!(event.seq, *after + n as u64 + 1, "there is a gap");
        }
        *after += events.len() as u64;
        events.into_iter().map(|event| event.kind).collect()
    }
}

/// The line that [`TestApp::stored_messages`] has for a message in a folder.
pub fn message_line(message: &str, folder: &str, flags: &[String], sha256: &str) -> String {
    format!("{message} in {folder} {flags:?} {sha256}")
}

fn text(row: &store::Row, column: usize) -> String {
    row.get(column).unwrap()
}

fn flags(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap()
}

/// HTTP.
impl TestApp {
    async fn server(&self) -> &InProcessServer {
        self.server.get_or_init(async || InProcessServer::start(&self.engine, &self.http)).await
    }

    /// Sends a request with a key and a body of JSON, where there are any.
    pub async fn request(&self, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> HttpReply {
        self.send(request(method, path, key, body)).await
    }

    /// The same with more headers.
    pub async fn request_with(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
        headers: &[(&'static str, &str)],
    ) -> HttpReply {
        let mut request = request(method, path, key, body);
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        self.send(request).await
    }

    pub async fn get(&self, path: &str, key: &str) -> HttpReply {
        self.request("GET", path, Some(key), None).await
    }

    pub async fn post(&self, path: &str, key: &str, body: &Value) -> HttpReply {
        self.request("POST", path, Some(key), Some(body)).await
    }

    pub async fn put(&self, path: &str, key: &str, body: &Value) -> HttpReply {
        self.request("PUT", path, Some(key), Some(body)).await
    }

    pub async fn patch(&self, path: &str, key: &str, body: &Value) -> HttpReply {
        self.request("PATCH", path, Some(key), Some(body)).await
    }

    pub async fn delete(&self, path: &str, key: &str) -> HttpReply {
        self.request("DELETE", path, Some(key), None).await
    }

    pub async fn send(&self, request: Request<Body>) -> HttpReply {
        self.server().await.send(request).await
    }

    /// The head of the answer, and a body that is read as it comes: for event streams and downloads.
    pub async fn open(&self, request: Request<Body>) -> Response<Body> {
        self.server().await.open(request).await
    }
}
