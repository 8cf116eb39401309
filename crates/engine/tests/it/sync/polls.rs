//! Polls of several mailboxes in one job.

use std::sync::Arc;
use std::time::Duration;

use domain::connector::ListingPage;
use domain::{
    ConnectorError, FolderRole, MailboxEvent, MailboxId, MailboxSettings, MailboxState, Provider, SecretId, SystemClock,
};
use engine::sync::{PollMailboxes, SyncMailbox};
use jobs::{JobKind, JobKinds, Worker, WorkerSettings, new_job};
use store::sql::mailboxes::NewMailbox;
use store::testing::{TestDatabase, on_each_database};
use store::{Dialect, TenantStore};
use testkit::app::{ADDRESS, worker_settings};
use testkit::pages::{folder, page, seen_message};
use testkit::{AppOptions, ConnectorMethod, ScriptedApp, ScriptedConnector, ScriptedReply, TestApp, wait_until};

use super::pairs;

async fn poll(app: &ScriptedApp) {
    enqueue_poll(&app.tenant, ScriptedApp::PROVIDER, &[app.mailbox]).await;
    app.run_jobs_until_idle().await;
}

fn changes_calls(app: &ScriptedApp) -> usize {
    app.connector.count(ConnectorMethod::Changes)
}

async fn fence_token(app: &ScriptedApp) -> u64 {
    app.db.rows("select token from sync_states").await[0].get(0).unwrap()
}

/// With the provider Gmail, at which nothing happens unless it is scripted. Many mailboxes are worked on at once.
pub(super) fn gmail_app(db: TestDatabase) -> (TestApp, Arc<ScriptedConnector>) {
    let gmail = ScriptedConnector::quiet(Provider::Gmail);
    let mut app = TestApp::new(db, AppOptions::default().scripted(&gmail));
    app.syncer = app.syncer.clone().with_workers(500);
    (app, gmail)
}

/// With Gmail as a second provider. So many mailboxes are worked on at once.
async fn app_with_gmail(db: TestDatabase, workers: usize) -> (ScriptedApp, Arc<ScriptedConnector>) {
    let gmail = ScriptedConnector::quiet(Provider::Gmail);
    let mut app = ScriptedApp::with_options(db, AppOptions::default().scripted(&gmail)).await;
    app.syncer = app.syncer.clone().with_workers(workers);
    (app, gmail)
}

/// Mailboxes at Gmail of a new tenant, which were synced before.
pub(super) async fn synced_mailboxes(app: &TestApp, tenant: &str, addresses: &[&str]) -> (TenantStore, Vec<MailboxId>) {
    let store = app.create_tenant(tenant).await;
    let mut ids = Vec::new();
    for address in addresses {
        let id = MailboxId::new(&SystemClock);
        let mut unit = store.write();
        unit.add_mailbox(NewMailbox {
            id,
            provider: Provider::Gmail,
            address: (*address).into(),
            settings: MailboxSettings::default(),
            // One that opens nothing.
            secret_ref: (*address == "locked").then(|| SecretId::new(&SystemClock).to_string()),
            since: None,
        });
        unit.commit().await.unwrap();
        let (mailbox, cursors) = (format!("'{id}'"), "sync_cursors (tenant_id, mailbox_id, phase, scope, cursor)");
        app.db.run(&format!("update mailboxes set state = 'active' where id = {mailbox}")).await;
        app.db.run(&format!("update sync_states set is_history_done = true where mailbox_id = {mailbox}")).await;
        app.db.run(&format!("insert into {cursors} values ('{}', {mailbox}, 'changes', '', '1')", store.id)).await;
        ids.push(id);
    }
    (store, ids)
}

pub(super) async fn enqueue_poll(store: &TenantStore, provider: Provider, mailboxes: &[MailboxId]) {
    let mut unit = store.write();
    let job = PollMailboxes { provider, mailboxes: mailboxes.to_vec() };
    unit.enqueue(vec![new_job(&job, &SystemClock, None).unwrap()]);
    unit.commit().await.unwrap();
}

/// Kinds that list and poll, and none that fetches.
pub(super) fn listing_kinds(app: &TestApp) -> JobKinds {
    testkit::app::listing_kinds(&app.syncer).with(poll_kind(app))
}

fn poll_kind(app: &TestApp) -> JobKind {
    JobKind::of::<PollMailboxes>(app.syncer.clone())
}

/// For a worker that does not wait for its jobs when it is shut down.
pub(super) fn impatient_worker(remote_slots: usize) -> WorkerSettings {
    WorkerSettings { remote_slots, grace: Duration::ZERO, ..worker_settings() }
}

pub(super) fn start(app: &TestApp, kinds: JobKinds) -> Worker {
    app.start_worker_with(kinds, impatient_worker(10))
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_without_news_is_one_call_without_a_lease() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.sync().await;
        let (calls, token) = (changes_calls(&app), fence_token(&app).await);
        let before = app.tenant.find_sync_state(app.mailbox).await.unwrap().unwrap();

        poll(&app).await;

        assert_eq!((changes_calls(&app), fence_token(&app).await), (calls + 1, token));
        let after = app.tenant.find_sync_state(app.mailbox).await.unwrap().unwrap();
        assert!(after.last_sync_at > before.last_sync_at && after.status == "idle", "{after:?}");
        assert!(app.db.rows("select 1 from jobs").await.is_empty());
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_with_news_enqueues_a_sync() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.sync().await;
        let calls = changes_calls(&app);
        assert!(
            app.db.rows("select 1 from sync_states where news_at is not null").await.len() == 1,
            "folders are news"
        );
        app.db.run("update sync_states set news_at = null").await;

        app.connector.fetches("m1", "Subject: one\n\nhello");
        for _ in 0..2 {
            app.connector.queue_changes(page(vec![seen_message("m1", "INBOX", &[])]));
        }
        poll(&app).await;

        assert_eq!(app.stored_emails().await, pairs(&[("one", "INBOX[]")]));
        assert_eq!(changes_calls(&app), calls + 2);
        assert_eq!(
            app.db.rows("select 1 from sync_states where news_at is not null and holder is null").await.len(),
            1
        );
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_provider_is_recorded_without_jobs() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.sync().await;
        for failed in 1..=3 {
            app.connector.queue_changes(ConnectorError::Unavailable("no route".into()));
            poll(&app).await;
            let state = app.tenant.find_sync_state(app.mailbox).await.unwrap().unwrap();
            assert_eq!(state.error_count, failed);
            assert!(state.last_error.unwrap().contains("no route"));
            assert!(app.db.rows("select 1 from jobs").await.is_empty());
        }
        assert_eq!(app.mailbox_state(&app.tenant, app.mailbox).await, MailboxState::Error);

        poll(&app).await;
        assert_eq!(app.mailbox_state(&app.tenant, app.mailbox).await, MailboxState::Active);
        assert_eq!(app.tenant.find_sync_state(app.mailbox).await.unwrap().unwrap().error_count, 0);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_leaves_a_refusal_to_a_sync() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.sync().await;
        let refused = ConnectorError::Unauthorized("revoked".into());
        app.connector.queue_changes(refused.clone());
        app.connector.queue_changes(refused);

        poll(&app).await;

        assert_eq!(app.mailbox_state(&app.tenant, app.mailbox).await, MailboxState::NeedsReauth);
        let calls = changes_calls(&app);
        poll(&app).await;
        assert_eq!(changes_calls(&app), calls, "nobody calls for it any more");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_being_synced_is_not_polled() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.sync().await;
        let calls = changes_calls(&app);
        let key = (app.tenant.id, app.mailbox);
        let lease = Duration::from_secs(600);
        assert_eq!(app.db.store.system().begin_syncs(&[key], "somebody", lease).await.unwrap().len(), 1);
        poll(&app).await;
        assert_eq!(changes_calls(&app), calls);

        app.db.run("update sync_states set holder = null, held_until = null").await;
        let later = match app.db.store.dialect() {
            Dialect::Postgres => "mailroom_now() + interval '1 hour'",
            Dialect::Sqlite => "strftime('%Y-%m-%dT%H:%M:%fZ', mailroom_now(), '1 hour')",
        };
        app.db.run(&format!("update sync_states set last_sync_at = {later}")).await;
        poll(&app).await;
        assert_eq!(changes_calls(&app), calls);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_provider_does_not_delay_another() {
    on_each_database(|db| async move {
        let (app, hanging) = app_with_gmail(db, 10).await;
        app.sync().await;
        let calls = changes_calls(&app);
        hanging.on_changes_of(ADDRESS, ScriptedReply::hang);
        for n in 0..30 {
            let (store, mailboxes) = synced_mailboxes(&app, &format!("tenant {n}"), &["me@acme.test"]).await;
            enqueue_poll(&store, Provider::Gmail, &mailboxes).await;
        }
        let worker = start(&app, JobKinds::default().with(poll_kind(&app)));
        wait_until("as many as may be are called", async || hanging.count(ConnectorMethod::Changes) == 4).await;

        enqueue_poll(&app.tenant, ScriptedApp::PROVIDER, &[app.mailbox]).await;

        wait_until("the other is looked at", async || changes_calls(&app) == calls + 1).await;
        assert_eq!(hanging.count(ConnectorMethod::Changes), 4, "and no more are kept waiting than may be");
        worker.shut_down().await;
        app.leaves_jobs(&["poll_mailboxes"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_mailbox_does_not_affect_its_batch() {
    on_each_database(|db| async move {
        let (app, odd) = gmail_app(db);
        odd.on_changes_of("hangs", ScriptedReply::hang);
        odd.on_changes_of("panics", || ScriptedReply::panic("as it was told"));
        let addresses = ["quiet", "hangs", "panics", "locked", "quiet too"];
        let (store, mailboxes) = synced_mailboxes(&app, "odd", &addresses).await;
        enqueue_poll(&store, Provider::Gmail, &mailboxes).await;

        let worker = start(&app, JobKinds::default().with(poll_kind(&app)));

        let is_told = async |n: usize| {
            let state = store.find_sync_state(mailboxes[n]).await.unwrap().unwrap();
            state.last_sync_at.is_some() || state.error_count > 0
        };
        for n in [0, 2, 3, 4] {
            wait_until(addresses[n], async || is_told(n).await).await;
        }
        assert!(!is_told(1).await, "of the one that hangs nothing is known");
        let reason = async |n: usize| store.find_sync_state(mailboxes[n]).await.unwrap().unwrap().last_error;
        assert_eq!(reason(2).await.as_deref(), Some("the poll panicked"));
        assert!(reason(3).await.unwrap().contains("is not there any more"), "{:?}", reason(3).await);
        let own = app.db.rows("select cast(payload as text) from jobs where kind = 'sync_mailbox'").await;
        let own: Vec<String> = own.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(own.len(), 2, "{own:?}");
        assert!([2, 3].iter().all(|n| own.iter().any(|job| job.contains(&mailboxes[*n].to_string()))), "{own:?}");
        worker.shut_down().await;
        app.leaves_jobs(&["poll_mailboxes", "sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suspected_batch_is_synced_one_by_one() {
    on_each_database(|db| async move {
        let (app, odd) = gmail_app(db);
        let (store, mailboxes) = synced_mailboxes(&app, "odd", &["one", "two", "three"]).await;
        enqueue_poll(&store, Provider::Gmail, &mailboxes).await;
        app.db.run("update jobs set suspected = 1").await;

        let worker = start(&app, JobKinds::default().with(poll_kind(&app)));

        let own = "select 1 from jobs where kind = 'sync_mailbox'";
        wait_until("each has a job", async || app.db.rows(own).await.len() == 3).await;
        assert_eq!(odd.count(ConnectorMethod::Changes), 0);
        worker.shut_down().await;
        app.leaves_jobs(&["sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

async fn wait_until_synced(store: &TenantStore, mailbox: MailboxId) {
    wait_until("the mailbox is synced", async || {
        let state = store.find_sync_state(mailbox).await.unwrap().unwrap();
        state.last_sync_at.is_some() && state.status == "idle"
    })
    .await;
}

fn with_news() -> ListingPage {
    ListingPage {
        folders: vec![folder("INBOX", Some(FolderRole::Inbox))],
        ..page(vec![seen_message("m1", "INBOX", &[])])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn news_of_a_paused_mailbox_are_not_recorded() {
    on_each_database(|db| async move {
        let (app, odd) = gmail_app(db);
        let (store, mailboxes) = synced_mailboxes(&app, "odd", &["paused", "removed", "fine"]).await;
        for (address, n) in [("paused", 0), ("removed", 1)] {
            let (store, id) = (store.clone(), mailboxes[n]);
            let switch_off = ScriptedReply::later(async move {
                let mut unit = store.write();
                let event = if n == 0 { MailboxEvent::Paused } else { MailboxEvent::Disconnected };
                unit.apply_mailbox_event(id, event, None);
                if n == 1 {
                    unit.stop_syncing(id);
                }
                unit.commit().await.unwrap();
                Ok(with_news())
            });
            odd.queue_changes_of(address, switch_off);
        }
        let worker = start(&app, listing_kinds(&app));

        enqueue_poll(&store, Provider::Gmail, &mailboxes).await;

        wait_until("all is done", async || app.db.rows("select 1 from jobs").await.is_empty()).await;
        assert_eq!(odd.count(ConnectorMethod::Changes), 3);
        assert!(app.ledger().await.is_empty());
        assert!(store.find_sync_state(mailboxes[2]).await.unwrap().unwrap().last_sync_at.is_some());

        let keys = [(store.id, mailboxes[2])];
        assert_eq!(app.db.store.system().list_poll_states(&keys).await.unwrap().len(), 1);
        app.db.store.system().set_tenant_active(store.id, false).await.unwrap();
        assert!(
            app.db.store.system().list_poll_states(&keys).await.unwrap().is_empty(),
            "nobody looks for a tenant that is off"
        );
        worker.shut_down().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_polls_stop_with_their_tenant() {
    on_each_database(|db| async move {
        let (app, odd) = app_with_gmail(db, 500).await;
        app.sync().await;
        let addresses: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        for address in &addresses {
            odd.on_changes_of(address, || ConnectorError::RateLimited(Duration::from_millis(1)).into());
        }
        let (store, mailboxes) =
            synced_mailboxes(&app, "odd", &addresses.iter().map(String::as_str).collect::<Vec<_>>()).await;
        enqueue_poll(&store, Provider::Gmail, &mailboxes).await;
        let worker = start(&app, JobKinds::default().with(poll_kind(&app)));
        wait_until("they ask again and again", async || odd.count(ConnectorMethod::Changes) > 100).await;

        app.db.store.system().set_tenant_active(store.id, false).await.unwrap();

        let given_back = "select 1 from jobs where state = 'ready' and attempt = 0";
        wait_until("the job is given back", async || app.db.rows(given_back).await.len() == 1).await;
        let calls = odd.count(ConnectorMethod::Changes);
        // Somebody else is looked at meanwhile, as often as the others would have asked again.
        let others = format!("select 1 from jobs where cast(tenant_id as text) = '{}'", app.tenant.id);
        let before = changes_calls(&app);
        for _ in 0..3 {
            enqueue_poll(&app.tenant, ScriptedApp::PROVIDER, &[app.mailbox]).await;
            wait_until("somebody else is looked at", async || app.db.rows(&others).await.is_empty()).await;
        }
        assert_eq!(changes_calls(&app), before + 3);
        assert_eq!(odd.count(ConnectorMethod::Changes), calls);

        for address in &addresses {
            odd.forget_changes_of(address);
        }
        app.db.store.system().set_tenant_active(store.id, true).await.unwrap();
        wait_until("all is done", async || app.db.rows("select 1 from jobs").await.is_empty()).await;
        assert_eq!(odd.count(ConnectorMethod::Changes), calls + 25);
        worker.shut_down().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn push_during_a_poll_is_recorded_once() {
    on_each_database(|db| async move {
        let (app, odd) = gmail_app(db);
        let (store, mailboxes) = synced_mailboxes(&app, "odd", &["pushed"]).await;
        let worker = start(&app, listing_kinds(&app));
        let (pushed, id) = (store.clone(), mailboxes[0]);
        let listed = odd.clone();
        let (synced, is_synced) = tokio::sync::oneshot::channel();
        let push = ScriptedReply::later(async move {
            // The next who asks is the job of the push, and finds it.
            listed.queue_changes_of("pushed", with_news());
            let mut unit = pushed.write();
            unit.enqueue(vec![SyncMailbox::request(&SystemClock, id).unwrap()]);
            unit.commit().await.unwrap();
            is_synced.await.unwrap();
            Ok(with_news())
        });
        odd.queue_changes_of("pushed", push);

        enqueue_poll(&store, Provider::Gmail, &mailboxes).await;
        wait_until_synced(&store, mailboxes[0]).await;
        synced.send(()).unwrap();

        let own = "select 1 from jobs where kind <> 'fetch_emails'";
        wait_until("all is done", async || app.db.rows(own).await.is_empty()).await;
        let calls = odd.count(ConnectorMethod::Changes);
        assert_eq!(calls, 3, "what was seen before is of no use, so it is asked for again");
        assert_eq!(app.ledger().await, pairs(&[("m1", "queued")]));
        assert_eq!(app.db.rows("select 1 from jobs where kind = 'fetch_emails'").await.len(), 1);
        worker.shut_down().await;
        app.leaves_jobs(&["fetch_emails"]);
        app.finish().await;
    })
    .await;
}
