//! A provider that pushes and mailboxes at it, from their connection to their end.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use domain::connector::{ConnectorAccount, Cursors, ListingPage, SeenMessage, Watch, WatchRequest};
use domain::{Backfill, Clock, ConnectorError, FolderRole, MailboxId, Provider, SystemClock, TenantId};
use engine::jobs::RenewWatches;
use engine::sync::push::{PushStatus, find_push_status};
use jiff::SignedDuration;
use store::sql::mailboxes::Mailbox;
use store::sql::watches::WatchState;
use store::testing::TestDatabase;
use testkit::MailboxOperations;
use testkit::pages::{folder, page, seen_message};
use testkit::{AppOptions, ConnectorMethod, ScriptedConnector, ScriptedReply, TestApp};

use crate::events::assert_like_examples;

pub use testkit::app::ADDRESS;

/// How a provider answers requests for push notifications: it agrees for a week, unless it is told otherwise; and what it
/// was asked.
#[derive(Debug, Default)]
pub struct PushScript {
    pub watches: Mutex<VecDeque<Option<Result<Watch, ConnectorError>>>>,
    pub unwatches: Mutex<VecDeque<ConnectorError>>,
    /// While a test holds this, ending a watch waits.
    pub stopping: tokio::sync::Mutex<()>,
    /// While a test holds this, subscribing waits.
    pub subscribing: tokio::sync::Mutex<()>,
    /// Id and client state of each subscription there ever was.
    pub subscriptions: Mutex<Vec<(String, String)>>,
    /// Whether the last one still exists.
    pub is_subscribed: AtomicBool,
    /// The next subscription is made, and the answer is lost.
    pub loses_answers: AtomicBool,
    pub asked: Mutex<Vec<String>>,
}

impl PushScript {
    /// One subscription for the account, as Graph has it: asked for again, it takes the place of the one before.
    async fn subscribe(
        self: Arc<Self>,
        account: ConnectorAccount,
        known: Option<String>,
        client_state: String,
    ) -> Result<Watch, ConnectorError> {
        match &known {
            Some(known) => self.note(&format!("renew {known}"), &account),
            None => self.note("begin", &account),
        }
        let _turn = self.subscribing.lock().await;
        let scripted = self.watches.lock().unwrap().pop_front().flatten();
        if let Some(scripted) = scripted {
            return scripted;
        }
        let id = {
            let mut all = self.subscriptions.lock().unwrap();
            let last = all.last().map(|(id, _)| id.clone());
            match &known {
                Some(known) if self.is_subscribed.load(Ordering::SeqCst) && last.as_ref() == Some(known) => {}
                Some(_) => return Err(ConnectorError::Gone),
                None => {
                    let id = format!("s{}", all.len() + 1);
                    all.push((id, client_state));
                    self.is_subscribed.store(true, Ordering::SeqCst);
                }
            }
            all.last().map(|(id, _)| id.clone())
        };
        if self.loses_answers.swap(false, Ordering::SeqCst) {
            return Err(ConnectorError::Unavailable("no answer".into()));
        }
        Ok(watch_for_a_week(id))
    }

    fn watch(
        self: &Arc<Self>,
        provider: Provider,
        account: &ConnectorAccount,
        request: &WatchRequest,
    ) -> Option<ScriptedReply<Watch>> {
        if provider.capabilities().has_named_subscription {
            let (known, state) = (request.subscription_id.clone(), request.client_state.expose().clone());
            return Some(ScriptedReply::later(self.clone().subscribe(account.clone(), known, state)));
        }
        let scripted = self.watches.lock().unwrap().pop_front().unwrap_or_else(|| Some(Ok(watch_for_a_week(None))))?;
        self.note("watch", account);
        Some(scripted.into())
    }

    async fn unwatch(self: Arc<Self>, account: ConnectorAccount, id: Option<String>) -> Result<(), ConnectorError> {
        let which = id.map(|id| format!(" {id}")).unwrap_or_default();
        self.note(&format!("unwatch{which}"), &account);
        let _turn = self.stopping.lock().await;
        self.unwatches.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }

    fn note(&self, what: &str, account: &ConnectorAccount) {
        let secret = account.secret.as_ref().map_or("none", |secret| secret.expose());
        self.asked.lock().unwrap().push(format!("{what} {secret}"));
    }

    /// Answers the next request for a watch; `None`: the provider does not push for the account.
    pub fn answer_watch(&self, answer: Option<Result<Watch, ConnectorError>>) {
        self.watches.lock().unwrap().push_back(answer);
    }

    pub fn was_asked(&self, what: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked == what)
    }

    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn watch_for_a_week(subscription_id: Option<String>) -> Watch {
    Watch { expires_at: SystemClock.now() + SignedDuration::from_hours(7 * 24), subscription_id }
}

/// An application whose provider pushes.
#[derive(Debug)]
pub struct PushApp {
    pub app: TestApp,
    pub server: Arc<PushScript>,
    pub connector: Arc<ScriptedConnector>,
    provider: Provider,
}

impl Deref for PushApp {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

impl PushApp {
    pub fn new(db: TestDatabase, provider: Provider) -> Self {
        let connector = ScriptedConnector::quiet(provider);
        connector.on_changes(|_, _| page(vec![]).into());
        connector.on_message(|id| Some(format!("Subject: {id}\n\nhello").into()));
        let server = Arc::new(PushScript::default());
        let script = server.clone();
        connector.on_watch(move |account, request| script.watch(provider, account, request));
        let script = server.clone();
        connector.on_unwatch(move |account, id| {
            ScriptedReply::later(script.clone().unwatch(account.clone(), id.map(str::to_owned)))
        });
        let app = TestApp::new(db, AppOptions::default().scripted(&connector));
        Self { app, server, connector, provider }
    }

    /// Listings that were to sweep over all folders.
    pub fn sweeps(&self) -> usize {
        let calls = self.connector.calls();
        let listings = calls.iter().filter(|call| call.method == ConnectorMethod::Changes);
        listings.filter(|call| call.sweep_since.is_some()).count()
    }

    pub async fn tenant(&self, name: &str) -> TenantId {
        self.create_tenant(name).await.id
    }

    /// With a secret by which its calls can be told apart.
    pub async fn connect(&self, tenant: TenantId, secret: &str) -> MailboxId {
        let tenant = self.db.store.tenant(tenant);
        self.app.connect(&tenant, self.provider, ADDRESS, Some(secret), Backfill::None).await
    }

    pub async fn mailbox(&self, tenant: TenantId) -> Mailbox {
        self.app.mailbox(&self.db.store.tenant(tenant), ADDRESS).await
    }

    pub async fn watch(&self, tenant: TenantId) -> Option<WatchState> {
        let mailbox = self.mailbox(tenant).await;
        self.db.store.tenant(tenant).find_watch(mailbox.id).await.unwrap()
    }

    pub async fn status(&self, tenant: TenantId) -> PushStatus {
        let mailbox = self.mailbox(tenant).await;
        find_push_status(&self.db.store.tenant(tenant), &mailbox).await.unwrap().unwrap()
    }

    pub async fn disconnect(&self, tenant: TenantId) {
        self.engine.disconnect(&self.mailbox(tenant).await).await.unwrap();
    }

    /// What happens every minute.
    pub async fn tick(&self) {
        self.enqueue(TenantId::SYSTEM, &RenewWatches {}).await;
        self.run_jobs_until_idle().await;
    }

    /// As when its time has come.
    pub async fn make_due(&self) {
        self.db.run("update push_watches set next_at = '2026-01-01T00:00:00.000Z'").await;
    }

    /// A sync that finds a new message.
    pub async fn find_news(&self, tenant: TenantId, message: &str) {
        let seen = SeenMessage { received_at: None, size_bytes: Some(10), ..seen_message(message, "INBOX", &[]) };
        self.connector.queue_changes(ListingPage {
            folders: vec![folder("INBOX", Some(FolderRole::Inbox))],
            cursors: Cursors::from([(String::new(), message.into())]),
            ..page(vec![seen])
        });
        let mailbox = self.mailbox(tenant).await.id;
        self.sync(&self.db.store.tenant(tenant), mailbox).await;
    }

    /// Events of pushes, all of them.
    pub async fn push_events(&self, tenant: TenantId) -> Vec<String> {
        let events = self.db.store.tenant(tenant).list_events(0, 1000).await.unwrap();
        assert_like_examples(&events);
        events.into_iter().map(|event| event.kind).filter(|kind| kind.contains("push")).collect()
    }

    pub async fn secrets(&self) -> usize {
        self.db.rows("select 1 from secrets").await.len()
    }
}
