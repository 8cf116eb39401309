//! A simulated Google, and a Mailroom that has a tenant for each of its accounts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use connectors::gmail::Gmail;
use connectors::google::GoogleSettings;
use connectors::http::{Deadlines, Http};
use domain::{Clock, Connector, MailboxState, PlanTier, Provider, Secret, SystemClock};
use engine::Engine;
use engine::calls::{CallSettings, Calls};
use engine::mailboxes::{Backfill, Connect};
use engine::sync::{SyncSettings, Syncer};
use jobs::{Kinds, SystemDice, Worker};
use serde_json::json;
use sim::google::{CLIENT_ID, CLIENT_SECRET, Entry, NewAccount, Server, World};
use store::sql::mailboxes::Mailbox;
use store::sql::sync::SyncState;
use store::testing::TestDatabase;
use store::{Dialect, TenantStore};

use crate::bench::{Bench, worker_settings};

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(120);

/// Left alone for so long by what goes wrong, a job is not waited for.
const FAR: u32 = 40;

pub struct Scene {
    pub db: TestDatabase,
    pub world: Arc<World>,
    pub engine: Engine,
    pub syncer: Syncer,
    _server: Server,
    _folder: tempfile::TempDir,
}

/// An account, and the tenant that has it.
#[derive(Debug, Clone)]
pub struct Owner {
    pub address: String,
    pub store: TenantStore,
    pub mailbox: Mailbox,
}

impl Scene {
    pub async fn new(db: TestDatabase) -> Self {
        let world = Arc::new(World::new(1, 10, Arc::new(|| SystemClock.now())));
        let server = Server::start_here(Arc::clone(&world)).await.unwrap();
        let settings = settings(&server);
        let gmail = Gmail::new(Http::new(Deadlines::default()).unwrap(), &settings).unwrap();
        let connectors: HashMap<Provider, Arc<dyn Connector>> =
            HashMap::from([(Provider::Gmail, Arc::new(gmail) as _)]);
        let folder = tempfile::tempdir().unwrap();
        let engine = Bench::engine(&db.store, folder.path());
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let calls = Calls::new(CallSettings::default(), Arc::new(SystemDice), None);
        let syncer = Syncer::new(engine.clone(), settings, connectors, calls);
        Self { db, world, engine, syncer, _server: server, _folder: folder }
    }

    /// With so much mail, and its owner's consent; the first look at it is asked for.
    pub async fn connect(&self, name: &str, messages: usize) -> Owner {
        let address = format!("{name}@sim.example");
        assert!(self.world.create(&NewAccount { address: address.clone(), messages, seed: None }));
        self.connect_again(name, &address).await
    }

    /// The same account for another tenant.
    pub async fn connect_again(&self, tenant: &str, address: &str) -> Owner {
        let tenant = self.db.store.system().create_tenant(tenant, PlanTier::Standard).await.unwrap().unwrap();
        let granted = self.world.grant(address).unwrap();
        let connect = Connect {
            provider: Provider::Gmail,
            address: address.to_owned(),
            settings: json!({}),
            secret: granted.refresh_token.map(Secret::new),
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
        let mut lines = BTreeSet::new();
        for (id, message) in self.world.truth(&owner.address).unwrap().messages {
            for (place, flags) in connectors::gmail::places(&id, &message.label_ids) {
                if !["TRASH", "SPAM", "DRAFT", "CHAT"].contains(&&*place.folder) {
                    lines.insert(format!("{id} in {} {:?} {}", place.folder, flags.names(), message.sha256));
                }
            }
        }
        lines
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

    pub fn requests(&self, owner: &Owner) -> Vec<Entry> {
        let of = |entry: &Entry| entry.account == owner.address;
        self.world.request_log().into_iter().filter(of).collect()
    }
}

/// Of an app that is known there, without limits of its own.
pub fn settings(server: &Server) -> GoogleSettings {
    GoogleSettings {
        auth_url: format!("{}/o/oauth2/v2/auth", server.url()),
        token_url: format!("{}/token", server.url()),
        api_url: server.url(),
        jwks_url: format!("{}/oauth2/v3/certs", server.url()),
        client_id: Some(CLIENT_ID.to_owned()),
        client_secret: Some(Secret::new(CLIENT_SECRET.to_owned())),
        user_units_per_minute: None,
        ..GoogleSettings::default()
    }
}
