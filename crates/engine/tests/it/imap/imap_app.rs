//! A mailbox at a real server, synced by the engine into a database of its own.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::{Backfill, MailboxId, Provider, Secret, SystemClock, TenantId};
use engine::operations::mailboxes::ConnectRequest;
use engine::sync::SyncSettings;
use jobs::Worker;
use providers::imap::Imap;
use serde_json::{Value, json};
use store::TenantStore;
use store::testing::migrated_sqlite;
use testkit::MailboxOperations;
use testkit::{AppOptions, TestApp, wait_until};

use super::proxy::{Proxy, Rewrite, without_modseq, without_qresync};
use super::server::{Owner, Thing, port};

/// An application with one account at a real server.
pub struct ImapApp {
    app: TestApp,
    pub owner: Owner,
    pub proxy: Proxy,
    pub store: TenantStore,
    mailbox: Option<MailboxId>,
    _database: tempfile::TempDir,
}

impl Deref for ImapApp {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

/// What a server may and may not offer.
const MODES: [(&str, &[Rewrite]); 3] =
    [("QRESYNC", &[]), ("CONDSTORE", &[without_qresync]), ("neither", &[without_modseq])];

/// The same with a server that tells everything, one that does not tell what disappears, and one that tells no changes.
pub async fn with_each_server(test: impl AsyncFn(&mut ImapApp)) {
    for (name, rewrites) in MODES {
        let mut app = ImapApp::new(rewrites.to_vec()).await;
        let outcome = std::panic::AssertUnwindSafe(test(&mut app));
        let outcome = futures_util::FutureExt::catch_unwind(outcome).await;
        assert!(outcome.is_ok(), "with a server that offers {name}");
        app.finish().await;
    }
}

impl ImapApp {
    pub async fn new(rewrites: Vec<Rewrite>) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let user = format!("e{}-{}", TenantId::new(&SystemClock), LAST.fetch_add(1, Ordering::SeqCst));
        let owner = Owner::new(&user).await;
        let proxy = Proxy::start(port(), rewrites).await;
        let folder = tempfile::tempdir().unwrap();
        let options = AppOptions::default().connector(Arc::new(Imap::default()));
        let app = TestApp::new(migrated_sqlite(folder.path()).await, options);
        let store = app.create_tenant("acme").await;
        Self { app, owner, proxy, store, mailbox: None, _database: folder }
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
        let connect = ConnectRequest {
            provider: Provider::Imap,
            address: format!("{}@acme.test", self.owner.user),
            settings: settings.into(),
            secret: Some(Secret::new("pw".to_owned())),
            backfill,
        };
        self.mailbox = self.app.engine.connect(self.store.id, connect).await.unwrap();
    }

    /// Syncs the mailbox and works until no job is left.
    pub async fn sync(&self) {
        let worker = self.begin().await;
        self.until_idle().await;
        worker.shut_down().await;
        assert_eq!(self.db.store.system().count_dead_letters().await.unwrap(), 0);
    }

    /// Nothing that is missing is confirmed within this test.
    pub fn confirms_nothing(&mut self) {
        let settings = SyncSettings { second_look: Duration::from_secs(3600), ..(*self.app.syncer.settings).clone() };
        self.app.syncer.settings = Arc::new(settings);
    }

    /// Syncs the mailbox and works until all that is left to do is put off.
    pub async fn sync_once(&self) {
        let worker = self.begin().await;
        self.until("jobs where state <> 'retry'", 0).await;
        worker.shut_down().await;
    }

    /// Waits until no job is left.
    pub async fn until_idle(&self) {
        self.until("jobs", 0).await;
    }

    /// Waits until there are so many rows.
    pub async fn until(&self, from: &str, rows: usize) {
        wait_until(&format!("there are {rows} of {from}"), async || self.count(from).await == rows).await;
    }

    pub async fn begin(&self) -> Worker {
        self.enqueue_sync(&self.store, self.mailbox.unwrap()).await;
        self.start_worker()
    }

    /// What is stored and not deleted.
    pub async fn stored(&self) -> BTreeSet<Thing> {
        let sql = "select f.name, p.provider_uid, cast(p.flags as text), e.raw_blob_sha256
                   from placements p join emails e on e.id = p.email_id and e.deleted_at is null
                   join folders f on f.id = p.folder_id and f.gone_at is null
                   where p.is_live";
        let rows = self.db.rows(sql).await.into_iter().map(|row| {
            let flags: Vec<String> = serde_json::from_str(&row.get::<String>(2).unwrap()).unwrap();
            (row.get(0).unwrap(), row.get(1).unwrap(), flags.join(" "), row.get(3).unwrap())
        });
        rows.collect()
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
    pub fn make_blobs_unavailable(&self) {
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
}

pub fn letter(subject: &str) -> String {
    format!(
        "From: ann@acme.test\nTo: bob@acme.test\nSubject: {subject}\nMessage-ID: <{subject}@acme.test>\n\nHello {subject}\n"
    )
}
