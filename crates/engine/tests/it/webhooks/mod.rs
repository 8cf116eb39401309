//! Events reach whoever wants to be told of them, whatever happens on the way, and nobody else.

mod dead_servers;
mod failing_endpoints;
mod hostile;
mod receiver;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::{DeliveryState, EventType, MailboxId, SystemClock, SystemRandom, WebhookId};
use engine::delivery::webhooks::{SecretRotation, WebhookDeliverer, WebhookRequest, WebhookSender, draft, rotate};
use outbound::Gateway;
use outbound::http::{AddressPolicy, SystemResolver};
use serde_json::json;
use sha2::{Digest, Sha256};
use store::TenantStore;
use store::sql::webhook_deliveries::Delivery;
use store::sql::webhooks::{Webhook, WebhookLease};
use store::testing::{TestDatabase, on_each_database};
use testkit::{AppOptions, TestApp};

use crate::events::assert_like_examples;
use receiver::{Receiver, Request};

const HOLD: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3600);
const PAST: &str = "'2020-01-01T00:00:00.000Z'";

/// An application with one tenant, whose webhooks are delivered when a test says so.
struct WebhookApp {
    app: TestApp,
    tenant: TenantStore,
    courier: WebhookDeliverer,
    receiver: Receiver,
}

impl Deref for WebhookApp {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

fn local() -> AddressPolicy {
    AddressPolicy::new(["127.0.0.0/8".parse().unwrap()])
}

impl WebhookApp {
    async fn new(db: TestDatabase) -> Self {
        let app = TestApp::new(db, AppOptions::default());
        let tenant = app.create_tenant("acme").await;
        let sender = WebhookSender::new(local(), Arc::new(SystemResolver::default())).unwrap().with_timeout(LONG);
        let courier = WebhookDeliverer::new(app.engine.clone(), sender, Gateway::default(), Arc::new(SystemRandom));
        Self { app, tenant, courier, receiver: Receiver::new().await }
    }

    /// A webhook that is told of everything, and its secret.
    async fn add(&self, path: &str) -> (WebhookId, String) {
        self.add_of(&self.tenant, self.everything_to(path)).await
    }

    fn everything_to(&self, path: &str) -> WebhookRequest {
        WebhookRequest { url: self.receiver.url(path), ..WebhookRequest::default() }
    }

    async fn add_of(&self, tenant: &TenantStore, wanted: WebhookRequest) -> (WebhookId, String) {
        let drafted = draft(&self.engine, &local(), tenant.id, wanted, tenant.clock().now()).await.unwrap();
        let mut unit = tenant.write();
        drafted.add_to(&mut unit);
        unit.commit().await.unwrap();
        (drafted.webhook.id, drafted.secret.expose().clone())
    }

    /// The webhook with a new secret, not stored yet.
    async fn rotated(&self, id: WebhookId, keep_old_for: Duration) -> SecretRotation {
        let (webhook, now) = (self.find(id).await, self.tenant.clock().now());
        rotate(&self.engine, self.tenant.id, &webhook, None, keep_old_for, now).await.unwrap()
    }

    async fn emit_events(&self, count: usize) {
        let mut unit = self.tenant.write();
        (0..count).for_each(|n| unit.emit_event(EventType::EmailReceived, None, json!({"n": n})));
        unit.commit().await.unwrap();
    }

    /// Numbers of the events that arrived there, in order.
    fn sequence(&self, path: &str) -> Vec<u64> {
        let mut seqs: Vec<u64> = self.receiver.requests(path).iter().map(Request::seq).collect();
        seqs.sort_unstable();
        seqs
    }

    async fn claim(&self) -> Vec<WebhookLease> {
        self.db.store.system().claim_webhooks("test", 100, HOLD).await.unwrap()
    }

    /// All that there is to do now. How many webhooks had something.
    async fn deliver(&self) -> usize {
        let held = self.claim().await;
        let all = futures_util::future::join_all(held.iter().map(|held| self.courier.deliver(*held))).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
        held.len()
    }

    async fn find(&self, id: WebhookId) -> Webhook {
        self.tenant.find_webhook(id).await.unwrap().unwrap()
    }

    async fn log(&self, id: WebhookId) -> Vec<Delivery> {
        self.tenant.list_deliveries(id, None, None, 1000).await.unwrap()
    }

    /// What rests has rested.
    async fn rested(&self) {
        self.db.run(&format!("update webhooks set rest_until = {PAST} where rest_until is not null")).await;
    }

    /// What waits has waited.
    async fn waited(&self) {
        self.rested().await;
        self.db
            .run_all(&[
                &format!("update webhook_deliveries set next_at = {PAST} where state = 'waiting'"),
                &format!("update webhooks set due_at = {PAST} where due_at is not null"),
            ])
            .await;
    }
}

/// After RFC 2104, and not with the code that signed.
fn verify(request: &Request, secret: &str) -> bool {
    let mut key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    key.resize(64, 0);
    let pad = |with: u8| key.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
    let mut signed =
        format!("{}.{}.", request.headers["webhook-id"], request.headers["webhook-timestamp"]).into_bytes();
    signed.extend(&request.body);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(&signed).finalize();
    let expected =
        format!("v1,{}", STANDARD.encode(Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize()));
    request.headers["webhook-signature"].split(' ').any(|signature| signature == expected)
}

#[tokio::test]
async fn event_arrives_signed_as_the_api_shows_it() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        app.emit_events(1).await; // before there was anybody to be told
        let (webhook, secret) = app.add("/hook").await;
        assert_eq!(app.deliver().await, 0);
        app.emit_events(1).await;

        assert_eq!(app.deliver().await, 1);

        let requests = app.receiver.requests("/hook");
        let [request] = &requests[..] else { panic!("{requests:?}") };
        let event = &app.tenant.list_events(1, 10).await.unwrap()[0];
        assert_eq!(request.json(), json!({"type": "email.received", "timestamp": event.at, "data": event}));
        assert!(request.json()["timestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!(request.headers["content-type"], "application/json");
        assert!(verify(request, &secret), "{request:?}");
        let mut forged = request.clone();
        forged.body.push(b' ');
        assert!(!verify(&forged, &secret));
        let sent_at: i64 = request.headers["webhook-timestamp"].parse().unwrap();
        assert!((sent_at - event.at.as_second()).abs() < 3600);
        let log = app.log(webhook).await;
        let [delivery] = &log[..] else { panic!("{log:?}") };
        assert_eq!((delivery.id.to_string().as_str(), delivery.event_seq), (request.id(), Some(2)));
        assert_eq!((delivery.state, delivery.attempts, delivery.last_status), (DeliveryState::Delivered, 1, Some(200)));
        assert_eq!(delivery.last_answer.as_deref(), Some("thanks"));
        assert_eq!(app.deliver().await, 0, "once");
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn stored_webhook_of_an_unknown_type_receives_nothing() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        // As an older version stored it, which took any name.
        let stored = Webhook { types: vec!["none.such".to_owned()], ..app.find(webhook).await };
        let mut unit = app.tenant.write();
        unit.change_webhook(stored.version, &stored);
        unit.commit().await.unwrap();
        app.emit_events(1).await;

        assert_eq!(app.deliver().await, 1);

        assert_eq!(app.sequence("/hook"), [0; 0]);
        assert_eq!(app.find(webhook).await.types, ["none.such"]);
        assert_eq!(app.deliver().await, 0, "it is not claimed for ever");
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn webhook_receives_only_matching_events() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (ours, other) = (MailboxId::new(&SystemClock), MailboxId::new(&SystemClock));
        let types = vec!["email.deleted".to_owned()];
        app.add_of(&app.tenant, WebhookRequest { types, ..app.everything_to("/types") }).await;
        app.add_of(&app.tenant, WebhookRequest { mailbox_id: Some(ours), ..app.everything_to("/mailbox") }).await;
        app.add_of(&app.tenant, app.everything_to("/live")).await;
        app.add_of(&app.tenant, WebhookRequest { with_backfill: true, ..app.everything_to("/all") }).await;
        let beta = app.create_tenant("beta").await;
        app.add_of(&beta, app.everything_to("/beta")).await;
        let mut unit = app.tenant.write();
        unit.emit_event(EventType::EmailDeleted, Some(other), json!({}));
        unit.emit_event(EventType::EmailReceived, Some(ours), json!({}));
        unit.emit_event(EventType::EmailReceived, Some(other), json!({}));
        unit.commit().await.unwrap();
        app.db.run("update events set is_backfill = (1 = 1) where seq = 3").await;

        assert_eq!(app.deliver().await, 4);

        assert_eq!(app.sequence("/types"), [1]);
        assert_eq!(app.sequence("/mailbox"), [2]);
        assert_eq!(app.sequence("/live"), [1, 2]);
        assert_eq!(app.sequence("/all"), [1, 2, 3]);
        assert_eq!(app.sequence("/beta"), [0; 0]);
        assert_eq!(app.deliver().await, 0, "nobody is claimed for ever");
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn many_events_arrive_once_each() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.emit_events(350).await;

        while app.deliver().await > 0 {}

        let mut seqs: Vec<u64> = app.receiver.requests("/hook").iter().map(Request::seq).collect();
        seqs.sort_unstable();
        assert_eq!(seqs, (1..=350).collect::<Vec<_>>());
        assert!(app.log(webhook).await.iter().all(|it| it.state == DeliveryState::Delivered));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn both_secrets_sign_during_a_rotation() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, old) = app.add("/hook").await;
        let rotated = app.rotated(webhook, LONG).await;
        let mut unit = app.tenant.write();
        rotated.add_to(&mut unit);
        unit.commit().await.unwrap();
        let new = rotated.secret.expose().clone();
        app.emit_events(1).await;
        app.deliver().await;
        let request = &app.receiver.wait_for("/hook", 1).await[0];
        assert!(verify(request, &old) && verify(request, &new));
        assert_eq!(request.headers["webhook-signature"].split(' ').count(), 2);

        let rotated = app.rotated(webhook, Duration::ZERO).await;
        let mut unit = app.tenant.write();
        rotated.add_to(&mut unit);
        unit.commit().await.unwrap();
        app.emit_events(1).await;
        app.deliver().await;
        let request = &app.receiver.wait_for("/hook", 2).await[1];
        assert!(!verify(request, &old) && !verify(request, &new) && verify(request, rotated.secret.expose()));
        assert_eq!(app.db.rows("select 1 from secrets").await.len(), 1, "those that are over are gone");

        let webhook = app.find(webhook).await;
        let mut unit = app.tenant.write();
        unit.remove_webhook(&webhook);
        unit.commit().await.unwrap();
        assert_eq!(app.db.rows("select 1 from secrets").await.len(), 0);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn redelivery_keeps_its_id() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, secret) = app.add("/hook").await;
        app.emit_events(2).await;
        app.deliver().await;
        let first = app.receiver.requests("/hook");
        let ids: Vec<_> = app.log(webhook).await.iter().map(|it| it.id).collect();

        let mut unit = app.tenant.write();
        unit.resend(webhook, vec![ids[0]]);
        let ping = unit.ping(webhook);
        unit.commit().await.unwrap();
        assert_eq!(app.deliver().await, 1);

        let all = app.receiver.requests("/hook");
        let again: Vec<_> = all[2..].iter().filter(|request| request.id() == ids[0].to_string()).collect();
        let [again] = &again[..] else { panic!("{all:?}") };
        assert!(first.iter().any(|before| before.id() == again.id() && before.body == again.body));
        let pinged = all.iter().find(|request| request.id() == ping.to_string()).unwrap();
        assert_eq!(pinged.json()["type"], "webhook.ping");
        assert_eq!(pinged.json()["data"], json!({"webhook_id": webhook}));
        assert!(verify(pinged, &secret));
        assert_eq!(all.len(), 4);
        assert!(app.log(webhook).await.iter().all(|it| it.state == DeliveryState::Delivered));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn every_webhook_is_told_of_a_restore() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let few = WebhookRequest { types: vec!["email.deleted".to_owned()], ..app.everything_to("/few") };
        let (few, _) = app.add_of(&app.tenant, few).await;
        app.add("/all").await;
        app.emit_events(2).await;
        assert_eq!(app.deliver().await, 2);

        store::restored::mark(&app.db.location, "a backup").await.unwrap();
        app.db.store.migrate().await.unwrap();
        // The numbers between were given to nobody, so nothing is looked for there.
        for _ in 0..3 {
            app.deliver().await;
        }

        let told = app.tenant.list_events(2, 10).await.unwrap();
        assert_like_examples(&told);
        let seq = told[0].seq;
        assert_eq!((app.sequence("/few"), app.sequence("/all")), (vec![seq], vec![1, 2, seq]));
        assert_eq!(app.find(few).await.cursor, seq);
        app.app.finish().await;
    })
    .await;
}
