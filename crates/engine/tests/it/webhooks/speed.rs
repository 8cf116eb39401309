//! How fast events go out while a fifth of those who are told hang. Measured with
//! `cargo test --release -p engine --test it webhooks::speed -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{PlanTier, SecretId, SystemClock, WebhookId};
use engine::webhooks::{Courier, DispatchSettings, Sender, SystemResolver, dispatch};
use jobs::SystemDice;
use store::sql::webhooks::NewWebhook;
use store::testing::on_each_database;
use tokio::sync::oneshot;

use super::receiver::Reply;
use super::{Scene, local};

const HANGING: usize = 10;
const WORKING: usize = 40;
const EVENTS: usize = 500;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn deliveries_a_second_while_a_fifth_of_the_webhooks_hang() {
    on_each_database(|db| async move {
        let mut scene = Scene::new(db).await;
        // As it is in a server: what hangs is given up after 15 s.
        let sender = Sender::new(local(), Arc::new(SystemResolver::default())).unwrap();
        scene.courier = Courier::new(scene.engine.clone(), sender, Arc::new(SystemDice));
        for n in 0..HANGING {
            scene.receiver.answer(&format!("/hangs-{n}"), Reply::Nothing);
            scene.add(&format!("/hangs-{n}")).await;
        }
        let mut working = Vec::new();
        for n in 0..WORKING {
            working.push(scene.add(&format!("/works-{n}")).await.0);
        }
        scene.say(EVENTS).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let courier = scene.courier.clone();
        let began = Instant::now();
        let dispatching = tokio::spawn(async move {
            dispatch(&courier, &DispatchSettings::new("test"), async { drop(stopped.await) }).await;
        });
        for id in working {
            while scene.find(id).await.cursor < EVENTS as u64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let took = began.elapsed();

        let deliveries = WORKING * EVENTS;
        println!(
            "{:?}: {deliveries} deliveries to {WORKING} webhooks while {HANGING} hang: {took:.2?}, {:.0} a second",
            scene.db.store.dialect(),
            deliveries as f64 / took.as_secs_f64()
        );
        drop(stop);
        dispatching.abort();
    })
    .await;
}

/// What it costs to have many webhooks when nothing happens.
#[tokio::test]
#[ignore = "a measurement"]
async fn a_look_among_ten_thousand_webhooks() {
    on_each_database(|db| async move {
        for n in 0..100 {
            let tenant = db.store.system().create_tenant(&format!("tenant-{n}"), PlanTier::Standard).await.unwrap();
            let mut unit = db.store.tenant(tenant.unwrap().id).write();
            for _ in 0..100 {
                unit.add_webhook(&NewWebhook {
                    id: WebhookId::new(&SystemClock),
                    url: "https://example.com/hook".to_owned(),
                    description: String::new(),
                    types: Vec::new(),
                    mailbox_id: None,
                    with_backfill: false,
                    signing: SecretId::new(&SystemClock),
                });
            }
            unit.commit().await.unwrap();
        }
        let began = Instant::now();
        for _ in 0..100 {
            let claimed = db.store.system().claim_webhooks("test", 64, Duration::from_secs(60)).await.unwrap();
            assert!(claimed.is_empty());
        }
        println!("{:?}: {:.2?} for a look among 10,000", db.store.dialect(), began.elapsed() / 100);
    })
    .await;
}
