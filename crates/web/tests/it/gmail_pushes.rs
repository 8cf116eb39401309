//! Pushes of Gmail, signed as Google signs them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::{Clock, SystemClock};
use engine::oidc::Documents;
use engine::push::{GmailPushSettings, GmailPushes};
use futures_util::future::BoxFuture;
use metrics_exporter_prometheus::PrometheusBuilder;
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair, PublicKeyComponents};
use serde_json::{Value, json};
use testkit::http::HttpOptions;
use testkit::{AppOptions, HttpReply, TestApp, on_each_app, on_each_app_with};

use crate::log_capture::LogCapture;

const KEY: &[u8] = include_bytes!("../../../sim/src/keys/issuer-1.der");
const AUDIENCE: &str = "https://mail.example/v1/hooks/gmail";
const ACCOUNT: &str = "push@project.iam.gserviceaccount.com";
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
    let public = PublicKeyComponents::<Vec<u8>>::from(KeyPair::from_pkcs8(KEY).unwrap().public());
    let (n, e) = (URL_SAFE_NO_PAD.encode(public.n), URL_SAFE_NO_PAD.encode(public.e));
    let key = json!({"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": n, "e": e});
    GoogleKeys(Some(json!({"keys": [key]})))
}

fn options(keys: GoogleKeys) -> AppOptions {
    AppOptions::default().http(HttpOptions::default().setup(move |web| {
        let settings = GmailPushSettings {
            jwks_url: "https://google.test/certs".to_owned(),
            audience: AUDIENCE.to_owned(),
            service_account: ACCOUNT.to_owned(),
        };
        web.gmail_pushes = Some(GmailPushes::new(web.engine.store.clone(), settings, Box::new(keys.clone())));
    }))
}

/// A good token, but for this claim.
fn token(claim: &str, value: Value) -> String {
    let now = SystemClock.now().as_second();
    let mut claims = json!({"iss": "https://accounts.google.com", "aud": AUDIENCE, "email": ACCOUNT,
        "email_verified": true, "iat": now, "exp": now + 3600, "sub": "1"});
    claims[claim] = value;
    let head = json!({"alg": "RS256", "kid": "one"});
    let signed = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let key = KeyPair::from_pkcs8(KEY).unwrap();
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&ring::signature::RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn good_token() -> String {
    token("sub", json!("1"))
}

fn push(message: &str, address: &str) -> Vec<u8> {
    let data = STANDARD.encode(json!({"emailAddress": address, "historyId": "987"}).to_string());
    json!({"message": {"messageId": message, "data": data}, "subscription": "s"}).to_string().into_bytes()
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
    app.leaves_jobs();
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
            let recorder = PrometheusBuilder::new().build_recorder();
            let _recording = metrics::set_default_local_recorder(&recorder);
            let logs = LogCapture::default();
            let _capturing = logs.start();
            let body = push("1", ADDRESS);

            deliver(app, None, &body).await.assert_problem(401, "token is missing");
            deliver(app, Some("Basic eDp5"), &body).await.assert_problem(401, "token is missing");
            let refused = deliver_with(app, "mr_tenant_whatever", &body).await;
            refused.assert_problem(401, "it is malformed");
            assert_eq!(refused.header("www-authenticate"), "Bearer");
            let good = good_token();
            let (signed, _) = good.rsplit_once('.').unwrap();
            deliver_with(app, &format!("{signed}.AAAA"), &body).await.assert_problem(401, "signature");
            for (claim, value, status, says) in [
                ("exp", json!(1), 401, "expired"),
                ("iss", json!("https://evil.example"), 401, "issuer"),
                ("aud", json!("https://other.example"), 403, "aud"),
            ] {
                deliver_with(app, &token(claim, value), &body).await.assert_problem(status, says);
            }
            for _ in 0..20 {
                let another = token("email", json!("eve@project.iam.gserviceaccount.com"));
                deliver_with(app, &another, &body).await.assert_problem(403, "another service account");
            }
            let large = [push("2", ADDRESS), vec![b' '; 64 << 10]].concat();
            deliver_with(app, &good, &large).await.assert_problem(413, "the body is larger than");
            app.request("GET", HOOK, None, None).await.assert_problem(405, "method");
            assert_eq!(counts(app).await, (0, 0), "nothing has happened");

            for (body, jobs) in [
                (push("3", "nobody@acme.test"), 0),
                (b"{\"message\": 7}".to_vec(), 0),
                (Vec::new(), 0),
                (body.clone(), 1),
                (body, 1),
                (push("4", ADDRESS), 1),
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
        let reply = deliver_with(app, &good_token(), &push("1", ADDRESS)).await;
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
            deliver_with(app, &good_token(), &push("1", ADDRESS)).await.assert_problem(503, "keys");
            assert_eq!(counts(app).await, (0, 0));
        },
    )
    .await;
}
