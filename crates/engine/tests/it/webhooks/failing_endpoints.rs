//! Endpoints that fail, hang, lie or unsubscribe; and workers that are killed.

use std::sync::Arc;
use std::time::Duration;

use domain::{DeliveryState, EventType, PlanTier, WebhookState};
use engine::delivery::webhooks::{DispatchSettings, WebhookRequest, WebhookSender, dispatch};
use jiff::Timestamp;
use outbound::http::SystemResolver;
use store::sql::webhook_deliveries::ResendFilter;
use store::sql::webhooks::Webhook;
use store::testing::{WAIT_DEADLINE, on_each_database, wait_until};
use tokio::sync::oneshot;

use super::receiver::{DOWN, OK, Reply, Request};
use super::{PAST, WebhookApp, local};
use crate::events::assert_like_examples;

#[tokio::test]
async fn failed_delivery_is_tried_ten_times() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.receiver.answer("/hook", DOWN);
        app.emit_events(1).await;
        let waits = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400];
        for (tries, wait) in (1..).zip(waits) {
            assert_eq!(app.deliver().await, 1);
            let log = app.log(webhook).await;
            assert_eq!((log.len(), log[0].state, log[0].attempts), (1, DeliveryState::Waiting, tries));
            assert_eq!((log[0].last_status, log[0].last_answer.as_deref()), (Some(500), Some("down")));
            let waits = log[0].next_at.unwrap().duration_since(log[0].last_at.unwrap()).as_secs();
            assert!((wait - 1..=wait + wait / 5).contains(&waits), "{waits} s after try {tries}");
            assert_eq!(app.deliver().await, 0, "not before its time");
            app.waited().await;
        }
        app.deliver().await;
        let log = app.log(webhook).await;
        assert_eq!((log[0].state, log[0].attempts, log[0].next_at), (DeliveryState::Failed, 10, None));
        app.waited().await;
        assert_eq!(app.deliver().await, 0);
        let requests = app.receiver.requests("/hook");
        assert_eq!(requests.len(), 10);
        assert!(requests.iter().all(|it| it.id() == requests[0].id() && it.body == requests[0].body));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn refused_event_does_not_delay_others() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.receiver.answer("/hook", Reply::Held(500));
        app.emit_events(3).await;
        let held = app.claim().await[0];
        let told = async {
            app.receiver.wait_for("/hook", 2).await;
            app.receiver.let_go(); // the two on their way fail
            app.receiver.answer("/hook", OK);
            app.receiver.let_go();
        };
        let (delivered, ()) = tokio::join!(app.courier.deliver(held), told);
        delivered.unwrap();

        let log = app.log(webhook).await;
        for (state, count) in [(DeliveryState::Waiting, 2), (DeliveryState::Delivered, 1)] {
            assert_eq!(log.iter().filter(|delivery| delivery.state == state).count(), count, "{log:?}");
        }
        let webhook = app.find(webhook).await;
        assert_eq!((webhook.cursor, webhook.failing_since), (3, None));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn dead_webhook_loses_nothing() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.receiver.answer("/hook", DOWN);
        app.emit_events(50).await;
        app.deliver().await;
        assert_eq!((app.receiver.requests("/hook").len(), app.log(webhook).await.len()), (3, 3), "it is the webhook");
        assert_eq!(app.deliver().await, 0, "it rests");

        let rests = [30, 120, 300, 900, 900];
        for (n, rest) in (4..).zip(rests) {
            // Its rest is over, and nothing of its own is due.
            app.rested().await;
            assert_eq!(app.deliver().await, 1);
            assert_eq!((app.receiver.requests("/hook").len(), app.log(webhook).await.len()), (n, 3));
            let found = app.find(webhook).await;
            assert_eq!(
                (found.cursor, found.failures, found.last_error.as_deref()),
                (3, n as u64 - 2, Some("status 500"))
            );
            let left = found.rest_until.unwrap().duration_since(Timestamp::from_second(0).unwrap()).as_secs();
            let now = app.db.store.clock().now().as_second();
            assert!((rest - 60..=rest + rest / 5).contains(&(left - now)), "{} of {rest}", left - now);
        }
        app.receiver.answer("/hook", OK);
        app.rested().await;
        while app.deliver().await > 0 {}
        let mut delivered: Vec<u64> = app.log(webhook).await.iter().filter_map(|it| it.event_seq).collect();
        delivered.sort_unstable();
        assert_eq!(delivered, (1..=50).collect::<Vec<_>>());
        assert!(app.log(webhook).await.iter().all(|it| it.state == DeliveryState::Delivered));
        assert_eq!(app.find(webhook).await.failing_since, None);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn gone_answer_disables_the_webhook() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (gone, _) = app.add("/gone").await;
        app.add("/other").await;
        app.receiver.answer("/gone", Reply::Status(410, "", "bye"));
        app.emit_events(20).await;
        while app.deliver().await > 0 {}

        assert_eq!(app.find(gone).await.state, WebhookState::Disabled);
        assert!(app.receiver.requests("/gone").len() <= 2, "only what was on its way");
        let told = app.receiver.requests("/other");
        let disabled: Vec<&Request> =
            told.iter().filter(|it| it.json()["type"] == EventType::WebhookDisabled.as_str()).collect();
        assert_eq!(disabled.len(), 1);
        assert_eq!(disabled[0].json()["data"]["data"]["webhook_id"], serde_json::json!(gone));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn webhook_is_disabled_after_five_days() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.receiver.answer("/hook", DOWN);
        app.emit_events(1).await;
        app.deliver().await;
        for (hours, state) in [(5 * 24 - 1, WebhookState::Active), (5 * 24 + 1, WebhookState::Disabled)] {
            app.waited().await;
            let since = app.db.store.clock().now() - jiff::SignedDuration::from_hours(hours);
            app.db.run(&format!("update webhooks set failing_since = '{since:.3}'")).await;
            app.deliver().await;
            assert_eq!(app.find(webhook).await.state, state);
        }
        app.waited().await;
        assert_eq!(app.deliver().await, 0);
        let events = app.tenant.list_events(1, 10).await.unwrap();
        assert_like_examples(&events);
        assert_eq!(events.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(), [EventType::WebhookDisabled.as_str()]);

        // Its owner mends it, and it goes on where it was.
        app.receiver.answer("/hook", OK);
        let mut unit = app.tenant.write();
        let found = app.find(webhook).await;
        let mended = Webhook { state: WebhookState::Active, state_reason: None, ..found.clone() };
        unit.change_webhook(found.version, &mended);
        unit.commit().await.unwrap();
        while app.deliver().await > 0 {}
        assert!(app.log(webhook).await.iter().all(|it| it.state == DeliveryState::Delivered));
        assert_eq!(app.log(webhook).await.len(), 2);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn retry_after_is_respected() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        for (path, headers, seconds) in [
            ("/later", "retry-after: 7200\r\n", 7200),
            ("/much-later", "retry-after: 99999999\r\n", 86_400),
            ("/at", "date: Sun, 01 Feb 2026 12:00:00 GMT\r\nretry-after: Sun, 01 Feb 2026 13:00:00 GMT\r\n", 3600),
        ] {
            let (webhook, _) = app.add(path).await;
            app.receiver.answer(path, Reply::Status(429, headers, "slow down"));
            app.emit_events(10).await;
            app.deliver().await;
            let found = app.find(webhook).await;
            let rest = found.rest_until.unwrap().duration_since(app.db.store.clock().now()).as_secs();
            assert!((seconds - 60..=seconds).contains(&rest), "{path}: {rest} of {seconds}");
            assert!(app.receiver.requests(path).len() <= 2);
            let log = app.log(webhook).await;
            let wait = log[0].next_at.unwrap().duration_since(log[0].last_at.unwrap()).as_secs();
            assert!((seconds - 1..=seconds).contains(&wait), "{path}: {wait} of {seconds}");
        }
        assert_eq!(app.deliver().await, 0);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn redirect_is_not_followed() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        for status in [301, 302, 303, 307, 308] {
            app.receiver.answer("/hook", Reply::Status(status, "location: /elsewhere\r\n", ""));
            app.emit_events(1).await;
            app.waited().await;
            app.deliver().await;
            assert_eq!(app.log(webhook).await[0].last_status, Some(u64::from(status)));
        }
        assert!(app.receiver.requests("/elsewhere").is_empty());
        assert!(app.log(webhook).await.iter().all(|it| it.state == DeliveryState::Waiting));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn endless_answer_is_cut_at_a_kilobyte() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.receiver.answer("/hook", Reply::Endless);
        app.emit_events(1).await;
        app.deliver().await;
        let log = app.log(webhook).await;
        assert_eq!((log[0].state, log[0].last_answer.as_ref().unwrap().len()), (DeliveryState::Delivered, 1024));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn timed_out_delivery_is_tried_again() {
    on_each_database(|db| async move {
        let mut app = WebhookApp::new(db).await;
        let sender = WebhookSender::new(local(), Arc::new(SystemResolver::default())).unwrap();
        let sender = sender.with_timeout(Duration::from_millis(200));
        app.courier = engine::delivery::webhooks::WebhookDeliverer::new(
            app.engine.clone(),
            sender,
            outbound::Gateway::default(),
            Arc::new(domain::SystemRandom),
        );
        let (webhook, _) = app.add("/hook").await;
        app.receiver.answer("/hook", Reply::Nothing);
        app.emit_events(1).await;
        app.deliver().await;
        let log = app.log(webhook).await;
        assert_eq!((log[0].state, log[0].last_status), (DeliveryState::Waiting, None));
        assert_eq!(log[0].last_answer.as_deref(), Some("the request timed out"));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn crash_after_sending_repeats_the_same_id() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.receiver.answer("/hook", Reply::Held(200));
        app.emit_events(1).await;
        let old = app.claim().await[0];
        let follow = async {
            app.receiver.wait_for("/hook", 1).await;
            // It is silent for too long.
            app.db.run(&format!("update webhooks set held_until = {PAST}")).await;
            let new = app.claim().await[0];
            app.receiver.let_go();
            new
        };
        let (recorded, new) = tokio::join!(app.courier.deliver(old), follow);
        recorded.unwrap();
        assert!(app.log(webhook).await.is_empty(), "who lost it records nothing");

        app.courier.deliver(new).await.unwrap();

        let requests = app.receiver.requests("/hook");
        assert_eq!(requests.len(), 2);
        assert_eq!((requests[0].id(), &requests[0].body), (requests[1].id(), &requests[1].body));
        let log = app.log(webhook).await;
        assert_eq!((log.len(), log[0].id.to_string().as_str()), (1, requests[0].id()));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn inactive_tenant_receives_nothing() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        app.add("/hook").await;
        app.receiver.answer("/hook", Reply::Held(200));
        app.emit_events(150).await;
        let held = app.claim().await[0];
        let switch_off = async {
            app.receiver.wait_for("/hook", 2).await;
            app.db.store.system().set_tenant_active(app.tenant.id, false).await.unwrap();
            app.receiver.let_go();
        };
        let (delivered, ()) = tokio::join!(app.courier.deliver(held), switch_off);
        delivered.unwrap();
        assert_eq!(app.receiver.requests("/hook").len(), 100, "the batch on its way, and no other");
        app.emit_events(1).await;
        assert_eq!(app.deliver().await, 0);

        app.db.store.system().set_tenant_active(app.tenant.id, true).await.unwrap();
        app.receiver.answer("/hook", OK);
        while app.deliver().await > 0 {}
        assert_eq!(app.receiver.requests("/hook").len(), 151);
        app.finish().await;
    })
    .await;
}

const HANGING: usize = 140;

/// No deadline ends what hangs here, so whoever waited for it would wait for ever.
#[tokio::test]
async fn hanging_webhooks_do_not_delay_others() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let beta = app.db.store.system().create_tenant("beta", PlanTier::Standard).await.unwrap().unwrap();
        let beta = app.db.store.tenant(beta.id);
        // Two requests to each: more than there is room for, did they keep the room of those who are quick.
        for n in 0..HANGING {
            let path = format!("/hangs-{n}");
            app.receiver.answer(&path, Reply::Nothing);
            let tenant = if n % 2 == 0 { &beta } else { &app.tenant };
            app.add_of(tenant, WebhookRequest { url: app.receiver.url(&path), ..WebhookRequest::default() }).await;
        }
        let (webhook, _) = app.add("/works").await;
        app.emit_events(5).await;
        let mut unit = beta.write();
        (0..5).for_each(|_| unit.emit_event(EventType::EmailReceived, None, serde_json::json!({})));
        unit.commit().await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let courier = app.courier.clone();
        let settings = DispatchSettings { every: Duration::from_millis(20), ..DispatchSettings::new("test") };
        let dispatching =
            tokio::spawn(async move { dispatch(&courier, &settings, async { drop(stopped.await) }).await });
        for n in 0..HANGING {
            app.receiver.wait_for(&format!("/hangs-{n}"), 2).await;
        }
        app.emit_events(300).await;

        app.receiver.wait_for("/works", 305).await;
        wait_until("they are recorded", async || app.find(webhook).await.cursor >= 305).await;

        for n in 0..HANGING {
            assert_eq!(app.receiver.requests(&format!("/hangs-{n}")).len(), 2, "a few, until they are answered");
        }
        drop(stop);
        dispatching.abort();
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn shutdown_finishes_requests_in_flight() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.receiver.answer("/hook", Reply::Held(200));
        app.emit_events(50).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let courier = app.courier.clone();
        let settings = DispatchSettings::new("test");
        let dispatching =
            tokio::spawn(async move { dispatch(&courier, &settings, async { drop(stopped.await) }).await });
        app.receiver.wait_for("/hook", 2).await;
        drop(stop);
        // It stops to begin others at some moment after this; those that began are recorded in any case.
        app.receiver.let_go();

        tokio::time::timeout(WAIT_DEADLINE, dispatching).await.unwrap().unwrap();

        let sent = app.receiver.requests("/hook").len();
        assert_eq!(app.log(webhook).await.len(), sent);
        assert_eq!(app.find(webhook).await.cursor, sent as u64);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn forbidden_address_fails_the_webhook() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let wanted = WebhookRequest { url: app.receiver.url("/hook"), ..WebhookRequest::default() };
        let (webhook, _) = app.add_of(&app.tenant, wanted).await;
        app.db.run("update webhooks set url = 'http://10.0.0.1/'").await;
        app.emit_events(1).await;
        app.deliver().await;
        let found = app.find(webhook).await;
        assert!(found.last_error.unwrap().contains("URL"));
        assert_eq!(app.receiver.requests("/hook").len(), 0);
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn unreadable_secret_fails_its_webhook_alone() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.add("/other").await;
        // Another's ciphertext, so to speak.
        app.db
            .run("update secrets set kind = 'password' where id = (select id from secrets order by id limit 1)")
            .await;
        let other = "(select ciphertext from secrets order by id desc limit 1)";
        app.db.run(&format!("update secrets set ciphertext = {other} where kind = 'password'")).await;
        app.emit_events(1).await;

        assert_eq!(app.deliver().await, 2);

        let found = app.find(webhook).await;
        assert_eq!(found.last_error.as_deref(), Some("the webhook has no secret to sign with"));
        assert_eq!((app.receiver.requests("/hook").len(), app.receiver.requests("/other").len()), (0, 1));
        app.finish().await;
    })
    .await;
}

#[tokio::test]
async fn new_events_do_not_wait_for_redeliveries() {
    on_each_database(|db| async move {
        let app = WebhookApp::new(db).await;
        let (webhook, _) = app.add("/hook").await;
        app.emit_events(200).await;
        while app.deliver().await > 0 {}
        let mut unit = app.tenant.write();
        unit.resend_since(webhook, Timestamp::UNIX_EPOCH, ResendFilter::FailedAndDelivered);
        unit.commit().await.unwrap();
        app.emit_events(1).await;
        while app.deliver().await > 0 {}

        let again = &app.receiver.requests("/hook")[200..];
        let place = again.iter().position(|request| request.seq() == 201).unwrap();
        assert_eq!(again.len(), 201);
        assert!(place < 100, "{place}");
        app.finish().await;
    })
    .await;
}
