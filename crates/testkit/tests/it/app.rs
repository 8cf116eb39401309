//! The kit itself: what it catches, and that its clock is everybody's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use domain::{Clock, Provider, TenantId};
use engine::jobs::Upkeep;
use futures_util::FutureExt;
use jiff::{SignedDuration, Timestamp};
use jobs::probe::{Probe, probe};
use jobs::{JobKinds, RetryPolicy};
use store::testing::on_each_database;
use testkit::app::worker_settings;
use testkit::{AppOptions, ConnectorMethod, ScriptedConnector, TestApp, on_each_app, pages, wait_until};

const DAY: Duration = Duration::from_secs(86_400);

/// Ends the application, and tells with what it failed.
async fn failure(app: &TestApp) -> String {
    message(&*AssertUnwindSafe(app.finish()).catch_unwind().await.unwrap_err())
}

fn message(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
    literal.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_the_router() {
    on_each_app(async |app| {
        let acme = app.create_tenant("acme").await;
        let key = app.create_key(&acme, &["read"]).await;
        app.import(&acme, testkit::app::ADDRESS, "INBOX", ["Subject: one\n\nhello"]).await;

        let emails = app.get("/v1/emails", &key).await;

        assert_eq!(emails.expect(200).json()["items"][0]["subject"], "one");
        app.get("/v1/emails", "mailroom_nonsense").await.expect(401);
        let beta = serde_json::json!({"name": "beta"});
        app.post("/v1/tenants", &app.operator_key().await, &beta).await.expect(201);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_job_fails_the_test() {
    on_each_app(async |app| {
        app.enqueue(TenantId::SYSTEM, &Upkeep {}).await;
        assert!(failure(app).await.contains("other jobs are left than expected"));
        app.leaves_jobs(&["upkeep"]);
        app.finish().await;

        app.run_jobs_until_idle().await;
        assert!(failure(app).await.contains("other jobs are left than expected"), "the one that was expected is not");
        app.leaves_jobs(&[]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_fails_finish() {
    on_each_app(async |app| {
        let never = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
        app.enqueue(TenantId::SYSTEM, &Probe { fail: 1, ..Probe::default() }).await;
        let worker = app.start_worker_with(JobKinds::default().with(probe(never)), worker_settings());
        app.wait_until_idle().await;
        worker.shut_down().await;

        let failure = failure(app).await;
        assert!(failure.contains("dead letters") && failure.contains("the probe was told to fail"), "{failure}");
        app.expect_dead_letters(1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn app_dropped_without_finish_panics() {
    on_each_database(|db| async move {
        let app = TestApp::new(db, AppOptions::default());

        let panic = catch_unwind(AssertUnwindSafe(|| drop(app))).unwrap_err();

        assert_eq!(message(&*panic), "a test ends its TestApp with finish().await");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unscripted_call_fails_the_test() {
    on_each_database(|db| async move {
        let connector = ScriptedConnector::new(Provider::Gmail);
        connector.queue_changes(pages::page(vec![]));
        let app = TestApp::new(db, AppOptions::default().scripted(&connector));
        let acme = app.create_tenant("acme").await;
        let mailbox = app.add_mailbox(&acme, Provider::Gmail, "me@acme.test").await;
        app.enqueue_sync(&acme, mailbox).await;
        let worker = app.start_worker();
        wait_until("the history is asked for", async || !connector.refusals().is_empty()).await;
        worker.shut_down().await;

        assert_eq!(connector.refusals()[0], ConnectorMethod::History);
        let failure = failure(&app).await;
        assert!(failure.contains("calls without a script") || failure.contains("dead letters"), "{failure}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unasked_reply_fails_finish() {
    on_each_database(|db| async move {
        let connector = ScriptedConnector::quiet(Provider::Gmail);
        let app = TestApp::new(db, AppOptions::default().scripted(&connector));
        let acme = app.create_tenant("acme").await;
        let mailbox = app.add_mailbox(&acme, Provider::Gmail, "me@acme.test").await;
        connector.queue_changes_of("me@acme.test", pages::page(vec![]));

        assert!(failure(&app).await.contains("replies that nobody asked for"));
        app.sync(&acme, mailbox).await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_moves_process_and_database() {
    on_each_app(async |app| {
        let tomorrow = app.clock.now() + DAY;
        let is_tomorrow = |time: Timestamp| time.duration_since(tomorrow).abs() < SignedDuration::from_hours(1);
        app.advance(DAY).await;
        app.create_tenant("acme").await;

        let acme = app.store().system().find_tenant("acme").await.unwrap().unwrap();
        assert!(is_tomorrow(acme.created_at), "{}", acme.created_at);
        let now = app.store().system().now().await.unwrap();
        assert!(is_tomorrow(now), "{now}");
    })
    .await;
}
