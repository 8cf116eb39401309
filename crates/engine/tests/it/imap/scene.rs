//! A mailbox at a real server, synced by the engine into a database of its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use connectors::imap::Imap;
use domain::{Connector, JobState, MailboxId, PlanTier, Provider, Secret, SystemClock, TenantId};
use engine::Engine;
use engine::calls::Calls;
use engine::mailboxes::{Backfill, Connect};
use engine::sync::{SyncMailbox, SyncSettings, Syncer, only_one};
use jobs::{Kinds, SystemDice, Worker, new_job};
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::jobs::JobFilter;
use store::testing::{TestDatabase, migrated_sqlite};

use super::proxy::{Proxy, Rewrite, without_modseq, without_qresync};
use super::server::{Owner, Thing, port};
use crate::bench::{Bench, worker_settings};

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(30);

pub struct Scene {
    pub db: TestDatabase,
    pub owner: Owner,
    pub proxy: Proxy,
    pub store: TenantStore,
    engine: Engine,
    syncer: Syncer,
    mailbox: Option<MailboxId>,
    folder: tempfile::TempDir,
}

/// What a server may and may not offer.
const MODES: [(&str, &[Rewrite]); 3] =
    [("QRESYNC", &[]), ("CONDSTORE", &[without_qresync]), ("neither", &[without_modseq])];

/// The same with a server that tells everything, one that does not tell what disappears, and one that tells no changes.
pub async fn with_each_server(test: impl AsyncFn(&mut Scene)) {
    for (name, rewrites) in MODES {
        let mut scene = Scene::new(rewrites.to_vec()).await;
        let outcome = std::panic::AssertUnwindSafe(test(&mut scene));
        let outcome = futures_util::FutureExt::catch_unwind(outcome).await;
        assert!(outcome.is_ok(), "with a server that offers {name}");
    }
}

impl Scene {
    pub async fn new(rewrites: Vec<Rewrite>) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let user = format!("e{}-{}", TenantId::new(&SystemClock), LAST.fetch_add(1, Ordering::SeqCst));
        let owner = Owner::new(&user).await;
        let proxy = Proxy::start(port(), rewrites).await;
        let folder = tempfile::tempdir().unwrap();
        let db = migrated_sqlite(folder.path()).await;
        let tenant = db.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
        let engine = Bench::engine(&db.store, folder.path());
        let connectors: HashMap<Provider, Arc<dyn Connector>> =
            HashMap::from([(Provider::Imap, Arc::new(Imap::default()) as _)]);
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let syncer = Syncer::new(engine.clone(), settings, connectors, Calls::default());
        let store = db.store.tenant(tenant.id);
        Self { db, owner, proxy, store, engine, syncer, mailbox: None, folder }
    }

    pub async fn connect(&mut self, backfill: Backfill) {
        self.connect_with(backfill, json!({})).await;
    }

    pub async fn connect_with(&mut self, backfill: Backfill, settings: Value) {
        self.add(backfill, settings).await;
        self.sync().await;
    }

    /// Connected, and nothing is done about it yet.
    pub async fn add(&mut self, backfill: Backfill, mut settings: Value) {
        settings["connection"] =
            json!({"host": "127.0.0.1", "port": self.proxy.port, "tls": "none", "user": self.owner.user});
        let connect = Connect {
            provider: Provider::Imap,
            address: format!("{}@acme.test", self.owner.user),
            settings,
            secret: Some(Secret::new("pw".to_owned())),
            backfill,
        };
        self.mailbox = self.engine.connect(self.store.id, connect).await.unwrap();
    }

    /// Asks for a sync and works until nothing is left to do.
    pub async fn sync(&self) {
        let worker = self.begin().await;
        self.until_idle().await;
        worker.shut_down().await;
        let dead = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        let dead = self.db.store.system().list_jobs(&dead, None, 10).await.unwrap();
        assert!(dead.is_empty(), "{dead:?}");
    }

    /// Until nothing is left to do.
    pub async fn until_idle(&self) {
        self.until("jobs", 0).await;
    }

    /// Until there are so many rows.
    pub async fn until(&self, from: &str, rows: usize) {
        let reached = async {
            while self.count(from).await != rows {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, reached).await.is_err() {
            let left = self
                .db
                .rows("select j.kind, j.state, j.token, a.message from jobs j left join job_attempts a on a.job_id = j.id")
                .await;
            panic!("never {rows} of {from}: {left:?}");
        }
    }

    pub async fn begin(&self) -> Worker {
        let mailbox = self.mailbox.unwrap();
        let job = new_job(&SyncMailbox { mailbox }, &SystemClock, None).unwrap();
        let mut unit = self.store.write();
        unit.enqueue(vec![only_one(job, mailbox)]);
        unit.commit().await.unwrap();
        let kinds = self.syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with);
        let kinds = kinds.with(self.syncer.fetch_kind());
        Worker::start(self.db.store.clone(), kinds, worker_settings(), Arc::new(SystemDice))
    }

    /// What is stored and not deleted.
    pub async fn stored(&self) -> BTreeSet<Thing> {
        let sql = "select f.name, p.provider_uid, cast(p.flags as text), e.raw_blob_sha256
                   from placements p join emails e on e.id = p.email_id and e.deleted_at is null
                   join folders f on f.id = p.folder_id and f.gone_at is null
                   where p.is_live";
        let thing = |row: &store::Row| {
            let flags: Vec<String> = serde_json::from_str(&row.get::<String>(2).unwrap()).unwrap();
            (row.get(0).unwrap(), row.get(1).unwrap(), flags.join(" "), row.get(3).unwrap())
        };
        self.db.rows(sql).await.iter().map(thing).collect()
    }

    /// What is stored is what the server has, but for folders that nobody asked for.
    pub async fn assert_equal(&self) {
        self.assert_equal_in(|name| !["Drafts", "Junk", "Trash"].contains(&name)).await;
    }

    pub async fn assert_equal_in(&self, is_wanted: impl Fn(&str) -> bool) {
        let (stored, truth) = (self.stored().await, self.owner.truth(is_wanted).await);
        let missing: Vec<_> = truth.difference(&stored).take(5).collect();
        let wrong: Vec<_> = stored.difference(&truth).take(5).collect();
        assert!(missing.is_empty() && wrong.is_empty(), "missing {missing:#?}\nwrong {wrong:#?}");
        let unfinished = self.db.rows("select state from ledger where state not in ('processed', 'gone')").await;
        assert!(unfinished.is_empty(), "{unfinished:?}");
        let live = self.db.rows("select 1 from emails where deleted_at is null").await.len();
        let hashes: BTreeSet<&String> = truth.iter().map(|(_, _, _, hash)| hash).collect();
        assert_eq!(live, hashes.len(), "emails, one for each content");
    }

    /// Where the folder of the blobs was, nothing can be written.
    pub fn take_blobs_away(&self) {
        let blobs = self.folder.path().join("blobs");
        std::fs::rename(&blobs, self.folder.path().join("away")).unwrap();
        std::fs::write(&blobs, "").unwrap();
    }

    pub fn bring_blobs_back(&self) {
        let blobs = self.folder.path().join("blobs");
        std::fs::remove_file(&blobs).unwrap();
        std::fs::rename(self.folder.path().join("away"), blobs).unwrap();
    }

    pub async fn folder_ids(&self) -> Vec<(String, String)> {
        let rows = self.db.rows("select name, id from folders where gone_at is null order by name").await;
        rows.iter().map(|row| (row.get(0).unwrap(), row.get(1).unwrap())).collect()
    }

    pub async fn count(&self, from: &str) -> usize {
        self.db.rows(&format!("select 1 from {from}")).await.len()
    }
}

pub fn letter(subject: &str) -> String {
    format!(
        "From: ann@acme.test\nTo: bob@acme.test\nSubject: {subject}\nMessage-ID: <{subject}@acme.test>\n\nHello {subject}\n"
    )
}
