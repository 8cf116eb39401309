//! Tokens of mailboxes, asked for by several processes at once, on both databases.

mod bank;
mod lives;
mod microsoft;
mod race;
mod unstored;

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{Account, Answer, Cursors, Grant, NoAccess, Page, Sink, Wanted};
use domain::{Connector, ConnectorError, MailboxId, PlanTier, Provider, Secret, SecretKind, SystemClock};
use engine::Engine;
use engine::calls::Calls;
use engine::jobs::{Keep, kinds};
use engine::mailboxes::{Backfill, Connect};
use engine::sync::{SyncMailbox, SyncSettings, Syncer, only_one};
use engine::tokens::{Asker, TokenSettings, Tokens};
use jiff::{SignedDuration, Timestamp};
use jobs::{SystemDice, Worker, new_job};
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::jobs::KeepFor;
use store::sql::mailboxes::Mailbox;
use store::testing::TestDatabase;

use crate::bench::{Bench, worker_settings};

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(120);

const QUICK: TokenSettings = TokenSettings { lease: Duration::from_secs(20), look: Duration::from_millis(2) };

/// For whoever waits until it runs out.
const SHORT: TokenSettings = TokenSettings { lease: Duration::from_secs(1), ..QUICK };

/// Somebody who gives tokens.
trait Giver: fmt::Debug + Send + Sync + 'static {
    const PROVIDER: Provider;

    /// What opens the mailbox at first.
    fn first_secret(&self) -> String;

    fn give<'a>(&'a self, account: &'a Account) -> Answer<'a, Grant>;

    fn take_back<'a>(&'a self, account: &'a Account) -> Answer<'a, ()>;

    /// Whether a call with it is answered.
    fn takes<'a>(&'a self, token: &'a Secret<String>) -> Answer<'a, bool>;
}

/// A provider with tokens, and without mail.
#[derive(Debug)]
struct Shop<G>(G);

impl<G> Deref for Shop<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.0
    }
}

impl<G: Giver> Connector for Shop<G> {
    fn provider(&self) -> Provider {
        G::PROVIDER
    }

    fn changes<'a>(&'a self, account: &'a Account, _: &'a Cursors) -> Answer<'a, Page> {
        Box::pin(async move {
            let token = account.access.token().await?;
            if !self.takes(&token).await? && !self.takes(&account.access.renew(&token).await?).await? {
                return Err(ConnectorError::Unauthorized("refused twice".into()));
            }
            let cursors = Cursors::from([(String::new(), "1".into())]);
            Ok(Page { is_last: true, cursors, ..Page::default() })
        })
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

    fn fetch<'a>(&'a self, _: &'a Account, _: &'a [Wanted], _: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn check<'a>(&'a self, account: &'a Account) -> Answer<'a, ()> {
        Box::pin(async move { account.access.token().await.map(drop) })
    }

    fn grant<'a>(&'a self, account: &'a Account) -> Option<Answer<'a, Grant>> {
        Some(self.give(account))
    }

    fn revoke<'a>(&'a self, account: &'a Account) -> Option<Answer<'a, ()>> {
        Some(self.take_back(account))
    }
}

struct Scene<G> {
    engine: Engine,
    store: TenantStore,
    bank: Arc<Shop<G>>,
    settings: TokenSettings,
    folder: tempfile::TempDir,
}

impl<G: Giver> Scene<G> {
    async fn new(db: &TestDatabase, giver: G) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Bench::engine(&db.store, folder.path());
        let tenant = engine.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
        let store = engine.store.tenant(tenant.id);
        Self { engine, store, bank: Arc::new(Shop(giver)), settings: QUICK, folder }
    }

    async fn connect(&self, address: &str) -> MailboxId {
        self.connect_as(address, json!({}), Some(Secret::new(self.bank.first_secret()))).await
    }

    async fn connect_as(&self, address: &str, connection: Value, secret: Option<Secret<String>>) -> MailboxId {
        let connect = Connect {
            provider: G::PROVIDER,
            address: address.into(),
            settings: json!({"connection": connection}),
            secret,
            backfill: Backfill::None,
        };
        self.engine.connect(self.store.id, connect).await.unwrap().unwrap()
    }

    async fn mailbox(&self, id: MailboxId) -> Mailbox {
        self.store.find_mailbox(&id.to_string()).await.unwrap().unwrap()
    }

    /// Another process, with connections and memory of its own.
    fn instance(&self, db: &TestDatabase, name: &str, settings: TokenSettings) -> Tokens {
        Tokens::new(Bench::engine(&db.second_store(), self.folder.path()), name, settings)
    }

    fn asker(&self, mailbox: MailboxId) -> Asker {
        let account = Account {
            tenant: self.store.id,
            mailbox,
            address: "me@acme.test".into(),
            settings: "{}".into(),
            secret: Some(Secret::new(self.bank.first_secret())),
            folders: Vec::new(),
            sweep_since: None,
            access: Arc::new(NoAccess),
        };
        Asker { connector: self.bank.clone(), account }
    }

    fn syncer(&self) -> Syncer {
        let connectors: HashMap<Provider, Arc<dyn Connector>> = HashMap::from([(G::PROVIDER, self.bank.clone() as _)]);
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        Syncer::new(self.engine.clone(), settings, connectors, Calls::default()).with_tokens(self.settings)
    }

    async fn ask_to_sync(&self, mailboxes: &[MailboxId]) {
        let mut unit = self.store.write();
        for mailbox in mailboxes {
            let job = new_job(&SyncMailbox { mailbox: *mailbox }, &SystemClock, None).unwrap();
            unit.enqueue(vec![only_one(job, *mailbox)]);
        }
        unit.commit().await.unwrap();
    }

    /// Works until nothing is left that is to be done soon.
    async fn work(&self, db: &TestDatabase) {
        let forever = Duration::from_secs(86_400);
        let keep = Keep {
            jobs: KeepFor { finished: forever, dead: forever },
            events: SignedDuration::MAX,
            deliveries: forever,
            blobs: SignedDuration::MAX,
        };
        let kinds = kinds(&self.syncer(), keep);
        let worker = Worker::start(db.store.clone(), kinds, worker_settings(), Arc::new(SystemDice));
        let idle = async {
            while !db.rows("select 1 from jobs where state in ('ready', 'running')").await.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, idle).await.expect("the work ends");
        worker.shut_down().await;
    }
}

/// How many secrets of a kind there are.
async fn stored(db: &TestDatabase, kind: SecretKind) -> usize {
    db.rows(&format!("select 1 from secrets where kind = '{}'", kind.as_str())).await.len()
}
