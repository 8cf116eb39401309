//! The kit itself: what it catches, and that its clock is everybody's.

use std::time::Duration;

use domain::{Clock, Provider};
use engine::jobs::Upkeep;
use futures_util::FutureExt;
use testkit::{AppOptions, ConnectorMethod, ScriptedConnector, TestApp, on_each_app, pages};

/// Ends the application, and tells with what it failed.
async fn failure(app: &TestApp) -> String {
    let panic = std::panic::AssertUnwindSafe(app.finish()).catch_unwind().await.unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_the_router() {
    on_each_app(async |app| {
        let acme = app.create_tenant("acme").await;
        let key = app.create_key(&acme, &["mail:read"]).await;
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
        app.enqueue(domain::TenantId::SYSTEM, &Upkeep {}).await;
        assert!(failure(app).await.contains("jobs are left"));
        app.run_jobs_until_idle().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unscripted_call_fails_the_test() {
    store::testing::on_each_database(|db| async move {
        let connector = ScriptedConnector::new(Provider::Gmail);
        connector.queue_changes(pages::page(vec![]));
        let app = TestApp::new(db, AppOptions::default().scripted(&connector));
        let acme = app.create_tenant("acme").await;
        let mailbox = app.add_mailbox(&acme, Provider::Gmail, "me@acme.test").await;
        app.enqueue_sync(&acme, mailbox).await;
        let worker = app.start_worker();
        testkit::wait_until("the history is asked for", async || !connector.refusals().is_empty()).await;
        worker.shut_down().await;

        assert_eq!(connector.refusals()[0], ConnectorMethod::History);
        app.leaves_jobs();
        let failure = failure(&app).await;
        assert!(failure.contains("calls without a script") || failure.contains("dead letters"), "{failure}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_moves_process_and_database() {
    on_each_app(async |app| {
        let before = app.clock.now();
        app.advance(Duration::from_secs(86_400)).await;
        app.create_tenant("acme").await;

        let rows = app.db.rows("select cast(created_at as text) from tenants where name = 'acme'").await;
        let created: String = rows[0].get(0).unwrap();
        let tomorrow = (before + Duration::from_secs(86_400)).to_string();
        assert_eq!(created[..10], tomorrow[..10]);
        let now = match app.store().dialect() {
            store::Dialect::Sqlite => "select mailroom_now()",
            store::Dialect::Postgres => "select cast(mailroom_now() at time zone 'UTC' as text)",
        };
        let now: String = app.db.rows(now).await[0].get(0).unwrap();
        assert_eq!(now[..10], tomorrow[..10]);
    })
    .await;
}
