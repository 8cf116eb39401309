//! Tokens of mailboxes, asked for by several processes at once, on both databases.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::connector::{Account, Answer, Cursors, Grant, NoAccess, Page, Sink, Wanted};
use domain::{
    Connector, ConnectorError, MailboxId, MailboxState, PlanTier, Provider, Secret, SecretId, SecretKind, SystemClock,
};
use engine::Engine;
use engine::calls::Calls;
use engine::jobs::{Keep, kinds};
use engine::mailboxes::{Backfill, Connect};
use engine::sync::{SyncMailbox, SyncSettings, Syncer, only_one};
use engine::tokens::{Asker, TokenSettings, Tokens};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use jobs::{SystemDice, Worker, new_job};
use serde_json::json;
use store::TenantStore;
use store::failpoint::Effect;
use store::sql::jobs::KeepFor;
use store::sql::mailboxes::Mailbox;
use store::testing::{TestDatabase, migrated_sqlite, on_each_database};

use crate::alone::alone;
use crate::bench::{Bench, worker_settings};

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(120);

/// A provider with tokens.
#[derive(Debug)]
struct Bank {
    /// The refresh token that is good.
    secret: Mutex<String>,
    /// What a call for a token is told.
    refusal: Mutex<Option<ConnectorError>>,
    rotates: bool,
    /// The token that is good, by its number.
    current: AtomicU32,
    in_flight: AtomicU32,
    most_in_flight: AtomicU32,
    asked: AtomicU32,
    revoked: Mutex<Vec<String>>,
    takes: Duration,
}

impl Bank {
    fn new(takes: Duration, rotates: bool) -> Arc<Self> {
        Arc::new(Self {
            secret: Mutex::new("r0".into()),
            refusal: Mutex::default(),
            rotates,
            current: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            most_in_flight: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            revoked: Mutex::default(),
            takes,
        })
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    fn is_good(&self, token: &Secret<String>) -> bool {
        *token.expose() == format!("t{}", self.current.load(Ordering::SeqCst))
    }

    async fn give(&self, account: &Account) -> Result<Grant, ConnectorError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(self.takes).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Some(e) = self.refusal.lock().unwrap().clone() {
            return Err(e);
        }
        let mut good = self.secret.lock().unwrap();
        if account.secret.as_ref().is_none_or(|secret| *secret.expose() != *good) {
            return Err(ConnectorError::Unauthorized("invalid_grant".into()));
        }
        let number = self.current.fetch_add(1, Ordering::SeqCst) + 1;
        let secret = self.rotates.then(|| {
            *good = format!("r{number}");
            Secret::new(good.clone())
        });
        Ok(Grant { token: Secret::new(format!("t{number}")), expires_in: Duration::from_secs(3600), secret })
    }
}

impl Connector for Bank {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn changes<'a>(&'a self, account: &'a Account, _: &'a Cursors) -> Answer<'a, Page> {
        Box::pin(async move {
            let token = account.access.token().await?;
            if !self.is_good(&token) && !self.is_good(&account.access.renew(&token).await?) {
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
        Some(Box::pin(self.give(account)))
    }

    fn revoke<'a>(&'a self, account: &'a Account) -> Option<Answer<'a, ()>> {
        Some(Box::pin(async move {
            if let Some(e) = self.refusal.lock().unwrap().clone() {
                return Err(e);
            }
            let secret = account.secret.as_ref().map(|secret| secret.expose().clone());
            self.revoked.lock().unwrap().push(secret.unwrap_or_default());
            Ok(())
        }))
    }
}

struct Scene {
    engine: Engine,
    store: TenantStore,
    bank: Arc<Bank>,
    folder: tempfile::TempDir,
}

impl Scene {
    async fn new(db: &TestDatabase, bank: Arc<Bank>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Bench::engine(&db.store, folder.path());
        let tenant = engine.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
        let store = engine.store.tenant(tenant.id);
        Self { engine, store, bank, folder }
    }

    async fn connect(&self, address: &str) -> MailboxId {
        let connect = Connect {
            provider: Provider::Gmail,
            address: address.into(),
            settings: json!({}),
            secret: Some(Secret::new("r0".into())),
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
            secret: Some(Secret::new("r0".into())),
            folders: Vec::new(),
            sweep_since: None,
            access: Arc::new(NoAccess),
        };
        Asker { connector: self.bank.clone(), account }
    }

    fn syncer(&self) -> Syncer {
        let connectors: HashMap<Provider, Arc<dyn Connector>> =
            HashMap::from([(Provider::Gmail, self.bank.clone() as _)]);
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        Syncer::new(self.engine.clone(), settings, connectors, Calls::default()).with_tokens(QUICK)
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

const QUICK: TokenSettings = TokenSettings { lease: Duration::from_secs(20), look: Duration::from_millis(2) };

/// Three processes with two callers each, and a token that is refused again and again.
async fn race(db: &TestDatabase, rounds: u32, rotates: bool) -> Arc<Bank> {
    let scene = Scene::new(db, Bank::new(Duration::from_millis(2), rotates)).await;
    let mailbox = scene.connect("me@acme.test").await;
    let instances: Vec<Tokens> = ["one", "two", "three"].map(|name| scene.instance(db, name, QUICK)).into();
    let asker = scene.asker(mailbox);
    let mut refused: Option<Secret<String>> = None;
    for round in 0..rounds {
        let ask = |tokens: &Tokens| {
            let (tokens, asker, refused) = (tokens.clone(), asker.clone(), refused.clone());
            tokio::spawn(async move { tokens.get(&asker, refused.as_ref()).await.unwrap() })
        };
        let given = join_all(instances.iter().flat_map(|tokens| [ask(tokens), ask(tokens)])).await;
        let given: BTreeSet<String> = given.into_iter().map(|token| token.unwrap().expose().clone()).collect();
        if scene.bank.most_in_flight.load(Ordering::SeqCst) == 1 {
            assert_eq!(given.len(), 1, "round {round}: all use the same token");
            let token = given.into_iter().next().map(Secret::new);
            assert!(token.as_ref().is_some_and(|token| scene.bank.is_good(token)), "round {round}");
            refused = token;
        } else {
            refused = given.into_iter().max_by_key(|token| token[1..].parse::<u32>().unwrap()).map(Secret::new);
        }
    }
    scene.bank.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_processes_one_at_a_time_asks_and_every_caller_gets_a_good_token() {
    on_each_database(|db| async move {
        let bank = race(&db, 250, false).await;

        assert_eq!(bank.most_in_flight.load(Ordering::SeqCst), 1, "never two at once");
        assert_eq!(bank.asked(), 250, "once each time that a token was refused");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_is_kept_before_its_token_is_used() {
    on_each_database(|db| async move {
        let bank = race(&db, 50, true).await;

        assert_eq!(bank.most_in_flight.load(Ordering::SeqCst), 1);
        assert_eq!(bank.asked(), 50, "the old ones are refused, so each of these was the last");
    })
    .await;
}

#[test]
fn without_the_lease_they_ask_at_once() {
    alone("tokens::asks_at_once", "off=token_lease");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with the lease switched off"]
async fn asks_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let bank = race(&db, 30, false).await;

    assert!(bank.most_in_flight.load(Ordering::SeqCst) > 1, "the test above would not notice");
}

#[test]
fn who_dies_around_the_commit_of_a_token_harms_nobody() {
    for effect in Effect::TOKENS {
        for moment in ["before", "after"] {
            alone("tokens::outlives_a_panic", &format!("{moment}:{}=panic", effect.name()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with a failpoint that panics"]
async fn outlives_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let scene = Scene::new(&db, Bank::new(Duration::ZERO, false)).await;
    let mailbox = scene.connect("me@acme.test").await;
    let short = TokenSettings { lease: Duration::from_secs(1), ..QUICK };
    let (one, two) = (scene.instance(&db, "one", short), scene.instance(&db, "two", short));
    let asker = scene.asker(mailbox);

    let broken = one.get(&asker, None).await;
    assert!(matches!(broken, Err(ConnectorError::Unavailable(_))), "{broken:?}");
    let token = two.get(&asker, None).await.unwrap();
    assert!(scene.bank.is_good(&token), "somebody else asks once the lease has run out, or finds what was stored");
    assert_eq!(one.get(&asker, None).await.unwrap().expose(), token.expose());
    assert_eq!(scene.bank.most_in_flight.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consent_that_has_ended_is_told_once_and_nobody_asks_again() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::ZERO, false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        scene.work(&db).await;
        assert_eq!(scene.mailbox(mailbox).await.state, MailboxState::Active);
        *scene.bank.secret.lock().unwrap() = "another".into();
        // The token ends.
        scene.bank.current.fetch_add(1, Ordering::SeqCst);

        scene.ask_to_sync(&[mailbox]).await;
        scene.work(&db).await;

        let now = scene.mailbox(mailbox).await;
        assert_eq!(now.state, MailboxState::NeedsReauth);
        assert!(now.state_reason.unwrap().contains("invalid_grant"));
        let events = scene.store.list_events(0, 100).await.unwrap();
        let told: Vec<_> = events.iter().filter(|event| event.data["state"] == "needs_reauth").collect();
        assert_eq!(told.len(), 1);
        let asked = scene.bank.asked();
        for _ in 0..3 {
            scene.ask_to_sync(&[mailbox]).await;
            scene.work(&db).await;
        }
        let (other, refused) = (scene.instance(&db, "other", QUICK), Secret::new("t1".into()));
        let outcome = other.get(&scene.asker(mailbox), Some(&refused)).await;
        assert!(matches!(outcome, Err(ConnectorError::Unauthorized(_))));
        assert_eq!(scene.bank.asked(), asked, "no call for a token any more");

        // Connected again, it goes on as the same mailbox.
        let secret = Some(Secret::new("another".into()));
        scene.engine.change_mailbox(&scene.mailbox(mailbox).await, json!({}), secret).await.unwrap();
        scene.work(&db).await;
        assert_eq!(scene.mailbox(mailbox).await.state, MailboxState::Active);
        assert_eq!(scene.bank.asked(), asked + 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_was_replaced_while_it_was_refused_is_tried() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::from_millis(300), false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        *scene.bank.secret.lock().unwrap() = "another".into();
        let tokens = scene.instance(&db, "one", QUICK);
        let asker = scene.asker(mailbox);

        let asking = tokio::spawn(async move { tokens.get(&asker, None).await });
        while scene.bank.asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let secret = Some(Secret::new("another".into()));
        scene.engine.change_mailbox(&scene.mailbox(mailbox).await, json!({}), secret).await.unwrap();

        assert!(scene.bank.is_good(&asking.await.unwrap().unwrap()));
        assert_eq!(scene.bank.asked(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_comes_while_keys_are_rotated_is_kept() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::from_millis(500), true)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let tokens = scene.instance(&db, "one", QUICK);
        let asker = scene.asker(mailbox);

        let asking = tokio::spawn({
            let (tokens, asker) = (tokens.clone(), asker.clone());
            async move { tokens.get(&asker, None).await }
        });
        while scene.bank.asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        scene.engine.vault.rotate(None).await.unwrap();
        let token = asking.await.unwrap().unwrap();

        assert!(scene.bank.is_good(&token));
        assert_eq!(scene.bank.asked(), 1, "what came was not lost");
        assert!(
            scene.bank.is_good(&tokens.get(&asker, Some(&token)).await.unwrap()),
            "by the secret that came with it"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_comes_after_its_mailbox_has_gone_is_not_kept() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::from_millis(300), false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let tokens = scene.instance(&db, "one", QUICK);
        let asker = scene.asker(mailbox);

        let asking = tokio::spawn(async move { tokens.get(&asker, None).await });
        while scene.bank.asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        scene.engine.disconnect(&scene.mailbox(mailbox).await, None).await.unwrap();

        assert!(matches!(asking.await.unwrap(), Err(ConnectorError::Unauthorized(_))));
        assert_eq!(stored(&db, SecretKind::AccessToken).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_mailboxes_learn_from_a_few_calls_that_the_app_is_refused() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::from_millis(5), false)).await;
        let refusal = ConnectorError::Operator("the secret is wrong (invalid_client)".into());
        *scene.bank.refusal.lock().unwrap() = Some(refusal);
        let mut mailboxes = Vec::new();
        for n in 0..100 {
            mailboxes.push(scene.connect(&format!("m{n}@acme.test")).await);
        }

        scene.work(&db).await;

        assert!(scene.bank.asked() <= 8, "{} calls", scene.bank.asked());
        for mailbox in mailboxes {
            let state = scene.mailbox(mailbox).await.state;
            assert_eq!(state, MailboxState::Connecting, "it is not the mailbox's fault");
            let error = scene.store.find_sync(mailbox).await.unwrap().unwrap().last_error.unwrap();
            assert!(error.contains("invalid_client"), "{error}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_granted_is_revoked_once_a_mailbox_is_disconnected_and_not_while_another_needs_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::ZERO, false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        scene.work(&db).await;
        assert_eq!((stored(&db, SecretKind::RefreshToken).await, stored(&db, SecretKind::AccessToken).await), (1, 1));

        *scene.bank.refusal.lock().unwrap() = Some(ConnectorError::Unavailable("away".into()));
        scene.engine.disconnect(&scene.mailbox(mailbox).await, None).await.unwrap();
        scene.work(&db).await;
        assert_eq!(stored(&db, SecretKind::AccessToken).await, 0, "at once");
        assert_eq!(stored(&db, SecretKind::RefreshToken).await, 1, "it is needed until the provider has forgotten it");
        *scene.bank.refusal.lock().unwrap() = None;
        db.run("update jobs set state = 'ready', run_at = mailroom_now() where state = 'retry'").await;
        scene.work(&db).await;
        assert_eq!(*scene.bank.revoked.lock().unwrap(), ["r0"]);
        assert_eq!(stored(&db, SecretKind::RefreshToken).await, 0);

        // Once more, and connected again before the job comes: the provider would forget the new one with it.
        scene.connect("me@acme.test").await;
        scene.engine.disconnect(&scene.mailbox(mailbox).await, None).await.unwrap();
        scene.connect("me@acme.test").await;
        scene.work(&db).await;
        assert_eq!(scene.bank.revoked.lock().unwrap().len(), 1);
        assert_eq!(stored(&db, SecretKind::RefreshToken).await, 1);
        assert_eq!(scene.mailbox(mailbox).await.state, MailboxState::Active);
    })
    .await;
}

#[test]
fn the_place_of_a_token_follows_from_its_mailbox() {
    let (one, two) = (MailboxId::new(&SystemClock), MailboxId::new(&SystemClock));

    assert_eq!(SecretId::of_access_token(one), SecretId::of_access_token(one));
    assert_ne!(SecretId::of_access_token(one), SecretId::of_access_token(two));
    assert_ne!(SecretId::of_access_token(one).0, one.0);
}
