//! A simulated provider, and a Mailroom that has a tenant for each of its accounts.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use connectors::http::{Deadlines, Http};
use domain::{Connector, MailboxState, PlanTier, Provider, Secret};
use engine::Engine;
use engine::calls::{CallSettings, Calls};
use engine::mailboxes::{Backfill, Connect};
use engine::sync::{SyncSettings, Syncer};
use jobs::{Kinds, SystemDice, Worker};
use serde_json::json;
use sim::faults::Failing;
use sim::{Entry, Stage};
use store::sql::mailboxes::Mailbox;
use store::sql::sync::SyncState;
use store::testing::TestDatabase;
use store::{Dialect, TenantStore};

use crate::bench::{Bench, worker_settings};

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(600);

/// Left alone for so long by what goes wrong, a job is not waited for.
const FAR: u32 = 40;

/// A provider that is simulated.
pub trait Simulated: Deref<Target = Stage<Self::Kind>> + Send + Sync + Sized + 'static {
    /// What goes wrong there.
    type Kind: Failing + Debug;

    fn begin() -> Self;

    /// What calls it, and what has to be kept as long as it is called.
    fn serve(world: &Arc<Self>, http: Http) -> impl Future<Output = (Arc<dyn Connector>, Box<dyn Any + Send + Sync>)>;

    fn create(&self, address: &str, messages: usize) -> bool;

    /// A secret, as if its owner had consented.
    fn consent(&self, address: &str) -> Option<String>;

    /// Where each message is that is wanted, how it is marked, and its bytes.
    fn truth_of(&self, address: &str) -> BTreeSet<String>;
}

pub struct Scene<W: Simulated> {
    pub db: TestDatabase,
    pub world: Arc<W>,
    pub engine: Engine,
    pub syncer: Syncer,
    provider: Provider,
    _server: Box<dyn Any + Send + Sync>,
    _folder: tempfile::TempDir,
}

/// An account, and the tenant that has it.
#[derive(Debug, Clone)]
pub struct Owner {
    pub address: String,
    pub store: TenantStore,
    pub mailbox: Mailbox,
}

impl<W: Simulated> Scene<W> {
    pub async fn new(db: TestDatabase) -> Self {
        let world = Arc::new(W::begin());
        let (connector, server) = W::serve(&world, Http::new(Deadlines::default()).unwrap()).await;
        let provider = connector.provider();
        let connectors: HashMap<Provider, Arc<dyn Connector>> = HashMap::from([(provider, connector)]);
        let folder = tempfile::tempdir().unwrap();
        let engine = Bench::engine(&db.store, folder.path());
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let calls = Calls::new(CallSettings::default(), Arc::new(SystemDice), None);
        let syncer = Syncer::new(engine.clone(), settings, connectors, calls);
        Self { db, world, engine, syncer, provider, _server: server, _folder: folder }
    }

    /// With so much mail, and its owner's consent; the first look at it is asked for.
    pub async fn connect(&self, name: &str, messages: usize) -> Owner {
        let address = format!("{name}@sim.example");
        assert!(self.world.create(&address, messages));
        self.connect_again(name, &address).await
    }

    /// The same account for another tenant.
    pub async fn connect_again(&self, tenant: &str, address: &str) -> Owner {
        let tenant = self.db.store.system().create_tenant(tenant, PlanTier::Standard).await.unwrap().unwrap();
        let secret = self.world.consent(address).unwrap();
        let connect = Connect {
            provider: self.provider,
            address: address.to_owned(),
            settings: json!({}),
            secret: Some(Secret::new(secret)),
            backfill: Backfill::All,
        };
        self.engine.connect(tenant.id, connect).await.unwrap().unwrap();
        let store = self.db.store.tenant(tenant.id);
        let mailbox = store.find_mailbox(address).await.unwrap().unwrap();
        Owner { address: address.to_owned(), store, mailbox }
    }

    pub fn start(&self) -> Worker {
        let kinds = self.syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with);
        let kinds = kinds.with(self.syncer.fetch_kind());
        let settings = jobs::Settings { remote_slots: 32, ..worker_settings() };
        Worker::start(self.db.store.clone(), kinds, settings, Arc::new(SystemDice))
    }

    /// Works until nothing is left to do that is not put off for long.
    pub async fn settle(&self) {
        let worker = self.start();
        let far = match self.db.store.dialect() {
            Dialect::Postgres => format!("mailroom_now() + interval '{FAR} seconds'"),
            Dialect::Sqlite => format!("strftime('%Y-%m-%dT%H:%M:%fZ', mailroom_now(), '{FAR} seconds')"),
        };
        let left = format!(
            "select kind, state from jobs where kind in ('sync_mailbox', 'list_history', 'list_mailbox', 'fetch_emails')
             and (state <> 'retry' or run_at < (select {far}))"
        );
        let idle = async {
            while !self.db.rows(&left).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, idle).await.is_ok(), "{:?}", self.db.rows(&left).await);
        worker.shut_down().await;
    }

    /// Asks for a look at it, and works until that is over.
    pub async fn sync(&self, owner: &Owner) {
        self.engine.request_sync(&owner.mailbox).await.unwrap();
        self.settle().await;
    }

    /// Where each message is, how it is marked, and its bytes: as it is stored.
    pub async fn stored(&self, owner: &Owner) -> BTreeSet<String> {
        let hash = match self.db.store.dialect() {
            Dialect::Sqlite => "e.raw_sha256",
            Dialect::Postgres => "encode(e.raw_sha256, 'hex')",
        };
        let sql = format!(
            "select p.provider_message_id, f.provider_folder_id, cast(p.flags as text), {hash}
             from placements p join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id and f.gone_at is null
             join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id and e.deleted_at is null
             where p.is_live and cast(p.tenant_id as text) = '{}'",
            owner.store.id
        );
        let line = |row: &store::Row| {
            let text = |n| row.get::<String>(n).unwrap();
            let flags: Vec<String> = serde_json::from_str(&text(2)).unwrap();
            format!("{} in {} {flags:?} {}", text(0), text(1), text(3))
        };
        self.db.rows(&sql).await.iter().map(line).collect()
    }

    /// As it is, of what is wanted.
    pub fn truth(&self, owner: &Owner) -> BTreeSet<String> {
        self.world.truth_of(&owner.address)
    }

    /// What is stored is what is so.
    pub async fn assert_equal(&self, owner: &Owner) {
        let (stored, truth) = (self.stored(owner).await, self.truth(owner));
        let missing: Vec<_> = truth.difference(&stored).collect();
        let surplus: Vec<_> = stored.difference(&truth).collect();
        assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:#?}\nsurplus {surplus:#?}");
    }

    pub async fn state(&self, owner: &Owner) -> MailboxState {
        owner.store.find_mailbox(&owner.address).await.unwrap().unwrap().state
    }

    pub async fn sync_state(&self, owner: &Owner) -> SyncState {
        owner.store.find_sync(owner.mailbox.id).await.unwrap().unwrap()
    }

    pub fn requests(&self, owner: &Owner) -> Vec<Entry<<W::Kind as Failing>::Route>> {
        self.world.request_log().into_iter().filter(|entry| entry.account == owner.address).collect()
    }
}
