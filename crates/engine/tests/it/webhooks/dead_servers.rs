//! Servers that do not answer at all: their tenant stops calling them for a while, and nobody else notices.

use domain::{EventType, PlanTier};
use engine::delivery::webhooks::WebhookRequest;
use serde_json::json;
use store::testing::on_each_database;

use super::WebhookApp;

/// Returns the URL of a port at which nothing listens.
async fn dead_url() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/hook", listener.local_addr().unwrap())
}

#[tokio::test]
async fn open_breaker_puts_deliveries_off_and_says_so() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let dead = WebhookRequest { url: dead_url().await, ..WebhookRequest::default() };
        let (webhook, _) = app.add_of(&app.tenant, dead.clone()).await;
        app.emit_events(1).await;
        // The breaker opens after ten calls.
        for _ in 0..9 {
            app.deliver().await;
            app.waited().await;
        }
        let (second, _) = app.add_of(&app.tenant, dead.clone()).await;
        app.emit_events(1).await;
        app.deliver().await;
        app.waited().await;
        let failures = app.find(webhook).await.failures;

        app.deliver().await;

        let (first, second) = (app.find(webhook).await, app.find(second).await);
        assert_eq!(first.failures, failures, "no attempt was made");
        for webhook in [first, second] {
            let reason = webhook.last_error.unwrap();
            assert!(reason.starts_with("the circuit breaker of 127.0.0.1:"), "{reason}");
            assert!(webhook.rest_until.is_some());
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn dead_server_of_one_tenant_leaves_others_alone() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let beta = app.db.store.system().create_tenant("beta", PlanTier::Standard).await.unwrap().unwrap();
        let beta = app.db.store.tenant(beta.id);
        let dead = WebhookRequest { url: dead_url().await, ..WebhookRequest::default() };
        app.add_of(&app.tenant, dead.clone()).await;
        let (same_server, _) = app.add_of(&beta, dead).await;
        app.add("/works").await;
        for _ in 0..12 {
            app.emit_events(1).await;
            app.deliver().await;
            app.waited().await;
        }

        let mut unit = beta.write();
        unit.emit_event(EventType::EmailReceived, None, json!({}));
        unit.commit().await.unwrap();
        app.deliver().await;

        assert_eq!(app.sequence("/works").len(), 12, "another server of the tenant gets its events");
        let of_beta = beta.find_webhook(same_server).await.unwrap().unwrap();
        assert_eq!(of_beta.last_error.as_deref(), Some("the connection failed"), "another tenant has tried by itself");
        app.finish().await;
    })
    .await;
}
