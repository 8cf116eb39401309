//! Webhooks: leases on them, and the records of deliveries.

use std::time::Duration;

use domain::{Clock, DeliveryId, DeliveryState, EventType, SecretId, SystemClock, WebhookId, WebhookState};
use jiff::Timestamp;
use serde_json::json;
use store::sql::webhook_deliveries::{DeliveryAttempt, DeliveryBatch, ResendFilter, WebhookHealth};
use store::sql::webhooks::{NewWebhook, Webhook, WebhookLease};
use store::testing::{TestDatabase, on_each_database};
use store::{Precondition, StoreError, TenantStore};

use crate::samples::tenant;

const HOLD: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(5 * 86_400);
const PAST: &str = "'2020-01-01T00:00:00.000Z'";

fn new_webhook() -> NewWebhook {
    NewWebhook {
        id: WebhookId::new(&SystemClock),
        url: "https://example.com/hook".to_owned(),
        description: "ours".to_owned(),
        types: vec!["email.received".to_owned()],
        mailbox_id: None,
        with_backfill: false,
        signing: SecretId::new(&SystemClock),
        created_at: SystemClock.now(),
    }
}

async fn add(tenant: &TenantStore) -> Webhook {
    let new = new_webhook();
    let mut unit = tenant.write();
    unit.add_webhook(&new);
    unit.commit().await.unwrap();
    tenant.find_webhook(new.id).await.unwrap().unwrap()
}

async fn emit(tenant: &TenantStore, kind: EventType) {
    let mut unit = tenant.write();
    unit.emit_event(kind, None, json!({"n": 1}));
    unit.commit().await.unwrap();
}

async fn claim(db: &TestDatabase) -> Vec<WebhookLease> {
    db.store.system().claim_webhooks("me", 10, HOLD).await.unwrap()
}

fn attempt(webhook: WebhookId, seq: u64, state: DeliveryState, again_in: Option<Duration>) -> DeliveryAttempt {
    let at = Timestamp::from_second(1_800_000_000 + seq as i64).unwrap();
    DeliveryAttempt {
        id: DeliveryId::derive(at, webhook, seq),
        event_seq: Some(seq),
        kind: "email.received".to_owned(),
        state,
        attempts: 1,
        retry_in: again_in,
        status: Some(500),
        answer: Some("no".to_owned()),
        took: Duration::from_millis(7),
    }
}

fn batch(cursor: u64, tried: Vec<DeliveryAttempt>, health: WebhookHealth) -> DeliveryBatch {
    DeliveryBatch { attempts: tried, cursor, health, was_failing: false, hold: None }
}

async fn record(tenant: &TenantStore, held: WebhookLease, batch: DeliveryBatch) -> Result<(), StoreError> {
    let mut unit = tenant.write();
    unit.record_deliveries(held, batch);
    unit.commit().await.map(drop)
}

fn failing() -> WebhookHealth {
    WebhookHealth::Failing { why: "status 500".to_owned(), rest: Duration::from_secs(5), too_long: LONG }
}

#[tokio::test]
async fn webhook_changes_need_the_current_version() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        emit(&acme, EventType::SyncCompleted).await;
        let (first, second) = (add(&acme).await, add(&acme).await);
        assert_eq!((first.cursor, first.state, first.version), (1, WebhookState::Active, 1));
        assert_eq!(acme.list_webhooks_after(None, 10).await.unwrap(), [first.clone(), second.clone()]);
        assert_eq!(acme.list_webhooks_after(Some(first.id), 10).await.unwrap(), [second]);
        let other = tenant(&db.store, "other").await;
        assert_eq!(other.find_webhook(first.id).await.unwrap(), None);

        db.run(&format!("update webhooks set failures = 3, failing_since = {PAST}, rest_until = {PAST}")).await;
        let changed = Webhook { description: "theirs".to_owned(), types: vec![], version: 2, ..first.clone() };
        let mut unit = acme.write();
        unit.change_webhook(first.version, &changed);
        unit.commit().await.unwrap();
        let found = acme.find_webhook(first.id).await.unwrap().unwrap();
        assert_eq!((found.description.as_str(), found.types.len(), found.version, found.failures), ("theirs", 0, 2, 3));
        let mut unit = acme.write();
        unit.change_webhook(first.version, &changed);
        assert!(
            matches!(unit.commit().await, Err(StoreError::Precondition(Precondition::WebhookChanged))),
            "an old version"
        );

        let moved = Webhook { url: "https://example.com/elsewhere".to_owned(), version: 3, ..found };
        let mut unit = acme.write();
        unit.change_webhook(2, &moved);
        unit.commit().await.unwrap();
        let found = acme.find_webhook(first.id).await.unwrap().unwrap();
        assert_eq!((found.failures, found.failing_since, found.rest_until), (0, None, None), "it begins anew");

        let mut unit = acme.write();
        unit.ping(first.id);
        unit.remove_webhook(&found);
        unit.commit().await.unwrap();
        assert_eq!(acme.find_webhook(first.id).await.unwrap(), None);
        assert_eq!(acme.list_webhooks_after(None, 10).await.unwrap().len(), 1);
        assert!(claim(&db).await.is_empty());
        assert!(!db.store.system().prune_deliveries(LONG).await.unwrap());
        assert_eq!(db.rows("select 1 from webhooks").await.len(), 1);
        assert_eq!(db.rows("select 1 from webhook_deliveries").await.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn tenant_has_at_most_100_webhooks() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let mut unit = acme.write();
        (0..100).for_each(|_| unit.add_webhook(&new_webhook()));
        unit.commit().await.unwrap();
        let mut unit = acme.write();
        unit.add_webhook(&new_webhook());
        assert!(matches!(unit.commit().await, Err(StoreError::Precondition(Precondition::TooManyWebhooks))));
    })
    .await;
}

#[tokio::test]
async fn due_webhook_is_claimed_once() {
    on_each_database(|db| async move {
        let (acme, other) = (tenant(&db.store, "acme").await, tenant(&db.store, "other").await);
        let (ours, theirs) = (add(&acme).await, add(&other).await);
        assert!(claim(&db).await.is_empty(), "nothing has happened");

        emit(&acme, EventType::MailboxStateChanged).await;
        let held = claim(&db).await;
        assert_eq!(held, [WebhookLease { tenant: acme.id, id: ours.id, token: 1 }]);
        assert!(claim(&db).await.is_empty(), "it is held");
        let (found, newest) = acme.find_held_webhook(held[0]).await.unwrap().unwrap();
        assert_eq!((found.id, newest), (ours.id, 1));
        record(&acme, held[0], batch(1, vec![], WebhookHealth::Unknown)).await.unwrap();
        assert!(claim(&db).await.is_empty(), "no event was wanted, and it is not claimed for ever");

        emit(&acme, EventType::EmailReceived).await;
        emit(&other, EventType::EmailReceived).await;
        for (column, value, set_back) in [
            ("state", "'paused'", "'active'"),
            ("state", "'disabled'", "'active'"),
            ("rest_until", "'2100-01-01T00:00:00.000Z'", "null"),
            ("held_until", "'2100-01-01T00:00:00.000Z'", PAST),
        ] {
            db.run(&format!("update webhooks set {column} = {value}")).await;
            assert!(claim(&db).await.is_empty(), "{column} = {value}");
            db.run(&format!("update webhooks set {column} = {set_back}")).await;
        }
        db.store.system().set_tenant_active(acme.id, false).await.unwrap();
        let held = claim(&db).await;
        assert_eq!(held.iter().map(|held| held.id).collect::<Vec<_>>(), [theirs.id], "not of an inactive tenant");
        db.store.system().set_tenant_active(other.id, false).await.unwrap();
        assert_eq!(other.find_held_webhook(held[0]).await.unwrap(), None, "not even when it is held");
        db.store.system().release_webhooks(&held).await.unwrap();
        for id in [acme.id, other.id] {
            db.store.system().set_tenant_active(id, true).await.unwrap();
        }
        let first = db.store.system().claim_webhooks("me", 1, HOLD).await.unwrap();
        assert_eq!(first[0].id, ours.id, "the one that was not served for longest");
    })
    .await;
}

#[tokio::test]
async fn concurrent_claims_get_disjoint_webhooks() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let mut unit = acme.write();
        (0..40).for_each(|_| unit.add_webhook(&new_webhook()));
        unit.commit().await.unwrap();
        emit(&acme, EventType::EmailReceived).await;
        let system = db.store.system();
        let claims = (0..8).map(|n| {
            let system = system.clone();
            async move { system.claim_webhooks(&format!("process-{n}"), 10, HOLD).await.unwrap() }
        });
        let mut ids: Vec<_> =
            futures_util::future::join_all(claims).await.concat().iter().map(|held| held.id).collect();
        ids.extend(system.claim_webhooks("rest", 100, HOLD).await.unwrap().iter().map(|held| held.id));
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), all), (40, 40));
    })
    .await;
}

#[tokio::test]
async fn former_webhook_holder_records_nothing() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let webhook = add(&acme).await;
        emit(&acme, EventType::EmailReceived).await;
        let old = claim(&db).await[0];
        db.run(&format!("update webhooks set held_until = {PAST}")).await;
        let new = claim(&db).await[0];
        assert_eq!(new.token, old.token + 1);

        let delivered = || {
            batch(
                1,
                vec![attempt(webhook.id, 1, DeliveryState::Delivered, None)],
                WebhookHealth::Healthy { rest: None },
            )
        };
        let outcome = record(&acme, old, delivered()).await;
        assert!(matches!(outcome, Err(StoreError::Precondition(Precondition::DeliveryTakenOver))), "{outcome:?}");
        assert!(acme.list_deliveries(webhook.id, None, None, 10).await.unwrap().is_empty());
        assert_eq!(acme.find_webhook(webhook.id).await.unwrap().unwrap().cursor, 0);
        record(&acme, new, delivered()).await.unwrap();
        assert_eq!(acme.find_webhook(webhook.id).await.unwrap().unwrap().cursor, 1);
    })
    .await;
}

#[tokio::test]
async fn failed_deliveries_wait_then_catch_up() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let webhook = add(&acme).await;
        emit(&acme, EventType::EmailReceived).await;
        let held = claim(&db).await[0];
        let hour = Some(Duration::from_secs(3600));
        let waiting = vec![attempt(webhook.id, 1, DeliveryState::Waiting, hour)];
        record(&acme, held, batch(1, waiting, failing())).await.unwrap();
        let found = acme.find_webhook(webhook.id).await.unwrap().unwrap();
        assert_eq!((found.failures, found.last_error.as_deref()), (1, Some("status 500")));
        assert!(found.failing_since.is_some() && found.rest_until > found.failing_since);
        assert!(acme.list_due_deliveries(webhook.id, 10).await.unwrap().is_empty());
        let log = acme.list_deliveries(webhook.id, Some(DeliveryState::Waiting), None, 10).await.unwrap();
        let [delivery] = &log[..] else { panic!("{log:?}") };
        assert_eq!(
            (delivery.last_status, delivery.last_answer.as_deref(), delivery.last_millis),
            (Some(500), Some("no"), Some(7))
        );
        assert!(delivery.next_at.unwrap().duration_since(delivery.last_at.unwrap()).as_secs() >= 3599);
        assert_eq!(acme.find_delivery(webhook.id, delivery.id).await.unwrap().as_ref(), Some(delivery));

        db.run("update webhooks set rest_until = null").await;
        emit(&acme, EventType::EmailReceived).await;
        let held = claim(&db).await[0];
        let delivered = vec![attempt(webhook.id, 2, DeliveryState::Delivered, None)];
        let back = DeliveryBatch { was_failing: true, ..batch(2, delivered, WebhookHealth::Healthy { rest: None }) };
        record(&acme, held, back).await.unwrap();
        let found = acme.find_webhook(webhook.id).await.unwrap().unwrap();
        assert_eq!((found.failures, found.failing_since, found.last_error), (0, None, None));
        let due = acme.list_due_deliveries(webhook.id, 10).await.unwrap();
        assert_eq!(due.iter().map(|due| due.event_seq).collect::<Vec<_>>(), [Some(1)]);
        assert_eq!(due[0].event.as_ref().unwrap().seq, 1);
        assert_eq!(claim(&db).await.len(), 1, "a delivery is due");
    })
    .await;
}

#[tokio::test]
async fn webhook_is_disabled_once_after_too_long() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let webhook = add(&acme).await;
        emit(&acme, EventType::EmailReceived).await;
        let held = claim(&db).await[0];
        record(&acme, held, batch(0, vec![], failing())).await.unwrap();
        assert_eq!(acme.find_webhook(webhook.id).await.unwrap().unwrap().state, WebhookState::Active);
        for _ in 0..2 {
            db.run(&format!("update webhooks set failing_since = {PAST}")).await;
            record(&acme, held, batch(0, vec![], failing())).await.unwrap();
        }
        let found = acme.find_webhook(webhook.id).await.unwrap().unwrap();
        assert_eq!((found.state, found.version), (WebhookState::Disabled, 2));
        let events = acme.list_events(1, 10).await.unwrap();
        assert_eq!(
            events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(),
            [EventType::WebhookDisabled.as_str()]
        );
        assert_eq!(events[0].data["webhook_id"], json!(webhook.id));

        let gone = add(&acme).await;
        emit(&acme, EventType::EmailReceived).await;
        let held = claim(&db).await[0];
        assert_eq!(held.id, gone.id);
        record(&acme, held, batch(1, vec![], WebhookHealth::Gone { why: "status 410".to_owned() })).await.unwrap();
        let found = acme.find_webhook(gone.id).await.unwrap().unwrap();
        assert_eq!((found.state, found.state_reason.as_deref()), (WebhookState::Disabled, Some("status 410")));
        assert_eq!(acme.list_events(3, 10).await.unwrap()[0].kind, EventType::WebhookDisabled.as_str());
    })
    .await;
}

#[tokio::test]
async fn finished_deliveries_can_be_resent() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let webhook = add(&acme).await;
        for _ in 0..3 {
            emit(&acme, EventType::EmailReceived).await;
        }
        let held = claim(&db).await[0];
        let all: Vec<_> = (1..=3)
            .map(|n| {
                attempt(webhook.id, n, if n == 2 { DeliveryState::Failed } else { DeliveryState::Delivered }, None)
            })
            .collect();
        let ids: Vec<DeliveryId> = all.iter().map(|tried| tried.id).collect();
        record(&acme, held, batch(3, all, WebhookHealth::Healthy { rest: None })).await.unwrap();
        let newest = acme.list_deliveries(webhook.id, None, None, 2).await.unwrap();
        assert_eq!(newest.iter().map(|it| it.id).collect::<Vec<_>>(), [ids[2], ids[1]]);
        let rest = acme.list_deliveries(webhook.id, None, Some(ids[1]), 2).await.unwrap();
        assert_eq!(rest.iter().map(|it| it.id).collect::<Vec<_>>(), [ids[0]]);
        assert!(claim(&db).await.is_empty());

        let waiting = async || {
            let due = acme.list_due_deliveries(webhook.id, 10).await.unwrap();
            let mut seqs: Vec<_> = due.iter().map(|due| (due.event_seq, due.attempts)).collect();
            seqs.sort_unstable();
            db.run("update webhook_deliveries set state = 'delivered', next_at = null where event_seq <> 2").await;
            db.run("update webhook_deliveries set state = 'failed', next_at = null where event_seq = 2").await;
            seqs
        };
        let resend = async |which: ResendFilter, since: i64| {
            let mut unit = acme.write();
            let resent = unit.resend_since(webhook.id, Timestamp::from_second(1_800_000_000 + since).unwrap(), which);
            unit.commit().await.unwrap().changed(resent)
        };
        let mut unit = acme.write();
        let resent = unit.resend(webhook.id, vec![ids[0], DeliveryId::new(&SystemClock)]);
        assert_eq!(unit.commit().await.unwrap().changed(resent), 1);
        assert_eq!(waiting().await, [(Some(1), 1)]);
        assert_eq!(resend(ResendFilter::Failed, 0).await, 1);
        assert_eq!(waiting().await, [(Some(2), 1)]);
        assert_eq!(resend(ResendFilter::FailedAndDelivered, 2).await, 2);
        assert_eq!(waiting().await, [(Some(2), 1), (Some(3), 1)]);
        assert_eq!(resend(ResendFilter::FailedAndDelivered, 4).await, 0);

        db.run("update webhooks set rest_until = '2100-01-01T00:00:00.000Z'").await;
        let mut unit = acme.write();
        let ping = unit.ping(webhook.id);
        unit.commit().await.unwrap();
        let due = acme.list_due_deliveries(webhook.id, 10).await.unwrap();
        assert_eq!(
            (due.len(), due[0].id, due[0].kind.as_str(), &due[0].event),
            (1, ping, EventType::WebhookPing.as_str(), &None)
        );
        assert_eq!(claim(&db).await.len(), 1, "also while it rests");
    })
    .await;
}

#[tokio::test]
async fn only_finished_deliveries_are_pruned() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let webhook = add(&acme).await;
        emit(&acme, EventType::EmailReceived).await;
        let held = claim(&db).await[0];
        let states =
            [DeliveryState::Delivered, DeliveryState::Failed, DeliveryState::Waiting, DeliveryState::Delivered];
        let all = states.into_iter().zip(1..).map(|(state, n)| attempt(webhook.id, n, state, None)).collect();
        record(&acme, held, batch(4, all, WebhookHealth::Healthy { rest: None })).await.unwrap();
        db.run(&format!("update webhook_deliveries set created_at = {PAST} where event_seq < 4")).await;

        assert!(!db.store.system().prune_deliveries(LONG).await.unwrap());

        let left = acme.list_deliveries(webhook.id, None, None, 10).await.unwrap();
        assert_eq!(left.iter().map(|it| it.event_seq).collect::<Vec<_>>(), [Some(4), Some(3)]);
    })
    .await;
}
