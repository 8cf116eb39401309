//! An engine on a fresh database, with one mailbox to fill.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use content::spool::Spool;
use domain::{FolderId, Limits, PlanTier};
use engine::ingest::{Ingested, Message};
use engine::secrets::KeySource;
use engine::{Cpu, Engine, Vault};
use store::blobs::Blobs;
use store::sql::mailboxes::Mailbox;
use store::{Store, TenantStore};

/// One batch of an import, roughly.
const BATCH: usize = 250;

pub struct Bench {
    pub engine: Engine,
    pub tenant: TenantStore,
    pub mailbox: Arc<Mailbox>,
}

impl Bench {
    pub async fn new(store: Store, folder: &Path, limits: Limits) -> Self {
        let engine = Engine { limits, ..Self::engine(&store, folder) };
        let tenant = engine.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
        let tenant = engine.store.tenant(tenant.id);
        let mailbox = Arc::new(tenant.ensure_files_mailbox("me@acme.test").await.unwrap());
        Self { engine, tenant, mailbox }
    }

    pub fn engine(store: &Store, folder: &Path) -> Engine {
        Engine {
            store: store.clone(),
            blobs: Blobs::local(&folder.join("blobs")).unwrap(),
            vault: Vault::new(store.clone(), KeySource::File(folder.join("master.key"))),
            limits: Limits::default(),
            spool: Spool::new(&folder.join("spool")),
            cpu: Cpu::all_cores(),
            patience: Duration::ZERO,
        }
    }

    pub async fn folders(&self, names: &[String]) -> HashMap<String, FolderId> {
        self.tenant.ensure_folders(self.mailbox.id, names).await.unwrap()
    }

    pub async fn ingest(&self, messages: impl IntoIterator<Item = Message>) -> Ingested {
        let mut messages = messages.into_iter().peekable();
        let mut total = Ingested::default();
        while messages.peek().is_some() {
            let batch = messages.by_ref().take(BATCH).collect();
            let prepared = self.engine.prepare(self.mailbox.clone(), batch).await.unwrap();
            let ingested = self.engine.commit(&self.mailbox, prepared).await.unwrap();
            total.add(ingested);
        }
        total
    }
}

/// For a worker that lives as long as a test.
pub fn worker_settings() -> jobs::Settings {
    jobs::Settings {
        name: "test".into(),
        lease: Duration::from_secs(10),
        poll: Duration::from_millis(50),
        io_slots: 4,
        cpu_slots: 1,
        remote_slots: 4,
        grace: Duration::from_secs(10),
    }
}
