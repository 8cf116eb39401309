//! Tokens of mailboxes, asked for by several processes at once, on both databases.

mod counting_issuer;
mod lifetime;
mod microsoft;
mod race;
mod unstored;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{ConnectorAccount, ConnectorFuture, NoApiAccess, TokenGrant};
use domain::{Backfill, ConnectorError, MailboxId, MailboxSettings, Provider, Secret, SecretKind};
use engine::credentials::tokens::{TokenRequest, TokenSettings, Tokens};
use engine::operations::mailboxes::ConnectRequest;
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use store::testing::TestDatabase;
use testkit::MailboxOperations;
use testkit::pages::page;
use testkit::{AppOptions, ScriptedConnector, ScriptedReply, TestApp, wait_until};

const QUICK: TokenSettings = TokenSettings { lease: Duration::from_secs(20), poll_interval: Duration::from_millis(2) };

/// For whoever waits until it runs out.
const SHORT: TokenSettings = TokenSettings { lease: Duration::from_secs(1), ..QUICK };

/// What issues tokens.
trait TokenIssuer: fmt::Debug + Send + Sync + 'static {
    const PROVIDER: Provider;

    /// What opens the mailbox at first.
    fn first_secret(&self) -> String;

    fn give<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, TokenGrant>;

    fn take_back<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()>;

    /// Whether a call with it is answered.
    fn takes<'a>(&'a self, token: &'a Secret<String>) -> ConnectorFuture<'a, bool>;
}

/// A connector to a provider with tokens, and without mail.
fn connector<G: TokenIssuer>(issuer: &Arc<G>) -> Arc<ScriptedConnector> {
    let connector = ScriptedConnector::quiet(G::PROVIDER);
    let of = issuer.clone();
    connector.on_changes(move |account, _| {
        let (issuer, account) = (of.clone(), account.clone());
        ScriptedReply::later(async move {
            let token = account.access.token(None).await?;
            if !issuer.takes(&token).await? && !issuer.takes(&account.access.token(Some(&token)).await?).await? {
                return Err(ConnectorError::Unauthorized("refused twice".into()));
            }
            Ok(page(vec![]))
        })
    });
    let of = issuer.clone();
    connector.on_grant(move |account| {
        let (issuer, account) = (of.clone(), account.clone());
        ScriptedReply::later(async move { issuer.give(&account).await })
    });
    let of = issuer.clone();
    connector.on_revoke(move |account| {
        let (issuer, account) = (of.clone(), account.clone());
        ScriptedReply::later(async move { issuer.take_back(&account).await })
    });
    connector
}

/// An application with one tenant, whose provider has tokens.
struct TokenApp<G> {
    app: TestApp,
    store: TenantStore,
    bank: Arc<G>,
    connector: Arc<ScriptedConnector>,
}

impl<G> Deref for TokenApp<G> {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

impl<G: TokenIssuer> TokenApp<G> {
    async fn new(db: TestDatabase, issuer: G) -> Self {
        Self::with_tokens(db, issuer, QUICK).await
    }

    async fn with_tokens(db: TestDatabase, issuer: G, settings: TokenSettings) -> Self {
        let bank = Arc::new(issuer);
        let connector = connector(&bank);
        let options = AppOptions::default().scripted(&connector).retry_horizon(Duration::ZERO);
        let mut app = TestApp::new(db, options);
        app.syncer = app.syncer.clone().with_tokens(settings);
        // Nobody syncs the mailboxes that are connected, unless the test works.
        app.leaves_jobs(&["sync_mailbox", "watch_mailbox"]);
        let store = app.create_tenant("acme").await;
        Self { app, store, bank, connector }
    }

    async fn connect(&self, address: &str) -> MailboxId {
        self.connect_as(address, json!({}), Some(Secret::new(self.bank.first_secret()))).await
    }

    async fn connect_as(&self, address: &str, connection: Value, secret: Option<Secret<String>>) -> MailboxId {
        let connect = ConnectRequest {
            provider: G::PROVIDER,
            address: address.into(),
            settings: MailboxSettings::of_connection(connection),
            secret,
            backfill: Backfill::None,
        };
        self.engine.connect(self.store.id, connect).await.unwrap().unwrap()
    }

    async fn mailbox(&self, id: MailboxId) -> Mailbox {
        self.app.mailbox(&self.store, &id.to_string()).await
    }

    /// Another process, with connections and memory of its own.
    fn instance(&self, name: &str, settings: TokenSettings) -> Tokens {
        Tokens::new(testkit::app::engine(&self.db.second_store(), self.folder.path()), name, settings)
    }

    fn asker(&self, mailbox: MailboxId) -> TokenRequest {
        let account = ConnectorAccount {
            tenant: self.store.id,
            mailbox,
            address: "me@acme.test".into(),
            settings: "{}".into(),
            secret: Some(Secret::new(self.bank.first_secret())),
            folders: Vec::new(),
            sweep_since: None,
            access: Arc::new(NoApiAccess),
        };
        TokenRequest { connector: self.connector.clone(), account }
    }

    /// Works until nothing is left to do, and what waits for its next attempt has it at once.
    async fn finish_jobs(&self) {
        let worker = self.start_worker();
        wait_until("no job is left", async || {
            self.make_retries_ready().await;
            self.count("jobs where state <> 'scheduled'").await == 0
        })
        .await;
        worker.shut_down().await;
        self.leaves_jobs(&[]);
    }

    async fn enqueue_syncs(&self, mailboxes: &[MailboxId]) {
        for mailbox in mailboxes {
            self.enqueue_sync(&self.store, *mailbox).await;
        }
    }
}

/// How many secrets of a kind there are.
async fn stored(db: &TestDatabase, kind: SecretKind) -> usize {
    db.rows(&format!("select 1 from secrets where kind = '{}'", kind.as_str())).await.len()
}
