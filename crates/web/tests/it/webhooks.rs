//! Webhooks of a tenant, from their creation to the deliveries that its server receives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::{EventType, Sha256, SystemRandom};
use engine::delivery::webhooks::{DispatchSettings, WebhookDeliverer, WebhookSender, dispatch};
use outbound::Gateway;
use outbound::http::{AddressPolicy, SystemResolver};
use serde_json::{Value, json};
use testkit::http::HttpOptions;
use testkit::{AppOptions, TestApp, on_each_app, on_each_app_with, wait_until};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::two_tenants::{TwoTenants, generated, import, select, text};

#[derive(Debug, Clone)]
struct ReceivedDelivery {
    id: String,
    timestamp: String,
    signatures: Vec<String>,
    body: Bytes,
}

impl ReceivedDelivery {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// As RFC 2104 has it, from nothing but a hash: not with what made the signature.
    fn is_signed_by(&self, secret: &str) -> bool {
        let mut key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        key.resize(64, 0);
        let message = [format!("{}.{}.", self.id, self.timestamp).as_bytes(), &self.body].concat();
        let inner = Sha256::of(&[padded(&key, 0x36), message].concat());
        let outer = Sha256::of(&[padded(&key, 0x5c), inner.0.to_vec()].concat());
        self.signatures.contains(&format!("v1,{}", STANDARD.encode(outer.0)))
    }
}

fn padded(key: &[u8], with: u8) -> Vec<u8> {
    key.iter().map(|byte| byte ^ with).collect()
}

type Deliveries = Arc<Mutex<Vec<ReceivedDelivery>>>;

/// A server that accepts whatever comes.
struct DeliveryReceiver {
    address: SocketAddr,
    received: Deliveries,
}

impl DeliveryReceiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Deliveries::default();
        let routes = Router::new().fallback(accept).with_state(received.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, received }
    }

    fn all(&self) -> Vec<ReceivedDelivery> {
        self.received.lock().unwrap().clone()
    }

    fn of_type(&self, kind: &str) -> Vec<ReceivedDelivery> {
        self.all().into_iter().filter(|delivery| delivery.json()["type"] == kind).collect()
    }

    fn count(&self, id: &str) -> usize {
        self.all().iter().filter(|delivery| delivery.id == id).count()
    }
}

async fn accept(State(received): State<Deliveries>, headers: HeaderMap, body: Bytes) -> &'static str {
    let [id, timestamp, signatures] =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| headers[name].to_str().unwrap().to_owned());
    let signatures = signatures.split(' ').map(str::to_owned).collect();
    received.lock().unwrap().push(ReceivedDelivery { id, timestamp, signatures, body });
    "ok"
}

fn local_policy() -> AddressPolicy {
    AddressPolicy::new(["127.0.0.0/8".parse().unwrap()])
}

fn local_webhooks() -> AppOptions {
    AppOptions::default().http(HttpOptions { webhook_policy: Some(local_policy()), ..HttpOptions::default() })
}

/// Delivers until it is aborted, as a worker does.
fn start_dispatch(app: &TestApp) -> JoinHandle<()> {
    let sender = WebhookSender::new(local_policy(), Arc::new(SystemResolver::default())).unwrap();
    let deliverer = WebhookDeliverer::new(app.engine.clone(), sender, Gateway::default(), Arc::new(SystemRandom));
    tokio::spawn(async move {
        dispatch(&deliverer, &DispatchSettings::new("test"), std::future::pending()).await;
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_delivered_signed_and_recorded() {
    on_each_app_with(local_webhooks, async |app| {
        let two = TwoTenants::new(app).await;
        let (receiver, dispatching) = (DeliveryReceiver::start().await, start_dispatch(app));
        let url = format!("http://{}/hook", receiver.address);
        let new = json!({"url": url, "types": ["email.received"], "with_backfill": true, "description": "crm"});
        let once = [("Idempotency-Key", "k")];
        let created = two.send_with("POST", "/v1/webhooks", &two.acme_writer, &new, &once).await;
        let again = two.send_with("POST", "/v1/webhooks", &two.acme_writer, &new, &once).await;
        assert_eq!(again.body, created.expect(201).body);
        let (secret, path) = (text(&created.json()["secret"]), created.header("location").to_owned());

        let more = generated(3, 20);
        import(app, &two.acme, "more@acme.test", &more).await;
        import(app, &two.beta, "more@beta.test", &more).await;
        let emitted = app.count(
            "events e join tenants t on t.id = e.tenant_id
             where t.name = 'acme' and e.type = 'email.received' and e.email_id in
                 (select id from emails where mailbox_id = (select id from mailboxes where address = 'more@acme.test'))",
        );
        let emitted = emitted.await;
        assert!(emitted > 0);
        wait_until("all are received", async || receiver.all().len() >= emitted).await;
        assert!(receiver.all().iter().all(|delivery| delivery.is_signed_by(&secret)));
        let mut ids: Vec<String> = receiver.all().iter().map(|delivery| delivery.id.clone()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), emitted, "each once, and nothing of the other tenant");

        let delivered = format!("{path}/deliveries?limit=500&state=delivered");
        wait_until("they are recorded", async || two.ids(&delivered, &two.acme_reader).await.len() == emitted).await;
        let recorded = two.get(&format!("{path}/deliveries?limit=500"), &two.acme_reader).await.json();
        let first = &recorded["items"][0];
        assert_eq!(
            (&first["last_status"], &first["attempts"], &first["last_answer"]),
            (&json!(200), &json!(1), &json!("ok"))
        );

        assert_rotated_and_pinged(&two, &receiver, &path, &secret).await;
        let delivery = text(&first["id"]);
        let resend = format!("{path}/deliveries/{delivery}/resend");
        two.send("POST", &resend, &two.acme_writer, &Value::Null).await.expect(202);
        wait_until("it is received again", async || receiver.count(&delivery) == 2).await;
        // An attempt that is not recorded yet would overwrite the next request.
        let waiting = "webhook_deliveries where state = 'waiting'";
        wait_until("the attempt is recorded", async || app.count(waiting).await == 0).await;
        let since = json!({"since": "2020-01-01T00:00:00Z", "delivered_too": true});
        two.send("POST", &format!("{path}/resend"), &two.acme_writer, &since).await.expect(202);
        wait_until("all are received again", async || receiver.count(&delivery) == 3).await;

        two.send("DELETE", &path, &two.acme_writer, &Value::Null).await.expect(204);
        two.get(&path, &two.acme_reader).await.assert_problem(404, "webhook");
        let audit = select(app, "select entry from audit").await.concat();
        assert!(audit.contains("webhook.create") && !audit.contains("whsec_"), "{audit}");
        dispatching.abort();
    })
    .await;
}

/// With a new secret both sign for a while.
async fn assert_rotated_and_pinged(two: &TwoTenants<'_>, receiver: &DeliveryReceiver, path: &str, old: &str) {
    let rotated = two.send("POST", &format!("{path}/rotate"), &two.acme_writer, &json!({})).await;
    let new = text(&rotated.json()["secret"]);
    assert_ne!(new, old);
    let ping = format!("{path}/ping");
    two.send("POST", &ping, &two.acme_writer, &Value::Null).await.expect(202);
    wait_until("the ping is received", async || !receiver.of_type("webhook.ping").is_empty()).await;
    let pinged = receiver.of_type("webhook.ping").remove(0);
    assert!(pinged.signatures.len() == 2 && pinged.is_signed_by(old) && pinged.is_signed_by(&new), "{pinged:?}");
    let before = two.get(path, &two.acme_reader).await;
    let tag = [("If-Match", before.header("etag"))];
    let paused = two.send_with("PATCH", path, &two.acme_writer, &json!({"state": "paused"}), &tag).await;
    assert_eq!(paused.expect(200).json()["state"], "paused");
    two.send("POST", &ping, &two.acme_writer, &Value::Null).await.assert_problem(409, "activate it first");
    let stale = two.send_with("PATCH", path, &two.acme_writer, &json!({"state": "active"}), &tag).await;
    stale.assert_problem(412, "read it again");
    let active = two.send("PATCH", path, &two.acme_writer, &json!({"state": "active"})).await;
    assert_eq!(active.json()["state"], "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn address_outside_the_open_internet_is_refused() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        for url in [
            "http://127.0.0.1/",
            "https://127.0.0.1/",
            "https://10.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://2130706433/",
            "https://0x7f.1/",
            "http://example.com/",
            "ftp://example.com/",
            "https://user:pass@example.com/",
            "nonsense",
            "",
        ] {
            let new = json!({"url": url});
            two.send("POST", "/v1/webhooks", &two.acme_writer, &new).await.assert_problem(422, "url");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_event_type_is_refused_with_the_nearest_one() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        let refusal = "is no event type; did you mean email.received?";
        let misspelt = json!({"url": "https://hook.invalid/", "types": ["email.deleted", "email.recieved"]});
        two.send("POST", "/v1/webhooks", &two.acme_writer, &misspelt).await.assert_problem(422, refusal);

        let correct = json!({"url": "https://hook.invalid/", "types": ["email.received"]});
        let created = two.send("POST", "/v1/webhooks", &two.acme_writer, &correct).await;
        let path = created.expect(201).header("location").to_owned();
        let change = json!({"types": ["email.recieved"]});
        two.send("PATCH", &path, &two.acme_writer, &change).await.assert_problem(422, refusal);
        assert_eq!(two.get(&path, &two.acme_reader).await.json()["types"], json!(["email.received"]));

        for filtered in ["/v1/events?types=email.deleted,email.recieved", "/v1/events/stream?types=email.recieved"] {
            two.get(filtered, &two.acme_reader).await.assert_problem(422, refusal);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn description_lists_every_event_type() {
    on_each_app(async |app| {
        let description = app.request("GET", "/openapi.json", None, None).await.json();

        let schemas = &description["components"]["schemas"];
        let names: Vec<&str> = EventType::ALL.iter().map(|known| known.as_str()).collect();
        assert_eq!(schemas["EventType"]["enum"], json!(names));
        for request in ["NewWebhook", "WebhookChange"] {
            let types = &schemas[request]["properties"]["types"];
            assert_eq!(types["items"], json!({"$ref": "#/components/schemas/EventType"}), "{request}: {types}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_webhook_fields_are_named() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        for (field, value) in [
            ("types", json!(["Not A Type"])),
            ("types", json!("email.received")),
            ("secret", json!("whsec_short")),
            ("mailbox_id", json!("018f0000-0000-7000-8000-000000000000")),
            ("description", json!("x".repeat(1001))),
            ("tpyes", json!([])),
        ] {
            let mut new = json!({"url": "https://hook.invalid/"});
            new[field] = value;
            two.send("POST", "/v1/webhooks", &two.acme_writer, &new).await.assert_problem(422, field);
        }
    })
    .await;
}
