//! Pushes of Gmail, signed as Google signs them.

use std::sync::Arc;

use domain::Provider;
use engine::sync::push::PushReceiver;
use futures_util::future::BoxFuture;
use jwt::Documents;
use metrics_exporter_prometheus::PrometheusBuilder;
use providers::gmail::{GmailPushReader, GmailPushSettings};
use serde_json::{Value, json};
use testkit::http::HttpOptions;
use testkit::signed_tokens::GmailPusher;
use testkit::{AppOptions, HttpReply, TestApp, on_each_app, on_each_app_with};

use crate::log_capture::LogCapture;

const HOOK: &str = "/v1/hooks/gmail";
const ADDRESS: &str = "someone.special@acme.test";

/// Google's public keys, if they can be had.
#[derive(Debug, Clone)]
struct GoogleKeys(Option<Value>);

impl Documents for GoogleKeys {
    fn get<'a>(&'a self, _: &'a str) -> BoxFuture<'a, anyhow::Result<Value>> {
        let keys = self.0.clone();
        Box::pin(async { keys.ok_or_else(|| anyhow::anyhow!("the keys cannot be had")) })
    }
}

fn google_keys() -> GoogleKeys {
    GoogleKeys(Some(GmailPusher::default().public_keys()))
}

fn options(keys: GoogleKeys) -> AppOptions {
    AppOptions::default().http(HttpOptions::default().setup(move |web| {
        let settings = GmailPushSettings {
            jwks_url: "https://google.test/certs".to_owned(),
            audience: GmailPusher::AUDIENCE.to_owned(),
            service_account: GmailPusher::ACCOUNT.to_owned(),
        };
        let reader = Arc::new(GmailPushReader::new(settings, Box::new(keys.clone())));
        let pushes = PushReceiver::new(web.engine.store.clone(), web.engine.vault.clone(), reader);
        web.pushes.insert(Provider::Gmail, pushes);
    }))
}

async fn deliver(app: &TestApp, authorization: Option<&str>, body: &[u8]) -> HttpReply {
    let mut request = axum::http::Request::post(HOOK);
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    app.send(request.body(body.to_vec().into()).unwrap()).await
}

async fn deliver_with(app: &TestApp, token: &str, body: &[u8]) -> HttpReply {
    deliver(app, Some(&format!("Bearer {token}")), body).await
}

/// An active mailbox. No worker runs its jobs.
async fn create_mailbox(app: &TestApp) {
    app.create_tenant("acme").await;
    let then = "'2026-01-01T00:00:00.000Z'";
    let insert = format!(
        "insert into mailboxes (id, tenant_id, provider, address, state, state_since, created_at, updated_at)
         select '018f0000-0000-7000-8000-000000000001', id, 'gmail', '{ADDRESS}', 'active', {then}, {then}, {then}
         from tenants where name = 'acme'"
    );
    app.db.run(&insert).await;
}

/// Syncs that are requested, and messages that are recorded.
async fn counts(app: &TestApp) -> (usize, usize) {
    (app.count("jobs where kind = 'sync_mailbox'").await, app.count("push_messages").await)
}

/// On a runtime of one thread: counters and logs are this thread's.
#[tokio::test]
async fn only_pushes_of_the_subscription_are_recorded() {
    on_each_app_with(
        || options(google_keys()),
        async |app| {
            create_mailbox(app).await;
            app.leaves_jobs(&["sync_mailbox"]);
            let recorder = PrometheusBuilder::new().build_recorder();
            let _recording = metrics::set_default_local_recorder(&recorder);
            let logs = LogCapture::default();
            let _capturing = logs.start();
            let google = GmailPusher::default();
            let body = GmailPusher::push("1", ADDRESS);

            deliver(app, None, &body).await.assert_problem(401, "token is missing");
            deliver(app, Some("Basic eDp5"), &body).await.assert_problem(401, "token is missing");
            let refused = deliver_with(app, "mr_tenant_whatever", &body).await;
            refused.assert_problem(401, "it is malformed");
            assert_eq!(refused.header("www-authenticate"), "Bearer");
            let good = google.good_token();
            let (signed, _) = good.rsplit_once('.').unwrap();
            deliver_with(app, &format!("{signed}.AAAA"), &body).await.assert_problem(401, "signature");
            for (claim, value, status, says) in [
                ("exp", json!(1), 401, "expired"),
                ("iss", json!("https://evil.example"), 401, "issuer"),
                ("aud", json!("https://other.example"), 403, "aud"),
            ] {
                deliver_with(app, &google.token_with(claim, value), &body).await.assert_problem(status, says);
            }
            for _ in 0..20 {
                let another = google.token_with("email", json!("eve@project.iam.gserviceaccount.com"));
                deliver_with(app, &another, &body).await.assert_problem(403, "another service account");
            }
            let large = [GmailPusher::push("2", ADDRESS), vec![b' '; 64 << 10]].concat();
            deliver_with(app, &good, &large).await.assert_problem(413, "the body is larger than");
            app.request("GET", HOOK, None, None).await.assert_problem(405, "method");
            assert_eq!(counts(app).await, (0, 0), "nothing has happened");

            for (body, jobs) in [
                (GmailPusher::push("3", "nobody@acme.test"), 0),
                (b"{\"message\": 7}".to_vec(), 0),
                (Vec::new(), 0),
                (body.clone(), 1),
                (body, 1),
                (GmailPusher::push("4", ADDRESS), 1),
            ] {
                let reply = deliver_with(app, &good, &body).await;
                assert_eq!((reply.expect(204).body.len(), counts(app).await.0), (0, jobs), "{reply:?}");
            }
            assert_eq!(counts(app).await, (1, 2));
            let metrics = recorder.handle().render();
            for counted in ["accepted\"} 2", "repeated\"} 1", "unknown\"} 1", "malformed\"} 2", "forbidden\"} 21"] {
                assert!(metrics.contains(&format!("outcome=\"{counted}")), "{counted}: {metrics}");
            }
            let log = logs.text();
            assert_eq!(log.matches("another service account").count(), 1, "it is logged once: {log}");
            for secret in [ADDRESS, "nobody@acme.test", "eve@", signed] {
                assert!(!log.contains(secret), "{secret}: {log}");
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_are_refused_unless_configured() {
    on_each_app(async |app| {
        create_mailbox(app).await;
        let reply = deliver_with(app, &GmailPusher::default().good_token(), &GmailPusher::push("1", ADDRESS)).await;
        reply.assert_problem(404, "push_service_account");
        assert_eq!(counts(app).await, (0, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_are_sent_again_while_keys_are_missing() {
    on_each_app_with(
        || options(GoogleKeys(None)),
        async |app| {
            create_mailbox(app).await;
            deliver_with(app, &GmailPusher::default().good_token(), &GmailPusher::push("1", ADDRESS))
                .await
                .assert_problem(503, "keys");
            assert_eq!(counts(app).await, (0, 0));
        },
    )
    .await;
}
