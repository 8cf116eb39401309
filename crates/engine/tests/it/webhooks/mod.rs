//! Events reach whoever wants to be told of them, whatever happens on the way, and nobody else.

mod hostile;
mod receiver;
mod speed;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::{DeliveryState, MailboxId, PlanTier, SystemClock, WebhookId};
use engine::Engine;
use engine::webhooks::{Courier, Policy, Sender, SystemResolver, Wanted, draft, rotate};
use jobs::SystemDice;
use serde_json::json;
use sha2::{Digest, Sha256};
use store::TenantStore;
use store::sql::webhook_deliveries::Delivery;
use store::sql::webhooks::{HeldWebhook, Webhook};
use store::testing::{TestDatabase, on_each_database};

use crate::bench::Bench;
use receiver::{Receiver, Request};

const HOLD: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3600);
const PAST: &str = "'2020-01-01T00:00:00.000Z'";

/// A tenant, and a worker that delivers when it is told to.
struct Scene {
    db: TestDatabase,
    engine: Engine,
    tenant: TenantStore,
    courier: Courier,
    receiver: Receiver,
    _folder: tempfile::TempDir,
}

fn local() -> Policy {
    Policy::new(["127.0.0.0/8".parse().unwrap()])
}

impl Scene {
    async fn new(db: TestDatabase) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Bench::engine(&db.store, folder.path());
        let tenant = db.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
        let tenant = db.store.tenant(tenant.id);
        let sender = Sender::new(local(), Arc::new(SystemResolver::default())).unwrap().with_timeout(LONG);
        let courier = Courier::new(engine.clone(), sender, Arc::new(SystemDice));
        Self { db, engine, tenant, courier, receiver: Receiver::new().await, _folder: folder }
    }

    /// A webhook that is told of everything, and its secret.
    async fn add(&self, path: &str) -> (WebhookId, String) {
        self.add_of(&self.tenant, Wanted { url: self.receiver.url(path), ..Wanted::default() }).await
    }

    async fn add_of(&self, tenant: &TenantStore, wanted: Wanted) -> (WebhookId, String) {
        let drafted = draft(&self.engine, &local(), tenant.id, wanted).await.unwrap();
        let mut unit = tenant.write();
        drafted.add_to(&mut unit);
        unit.commit().await.unwrap();
        (drafted.webhook.id, drafted.secret.expose().clone())
    }

    async fn say(&self, count: usize) {
        let mut unit = self.tenant.write();
        (0..count).for_each(|n| unit.say("email.received", None, json!({"n": n})));
        unit.commit().await.unwrap();
    }

    async fn claim(&self) -> Vec<HeldWebhook> {
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
async fn an_event_arrives_signed_and_as_the_api_shows_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        scene.say(1).await; // before there was anybody to be told
        let (webhook, secret) = scene.add("/hook").await;
        assert_eq!(scene.deliver().await, 0);
        scene.say(1).await;

        assert_eq!(scene.deliver().await, 1);

        let requests = scene.receiver.requests("/hook");
        let [request] = &requests[..] else { panic!("{requests:?}") };
        let event = &scene.tenant.list_events(1, 10).await.unwrap()[0];
        assert_eq!(request.json(), json!({"type": "email.received", "timestamp": event.at, "data": event}));
        assert!(request.json()["timestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!(request.headers["content-type"], "application/json");
        assert!(verify(request, &secret), "{request:?}");
        let mut forged = request.clone();
        forged.body.push(b' ');
        assert!(!verify(&forged, &secret));
        let sent_at: i64 = request.headers["webhook-timestamp"].parse().unwrap();
        assert!((sent_at - event.at.as_second()).abs() < 3600);
        let log = scene.log(webhook).await;
        let [delivery] = &log[..] else { panic!("{log:?}") };
        assert_eq!((delivery.id.to_string().as_str(), delivery.event_seq), (request.id(), Some(2)));
        assert_eq!((delivery.state, delivery.attempts, delivery.last_status), (DeliveryState::Delivered, 1, Some(200)));
        assert_eq!(delivery.last_answer.as_deref(), Some("thanks"));
        assert_eq!(scene.deliver().await, 0, "once");
    })
    .await;
}

#[tokio::test]
async fn only_what_is_wanted_is_told_and_the_rest_is_passed_over() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (ours, other) = (MailboxId::new(&SystemClock), MailboxId::new(&SystemClock));
        let wanted = |path: &str| Wanted { url: scene.receiver.url(path), ..Wanted::default() };
        let types = vec!["email.deleted".to_owned()];
        scene.add_of(&scene.tenant, Wanted { types, ..wanted("/types") }).await;
        scene.add_of(&scene.tenant, Wanted { mailbox_id: Some(ours), ..wanted("/mailbox") }).await;
        scene.add_of(&scene.tenant, wanted("/live")).await;
        scene.add_of(&scene.tenant, Wanted { with_backfill: true, ..wanted("/all") }).await;
        let beta = scene.db.store.system().create_tenant("beta", PlanTier::Standard).await.unwrap().unwrap();
        scene.add_of(&scene.db.store.tenant(beta.id), wanted("/beta")).await;
        let mut unit = scene.tenant.write();
        unit.say("email.deleted", Some(other), json!({}));
        unit.say("email.received", Some(ours), json!({}));
        unit.say("email.received", Some(other), json!({}));
        unit.commit().await.unwrap();
        scene.db.run("update events set is_backfill = (1 = 1) where seq = 3").await;

        assert_eq!(scene.deliver().await, 4);

        let seqs = |path: &str| {
            let mut seqs: Vec<u64> = scene.receiver.requests(path).iter().map(Request::seq).collect();
            seqs.sort_unstable();
            seqs
        };
        assert_eq!(seqs("/types"), [1]);
        assert_eq!(seqs("/mailbox"), [2]);
        assert_eq!(seqs("/live"), [1, 2]);
        assert_eq!(seqs("/all"), [1, 2, 3]);
        assert_eq!(seqs("/beta"), [0; 0]);
        assert_eq!(scene.deliver().await, 0, "nobody is claimed for ever");
    })
    .await;
}

#[tokio::test]
async fn many_events_all_arrive_each_once() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.say(350).await;

        while scene.deliver().await > 0 {}

        let mut seqs: Vec<u64> = scene.receiver.requests("/hook").iter().map(Request::seq).collect();
        seqs.sort_unstable();
        assert_eq!(seqs, (1..=350).collect::<Vec<_>>());
        assert!(scene.log(webhook).await.iter().all(|it| it.state == DeliveryState::Delivered));
    })
    .await;
}

#[tokio::test]
async fn while_secrets_change_both_sign() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, old) = scene.add("/hook").await;
        let rotated = rotate(&scene.engine, scene.tenant.id, &scene.find(webhook).await, None, LONG).await.unwrap();
        let mut unit = scene.tenant.write();
        rotated.add_to(&mut unit);
        unit.commit().await.unwrap();
        let new = rotated.secret.expose().clone();
        scene.say(1).await;
        scene.deliver().await;
        let request = &scene.receiver.wait_for("/hook", 1).await[0];
        assert!(verify(request, &old) && verify(request, &new));
        assert_eq!(request.headers["webhook-signature"].split(' ').count(), 2);

        let rotated =
            rotate(&scene.engine, scene.tenant.id, &scene.find(webhook).await, None, Duration::ZERO).await.unwrap();
        let mut unit = scene.tenant.write();
        rotated.add_to(&mut unit);
        unit.commit().await.unwrap();
        scene.say(1).await;
        scene.deliver().await;
        let request = &scene.receiver.wait_for("/hook", 2).await[1];
        assert!(!verify(request, &old) && !verify(request, &new) && verify(request, rotated.secret.expose()));
        assert_eq!(scene.db.rows("select 1 from secrets").await.len(), 1, "those that are over are gone");

        let webhook = scene.find(webhook).await;
        let mut unit = scene.tenant.write();
        unit.remove_webhook(&webhook);
        unit.commit().await.unwrap();
        assert_eq!(scene.db.rows("select 1 from secrets").await.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn what_is_asked_for_again_comes_under_its_old_id_and_a_ping_comes_at_once() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, secret) = scene.add("/hook").await;
        scene.say(2).await;
        scene.deliver().await;
        let first = scene.receiver.requests("/hook");
        let ids: Vec<_> = scene.log(webhook).await.iter().map(|it| it.id).collect();

        let mut unit = scene.tenant.write();
        unit.resend(webhook, vec![ids[0]]);
        let ping = unit.ping(webhook);
        unit.commit().await.unwrap();
        assert_eq!(scene.deliver().await, 1);

        let all = scene.receiver.requests("/hook");
        let again: Vec<_> = all[2..].iter().filter(|request| request.id() == ids[0].to_string()).collect();
        let [again] = &again[..] else { panic!("{all:?}") };
        assert!(first.iter().any(|before| before.id() == again.id() && before.body == again.body));
        let pinged = all.iter().find(|request| request.id() == ping.to_string()).unwrap();
        assert_eq!(pinged.json()["type"], "webhook.ping");
        assert_eq!(pinged.json()["data"], json!({"webhook_id": webhook}));
        assert!(verify(pinged, &secret));
        assert_eq!(all.len(), 4);
        assert!(scene.log(webhook).await.iter().all(|it| it.state == DeliveryState::Delivered));
    })
    .await;
}
