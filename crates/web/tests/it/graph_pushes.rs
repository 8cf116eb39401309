//! Change notifications of Microsoft Graph.

use std::sync::Arc;

use axum::http::Request;
use domain::{Provider, Sha256};
use engine::sync::push::{ClientStates, PushReceiver};
use metrics_exporter_prometheus::PrometheusBuilder;
use providers::outlook::GraphPushReader;
use serde_json::{Value, json};
use store::Dialect;
use testkit::http::HttpOptions;
use testkit::{AppOptions, HttpReply, TestApp, on_each_app_with};

use crate::log_capture::LogCapture;
use crate::two_tenants::select;

const HOOK: &str = "/v1/hooks/graph";
const LIFECYCLE: &str = "/v1/hooks/graph/lifecycle";
/// The same, as for every provider.
const BY_NAME: &str = "/v1/hooks/outlook";

fn options() -> AppOptions {
    AppOptions::default().http(HttpOptions::default().setup(|web| {
        let (store, vault) = (web.engine.store.clone(), web.engine.vault.clone());
        web.pushes.insert(Provider::Outlook, PushReceiver::new(store, vault, Arc::new(GraphPushReader)));
    }))
}

fn address_of(mailbox: usize) -> String {
    format!("someone.special{mailbox}@acme.test")
}

/// Active mailboxes with a subscription each; no worker runs their jobs. Returns the client state of each.
async fn create_mailboxes(app: &TestApp, count: usize) -> Vec<String> {
    app.leaves_jobs(&["sync_mailbox"]);
    app.create_tenant("acme").await;
    let (then, states) = ("'2026-01-01T00:00:00.000Z'", ClientStates::new(app.engine.vault.clone()));
    let mut client_states = Vec::new();
    for n in 0..count {
        let client_state = states.create().await.unwrap().expose().clone();
        let (address, hash) = (address_of(n), Sha256::of(client_state.as_bytes()).hex());
        let hash = match app.store().dialect() {
            Dialect::Sqlite => format!("'{hash}'"),
            Dialect::Postgres => format!("decode('{hash}', 'hex')"),
        };
        let insert_mailbox = format!(
            "insert into mailboxes (id, tenant_id, provider, address, state, state_since, created_at, updated_at)
             select '018f0000-0000-7000-8000-{n:012}', id, 'outlook', '{address}', 'active', {then}, {then}, {then}
             from tenants where name = 'acme'"
        );
        let insert_watch = format!(
            "insert into push_watches (tenant_id, mailbox_id, next_at) select tenant_id, id, {then} from mailboxes
             where address = '{address}'"
        );
        let insert_subscription = format!(
            "insert into push_subscriptions (provider, address, password_sha256, name, claim, held_until)
             values ('outlook', '{address}', {hash}, 's{n}', '', {then})"
        );
        app.db.run_all(&[&insert_mailbox, &insert_watch, &insert_subscription]).await;
        client_states.push(client_state);
    }
    client_states
}

fn notification(id: &str, mailbox: usize, client_state: &str) -> Value {
    json!({"id": id, "subscriptionId": format!("s{mailbox}"), "clientState": client_state,
        "changeType": "created", "tenantId": "t", "subscriptionExpirationDateTime": "2100-01-01T00:00:00Z",
        "resource": format!("Users/u/Messages/{id}"), "resourceData": {"@odata.etag": "W/\"1\"", "id": id}})
}

fn with(mut notification: Value, field: &str, value: &str) -> Value {
    notification[field] = json!(value);
    notification
}

fn body(notifications: &[Value]) -> Vec<u8> {
    json!({"value": notifications}).to_string().into_bytes()
}

async fn deliver(app: &TestApp, path: &str, body: &[u8]) -> HttpReply {
    let request = Request::post(path).header("content-type", "application/json");
    app.send(request.body(body.to_vec().into()).unwrap()).await
}

/// Syncs that are requested, and messages that are recorded.
async fn counts(app: &TestApp) -> (usize, usize) {
    (app.count("jobs where kind = 'sync_mailbox'").await, app.count("push_messages").await)
}

async fn validate(app: &TestApp, hook: &str, token: &str) -> HttpReply {
    let request = Request::post(format!("{hook}?validationToken={token}"));
    app.send(request.header("content-type", "text/plain; charset=utf-8").body(axum::body::Body::empty()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn validation_token_is_returned_exactly() {
    on_each_app_with(options, async |app| {
        for hook in [HOOK, LIFECYCLE, BY_NAME] {
            for (token, wanted) in [
                (
                    "Validation%3a+Testing+client+application+reachability+%26+more",
                    "Validation: Testing client application reachability & more",
                ),
                ("a%2Bb%20c%C3%A9%22%3E%25", "a+b c\u{e9}\">%"),
                (&"x".repeat(2048), &"x".repeat(2048)),
            ] {
                let reply = validate(app, hook, token).await;
                assert_eq!(reply.expect(200).text(), wanted);
                assert_eq!(reply.header("content-type"), "text/plain");
                assert_eq!(reply.header("x-content-type-options"), "nosniff");
            }
            for markup in ["%3Cscript%3Ealert(1)%3C/script%3E", "a%3Cb", "a%00b", "a%0d%0ab", "", &"x".repeat(2049)] {
                validate(app, hook, markup).await.assert_problem(400, "validationToken");
            }
            let get = format!("{hook}?validationToken=x");
            app.request("GET", &get, None, None).await.assert_problem(405, "method");
        }
    })
    .await;
}

/// On a runtime of one thread: counters and logs are this thread's.
#[tokio::test]
async fn only_authentic_notifications_are_recorded() {
    on_each_app_with(options, async |app| {
        let states = create_mailboxes(app, 2).await;
        let recorder = PrometheusBuilder::new().build_recorder();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let logs = LogCapture::default();
        let _capturing = logs.start();

        for malformed in [&b""[..], b"{", b"[]", b"{}", b"{\"value\":null}", b"{\"value\":{}}", b"\xff\xfe"] {
            deliver(app, HOOK, malformed).await.assert_problem(400, "not a Microsoft Graph notification");
        }
        let genuine = notification("1", 0, &states[0]);
        let large = [body(std::slice::from_ref(&genuine)), vec![b' '; 1 << 20]].concat();
        deliver(app, HOOK, &large).await.expect(413);
        let many = body(&vec![json!({}); 5001]);
        deliver(app, HOOK, &many).await.assert_problem(400, "not a Microsoft Graph notification");
        let forged = notification("1", 0, &states[1]);
        let unknown = with(genuine.clone(), "subscriptionId", "s7");
        for _ in 0..20 {
            let reply = deliver(app, HOOK, &body(&[forged.clone(), unknown.clone()])).await;
            assert_eq!(reply.expect(202).body.len(), 0, "who guesses learns nothing");
        }
        let forged_missed = with(forged.clone(), "lifecycleEvent", "missed");
        deliver(app, LIFECYCLE, &body(&[forged_missed])).await.expect(202);
        assert_eq!(counts(app).await, (0, 0), "nothing has happened");

        let second = notification("2", 0, &states[0]);
        let mixed = [json!(7), forged, genuine.clone(), json!({"clientState": []}), second, genuine];
        for _ in 0..2 {
            deliver(app, HOOK, &body(&mixed)).await.expect(202);
            assert_eq!(counts(app).await, (1, 2));
        }
        let missed = with(notification("3", 1, &states[1]), "lifecycleEvent", "missed");
        deliver(app, LIFECYCLE, &body(&[missed])).await.expect(202);
        assert_eq!(counts(app).await, (2, 2));
        let swept = "select cast(mailbox_id as text) from push_watches where sweep_since is not null";
        assert_eq!(select(app, swept).await, ["018f0000-0000-7000-8000-000000000001"]);
        let metrics = recorder.handle().render();
        for counted in ["accepted\"} 3", "repeated\"} 4", "unknown\"} 20", "forbidden\"} 23", "malformed\"} 12"] {
            let line = format!("mailroom_pushes_total{{provider=\"outlook\",outcome=\"{counted}");
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
        let log = logs.text();
        assert_eq!(log.matches("clientState does not match").count(), 1, "it is logged once: {log}");
        for secret in [&address_of(0), &states[0], &states[1]] {
            assert!(!log.contains(secret), "{secret}: {log}");
        }
    })
    .await;
}
