//! Servers that fail, hang, lie or say that they want no more; and workers that die.

use std::sync::Arc;
use std::time::Duration;

use domain::{DeliveryState, PlanTier, WebhookState};
use engine::webhooks::{DispatchSettings, Sender, SystemResolver, Wanted, dispatch};
use jiff::Timestamp;
use store::sql::webhook_deliveries::{Resent, WEBHOOK_DISABLED};
use store::testing::on_each_database;
use tokio::sync::oneshot;

use super::receiver::{DEADLINE, DOWN, OK, Reply, Request};
use super::{PAST, Scene, local};

#[tokio::test]
async fn what_fails_is_tried_ten_times_under_one_id_and_then_no_more() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.receiver.answer("/hook", DOWN);
        scene.say(1).await;
        let waits = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400];
        for (tries, wait) in (1..).zip(waits) {
            assert_eq!(scene.deliver().await, 1);
            let log = scene.log(webhook).await;
            assert_eq!((log.len(), log[0].state, log[0].attempts), (1, DeliveryState::Waiting, tries));
            assert_eq!((log[0].last_status, log[0].last_answer.as_deref()), (Some(500), Some("down")));
            let waits = log[0].next_at.unwrap().duration_since(log[0].last_at.unwrap()).as_secs();
            assert!((wait - 1..=wait + wait / 5).contains(&waits), "{waits} s after try {tries}");
            assert_eq!(scene.deliver().await, 0, "not before its time");
            scene.waited().await;
        }
        scene.deliver().await;
        let log = scene.log(webhook).await;
        assert_eq!((log[0].state, log[0].attempts, log[0].next_at), (DeliveryState::Failed, 10, None));
        scene.waited().await;
        assert_eq!(scene.deliver().await, 0);
        let requests = scene.receiver.requests("/hook");
        assert_eq!(requests.len(), 10);
        assert!(requests.iter().all(|it| it.id() == requests[0].id() && it.body == requests[0].body));
    })
    .await;
}

#[tokio::test]
async fn one_event_that_is_refused_does_not_keep_others_back() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.receiver.answer("/hook", Reply::Held(500));
        scene.say(3).await;
        let held = scene.claim().await[0];
        let told = async {
            scene.receiver.wait_for("/hook", 2).await;
            scene.receiver.let_go(); // the two on their way fail
            scene.receiver.answer("/hook", OK);
            scene.receiver.let_go();
        };
        let (delivered, ()) = tokio::join!(scene.courier.deliver(held), told);
        delivered.unwrap();

        let log = scene.log(webhook).await;
        let of = |state| log.iter().filter(|it| it.state == state).count();
        assert_eq!((of(DeliveryState::Waiting), of(DeliveryState::Delivered)), (2, 1), "{log:?}");
        let webhook = scene.find(webhook).await;
        assert_eq!((webhook.cursor, webhook.failing_since), (3, None));
    })
    .await;
}

#[tokio::test]
async fn a_dead_webhook_costs_a_request_now_and_then_and_loses_nothing() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.receiver.answer("/hook", DOWN);
        scene.say(50).await;
        scene.deliver().await;
        assert_eq!(
            (scene.receiver.requests("/hook").len(), scene.log(webhook).await.len()),
            (3, 3),
            "it is the webhook"
        );
        assert_eq!(scene.deliver().await, 0, "it rests");

        let rests = [30, 120, 300, 900, 900];
        for (n, rest) in (4..).zip(rests) {
            // Its rest is over, and nothing of its own is due.
            scene.rested().await;
            assert_eq!(scene.deliver().await, 1);
            assert_eq!((scene.receiver.requests("/hook").len(), scene.log(webhook).await.len()), (n, 3));
            let found = scene.find(webhook).await;
            assert_eq!(
                (found.cursor, found.failures, found.last_error.as_deref()),
                (3, n as u64 - 2, Some("status 500"))
            );
            let left = found.rest_until.unwrap().duration_since(Timestamp::from_second(0).unwrap()).as_secs();
            let now = scene.db.store.clock().now().as_second();
            assert!((rest - 60..=rest + rest / 5).contains(&(left - now)), "{} of {rest}", left - now);
        }
        scene.receiver.answer("/hook", OK);
        scene.rested().await;
        while scene.deliver().await > 0 {}
        let mut delivered: Vec<u64> = scene.log(webhook).await.iter().filter_map(|it| it.event_seq).collect();
        delivered.sort_unstable();
        assert_eq!(delivered, (1..=50).collect::<Vec<_>>());
        assert!(scene.log(webhook).await.iter().all(|it| it.state == DeliveryState::Delivered));
        assert_eq!(scene.find(webhook).await.failing_since, None);
    })
    .await;
}

#[tokio::test]
async fn who_wants_no_more_is_left_alone_at_once_and_others_are_told() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (gone, _) = scene.add("/gone").await;
        scene.add("/other").await;
        scene.receiver.answer("/gone", Reply::Status(410, "", "bye"));
        scene.say(20).await;
        while scene.deliver().await > 0 {}

        assert_eq!(scene.find(gone).await.state, WebhookState::Disabled);
        assert!(scene.receiver.requests("/gone").len() <= 2, "only what was on its way");
        let told = scene.receiver.requests("/other");
        let disabled: Vec<&Request> = told.iter().filter(|it| it.json()["type"] == WEBHOOK_DISABLED).collect();
        assert_eq!(disabled.len(), 1);
        assert_eq!(disabled[0].json()["data"]["data"]["webhook_id"], serde_json::json!(gone));
    })
    .await;
}

#[tokio::test]
async fn after_five_days_of_nothing_a_webhook_is_switched_off() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.receiver.answer("/hook", DOWN);
        scene.say(1).await;
        scene.deliver().await;
        let ago = |hours: i64| scene.db.store.clock().now() - jiff::SignedDuration::from_hours(hours);
        let failing = async |hours: i64| {
            scene.waited().await;
            scene.db.run(&format!("update webhooks set failing_since = '{:.3}'", ago(hours))).await;
            scene.deliver().await;
            scene.find(webhook).await.state
        };
        assert_eq!(failing(5 * 24 - 1).await, WebhookState::Active);
        assert_eq!(failing(5 * 24 + 1).await, WebhookState::Disabled);
        scene.waited().await;
        assert_eq!(scene.deliver().await, 0);
        let events = scene.tenant.list_events(1, 10).await.unwrap();
        assert_eq!(events.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(), [WEBHOOK_DISABLED]);

        // Its owner mends it, and it goes on where it was.
        scene.receiver.answer("/hook", OK);
        let mut unit = scene.tenant.write();
        unit.change_webhook(&store::sql::webhooks::Webhook {
            state: WebhookState::Active,
            state_reason: None,
            ..scene.find(webhook).await
        });
        unit.commit().await.unwrap();
        while scene.deliver().await > 0 {}
        assert!(scene.log(webhook).await.iter().all(|it| it.state == DeliveryState::Delivered));
        assert_eq!(scene.log(webhook).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn who_asks_to_be_left_alone_is() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for (path, headers, seconds) in [
            ("/later", "retry-after: 7200\r\n", 7200),
            ("/much-later", "retry-after: 99999999\r\n", 86_400),
            ("/at", "date: Sun, 01 Feb 2026 12:00:00 GMT\r\nretry-after: Sun, 01 Feb 2026 13:00:00 GMT\r\n", 3600),
        ] {
            let (webhook, _) = scene.add(path).await;
            scene.receiver.answer(path, Reply::Status(429, headers, "slow down"));
            scene.say(10).await;
            scene.deliver().await;
            let found = scene.find(webhook).await;
            let rest = found.rest_until.unwrap().duration_since(scene.db.store.clock().now()).as_secs();
            assert!((seconds - 60..=seconds).contains(&rest), "{path}: {rest} of {seconds}");
            assert!(scene.receiver.requests(path).len() <= 2);
            let log = scene.log(webhook).await;
            let wait = log[0].next_at.unwrap().duration_since(log[0].last_at.unwrap()).as_secs();
            assert!((seconds - 1..=seconds).contains(&wait), "{path}: {wait} of {seconds}");
        }
        assert_eq!(scene.deliver().await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        for status in [301, 302, 303, 307, 308] {
            scene.receiver.answer("/hook", Reply::Status(status, "location: /elsewhere\r\n", ""));
            scene.say(1).await;
            scene.waited().await;
            scene.deliver().await;
            assert_eq!(scene.log(webhook).await[0].last_status, Some(u64::from(status)));
        }
        assert!(scene.receiver.requests("/elsewhere").is_empty());
        assert!(scene.log(webhook).await.iter().all(|it| it.state == DeliveryState::Waiting));
    })
    .await;
}

#[tokio::test]
async fn of_an_answer_without_an_end_a_kilobyte_is_read() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.receiver.answer("/hook", Reply::Endless);
        scene.say(1).await;
        scene.deliver().await;
        let log = scene.log(webhook).await;
        assert_eq!((log[0].state, log[0].last_answer.as_ref().unwrap().len()), (DeliveryState::Delivered, 1024));
    })
    .await;
}

#[tokio::test]
async fn who_does_not_answer_in_time_is_tried_again() {
    on_each_database(|db| async move {
        let mut scene = Scene::new(db).await;
        let sender = Sender::new(local(), Arc::new(SystemResolver::default())).unwrap();
        let sender = sender.with_timeout(Duration::from_millis(200));
        scene.courier = engine::webhooks::Courier::new(scene.engine.clone(), sender, Arc::new(jobs::SystemDice));
        let (webhook, _) = scene.add("/hook").await;
        scene.receiver.answer("/hook", Reply::Nothing);
        scene.say(1).await;
        scene.deliver().await;
        let log = scene.log(webhook).await;
        assert_eq!((log[0].state, log[0].last_status), (DeliveryState::Waiting, None));
        assert_eq!(log[0].last_answer.as_deref(), Some("no answer in time"));
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_dies_after_sending_is_followed_by_one_that_sends_the_same_id() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.receiver.answer("/hook", Reply::Held(200));
        scene.say(1).await;
        let old = scene.claim().await[0];
        let follow = async {
            scene.receiver.wait_for("/hook", 1).await;
            // It is silent for too long.
            scene.db.run(&format!("update webhooks set held_until = {PAST}")).await;
            let new = scene.claim().await[0];
            scene.receiver.let_go();
            new
        };
        let (recorded, new) = tokio::join!(scene.courier.deliver(old), follow);
        recorded.unwrap();
        assert!(scene.log(webhook).await.is_empty(), "who lost it records nothing");

        scene.courier.deliver(new).await.unwrap();

        let requests = scene.receiver.requests("/hook");
        assert_eq!(requests.len(), 2);
        assert_eq!((requests[0].id(), &requests[0].body), (requests[1].id(), &requests[1].body));
        let log = scene.log(webhook).await;
        assert_eq!((log.len(), log[0].id.to_string().as_str()), (1, requests[0].id()));
    })
    .await;
}

#[tokio::test]
async fn a_tenant_that_is_switched_off_is_told_nothing_more() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        scene.add("/hook").await;
        scene.receiver.answer("/hook", Reply::Held(200));
        scene.say(150).await;
        let held = scene.claim().await[0];
        let switch_off = async {
            scene.receiver.wait_for("/hook", 2).await;
            scene.db.store.system().set_tenant_active(scene.tenant.id, false).await.unwrap();
            scene.receiver.let_go();
        };
        let (delivered, ()) = tokio::join!(scene.courier.deliver(held), switch_off);
        delivered.unwrap();
        assert_eq!(scene.receiver.requests("/hook").len(), 100, "the batch on its way, and no other");
        scene.say(1).await;
        assert_eq!(scene.deliver().await, 0);

        scene.db.store.system().set_tenant_active(scene.tenant.id, true).await.unwrap();
        scene.receiver.answer("/hook", OK);
        while scene.deliver().await > 0 {}
        assert_eq!(scene.receiver.requests("/hook").len(), 151);
    })
    .await;
}

const HANGING: usize = 140;

/// No deadline ends what hangs here, so whoever waited for it would wait for ever.
#[tokio::test]
async fn those_who_hang_keep_nobody_else_waiting() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let beta = scene.db.store.system().create_tenant("beta", PlanTier::Standard).await.unwrap().unwrap();
        let beta = scene.db.store.tenant(beta.id);
        // Two requests to each: more than there is room for, did they keep the room of those who are quick.
        for n in 0..HANGING {
            let path = format!("/hangs-{n}");
            scene.receiver.answer(&path, Reply::Nothing);
            let tenant = if n % 2 == 0 { &beta } else { &scene.tenant };
            scene.add_of(tenant, Wanted { url: scene.receiver.url(&path), ..Wanted::default() }).await;
        }
        let (webhook, _) = scene.add("/works").await;
        scene.say(5).await;
        let mut unit = beta.write();
        (0..5).for_each(|_| unit.say("email.received", None, serde_json::json!({})));
        unit.commit().await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let courier = scene.courier.clone();
        let settings = DispatchSettings { every: Duration::from_millis(20), ..DispatchSettings::new("test") };
        let dispatching =
            tokio::spawn(async move { dispatch(&courier, &settings, async { drop(stopped.await) }).await });
        for n in 0..HANGING {
            scene.receiver.wait_for(&format!("/hangs-{n}"), 2).await;
        }
        scene.say(300).await;

        scene.receiver.wait_for("/works", 305).await;
        let recorded = async {
            while scene.find(webhook).await.cursor < 305 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, recorded).await.unwrap();

        for n in 0..HANGING {
            assert_eq!(scene.receiver.requests(&format!("/hangs-{n}")).len(), 2, "a few, until they are answered");
        }
        drop(stop);
        dispatching.abort();
    })
    .await;
}

#[tokio::test]
async fn who_is_told_to_stop_finishes_what_is_on_its_way() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.receiver.answer("/hook", Reply::Held(200));
        scene.say(50).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let courier = scene.courier.clone();
        let settings = DispatchSettings::new("test");
        let dispatching =
            tokio::spawn(async move { dispatch(&courier, &settings, async { drop(stopped.await) }).await });
        scene.receiver.wait_for("/hook", 2).await;
        drop(stop);
        // It stops to begin others at some moment after this; those that began are recorded in any case.
        scene.receiver.let_go();

        tokio::time::timeout(DEADLINE, dispatching).await.unwrap().unwrap();

        let sent = scene.receiver.requests("/hook").len();
        assert_eq!(scene.log(webhook).await.len(), sent);
        assert_eq!(scene.find(webhook).await.cursor, sent as u64);
    })
    .await;
}

#[tokio::test]
async fn a_webhook_whose_address_may_not_be_used_any_more_fails() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let wanted = Wanted { url: scene.receiver.url("/hook"), ..Wanted::default() };
        let (webhook, _) = scene.add_of(&scene.tenant, wanted).await;
        scene.db.run("update webhooks set url = 'http://10.0.0.1/'").await;
        scene.say(1).await;
        scene.deliver().await;
        let found = scene.find(webhook).await;
        assert!(found.last_error.unwrap().contains("URL"));
        assert_eq!(scene.receiver.requests("/hook").len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_webhook_whose_secret_cannot_be_opened_fails_by_itself() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.add("/other").await;
        // Another's ciphertext, so to speak.
        scene
            .db
            .run("update secrets set kind = 'password' where id = (select id from secrets order by id limit 1)")
            .await;
        let other = "(select ciphertext from secrets order by id desc limit 1)";
        scene.db.run(&format!("update secrets set ciphertext = {other} where kind = 'password'")).await;
        scene.say(1).await;

        assert_eq!(scene.deliver().await, 2);

        let found = scene.find(webhook).await;
        assert_eq!(found.last_error.as_deref(), Some("it has no secret to sign with"));
        assert_eq!((scene.receiver.requests("/hook").len(), scene.receiver.requests("/other").len()), (0, 1));
    })
    .await;
}

#[tokio::test]
async fn what_is_new_does_not_wait_behind_what_is_sent_again() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (webhook, _) = scene.add("/hook").await;
        scene.say(200).await;
        while scene.deliver().await > 0 {}
        let mut unit = scene.tenant.write();
        unit.resend_since(webhook, Timestamp::UNIX_EPOCH, Resent::FailedAndDelivered);
        unit.commit().await.unwrap();
        scene.say(1).await;
        while scene.deliver().await > 0 {}

        let again = &scene.receiver.requests("/hook")[200..];
        let place = again.iter().position(|request| request.seq() == 201).unwrap();
        assert_eq!(again.len(), 201);
        assert!(place < 100, "{place}");
    })
    .await;
}
