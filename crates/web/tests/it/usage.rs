//! What the API says about a backfill while it runs.

use std::sync::Arc;

use domain::connector::SeenMessage;
use serde_json::{Value, json};
use store::testing::on_each_database;
use testkit::pages::{page, seen_message};
use testkit::{ScriptedApp, ScriptedReply, wait_until};
use tokio::sync::Semaphore;

/// More than one fetch brings.
const MESSAGES: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn running_backfill_shows_when_it_ends() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let history: Vec<SeenMessage> = (0..MESSAGES).map(|n| seen_message(&format!("m{n}"), "INBOX", &[])).collect();
        app.connector.queue_history(page(history));
        app.connector.on_message(|id| Some(format!("Subject: {id}\n\nhello").into()));
        // The first fetch passes; the others wait.
        let gate = Arc::new(Semaphore::new(1));
        let waiting = gate.clone();
        app.connector.on_fetch(move |_| {
            let gate = waiting.clone();
            ScriptedReply::later(async move {
                gate.acquire().await.unwrap().forget();
                Ok(())
            })
        });
        let (key, operator) = (app.create_key(&app.tenant, &["read"]).await, app.operator_key().await);
        let health = format!("/v1/mailboxes/{}/health", app.mailbox);
        let usage = format!("/v1/tenants/{}/usage", app.tenant.id);

        app.enqueue_sync().await;
        let worker = app.start_worker();
        wait_until("its end is known", async || app.get(&health, &key).await.json()["backfill"]["ends_at"].is_string())
            .await;
        let provider = app.get(&usage, &operator).await.json()["providers"][0].clone();
        let backfill = &provider["backfill"];
        assert!(backfill["ends_at"].is_string(), "{provider}");
        let (stored, to_fetch) = (backfill["stored"].as_u64().unwrap(), backfill["to_fetch"].as_u64().unwrap());
        assert!(stored > 0 && to_fetch > 0, "{provider}");
        assert_eq!((stored + to_fetch, &provider["backlog"]), (MESSAGES as u64, &json!(to_fetch)));

        gate.add_permits(MESSAGES);
        app.wait_until_idle().await;
        worker.shut_down().await;
        assert_eq!(app.get(&health, &key).await.json()["backfill"], Value::Null, "all of it is here");
        app.finish().await;
    })
    .await;
}
