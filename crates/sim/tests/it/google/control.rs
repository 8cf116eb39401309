//! The control API, as docs/providers/gmail-simulator.md has it.

use serde_json::{Value, json};

use super::harness::{ANN, GoogleHarness};

async fn labels_of(harness: &GoogleHarness, id: &Value) -> Value {
    let truth = harness.control_ok("GET", &format!("accounts/{ANN}/truth"), Value::Null).await;
    truth["messages"][id.as_str().unwrap()]["label_ids"].clone()
}

async fn profile_status(harness: &GoogleHarness, granted: &Value) -> u16 {
    harness.get("/gmail/v1/users/me/profile", granted["access_token"].as_str().unwrap()).await.status
}

#[tokio::test]
async fn accounts_are_created_singly_or_in_bulk() {
    let harness = GoogleHarness::new().await;
    harness.control_ok("POST", "accounts", json!({"address": "Ann@sim.example", "messages": 4})).await;

    let again = harness.control("POST", "accounts", json!({"address": ANN})).await;
    harness.control_ok("POST", "accounts", json!({"count": 3, "messages": 2})).await;

    assert_eq!(again.status, 409);
    let items = harness.control_ok("GET", "accounts", Value::Null).await["items"].clone();
    assert_eq!(items[0], json!({"address": ANN, "messages": 4}));
    assert_eq!(items[3], json!({"address": "user3@sim.example", "messages": 2}));
    assert_eq!(harness.control_ok("GET", "truth", Value::Null).await.as_object().unwrap().len(), 4);
}

#[tokio::test]
async fn scripted_operations_take_effect() {
    let harness = GoogleHarness::with_ann(0).await;

    let raw = "RnJvbTogYUB4LnRlc3QNCg0KSGkNCg==";
    let mail =
        harness.apply(ANN, json!({"op": "deliver", "raw": raw, "received_at": "2020-01-01T00:00:00Z"})).await["messages"][0].clone();
    let reply =
        harness.apply(ANN, json!({"op": "deliver", "reply_to": mail, "labels": ["SENT"]})).await["messages"][0].clone();
    let label = harness.apply(ANN, json!({"op": "create_label", "name": "Travel"})).await["label"].clone();
    harness
        .apply(ANN, json!({"op": "label", "message": mail, "add": ["Travel", "STARRED"], "remove": ["UNREAD"]}))
        .await;
    assert_eq!(labels_of(&harness, &mail).await, json!(["INBOX", "STARRED", label]));
    harness.apply(ANN, json!({"op": "trash", "message": mail})).await;
    assert_eq!(labels_of(&harness, &mail).await, json!(["TRASH", "STARRED", label]));
    harness.apply(ANN, json!({"op": "untrash", "message": mail})).await;
    harness.apply(ANN, json!({"op": "spam", "message": mail})).await;
    assert_eq!(labels_of(&harness, &mail).await, json!(["SPAM", "STARRED", label]));
    harness.apply(ANN, json!({"op": "unspam", "message": mail})).await;
    harness.apply(ANN, json!({"op": "rename_label", "label": label, "name": "Journeys"})).await;
    let draft = harness.apply(ANN, json!({"op": "draft"})).await["messages"][0].clone();
    let edited = harness.apply(ANN, json!({"op": "draft", "message": draft})).await["messages"][0].clone();
    harness.apply(ANN, json!({"op": "delete", "message": reply})).await;

    let truth = harness.control_ok("GET", &format!("accounts/{ANN}/truth"), Value::Null).await;
    assert_eq!(truth["labels"][label.as_str().unwrap()], "Journeys");
    let mut left: Vec<&String> = truth["messages"].as_object().unwrap().keys().collect();
    left.sort();
    assert_eq!(left, [mail.as_str().unwrap(), edited.as_str().unwrap()]);
    assert_eq!(truth["messages"][mail.as_str().unwrap()]["internal_date"], 1_577_836_800_000_i64);
    for (refused, status) in [
        (json!({"op": "trash", "message": reply}), 409),
        (json!({"op": "draft", "message": mail}), 409),
        (json!({"op": "delete_label", "label": "INBOX"}), 409),
        (json!({"op": "trash", "message": mail, "why": "?"}), 422),
    ] {
        assert_eq!(harness.control("POST", &format!("accounts/{ANN}/apply"), refused).await.status, status);
    }
}

#[tokio::test]
async fn tokens_are_granted_revoked_and_expired() {
    let harness = GoogleHarness::with_ann(1).await;
    let ann = format!("accounts/{ANN}");

    let granted = harness.control_ok("POST", &format!("{ann}/grant"), json!({})).await;
    let before = profile_status(&harness, &granted).await;
    harness.control_ok("POST", &format!("{ann}/expire-access-tokens"), Value::Null).await;
    let expired = profile_status(&harness, &granted).await;
    let again = harness.control_ok("POST", &format!("{ann}/grant"), json!({"scopes": ["openid"]})).await;
    harness.control_ok("POST", &format!("{ann}/revoke-tokens"), Value::Null).await;

    assert_eq!((before, expired), (200, 401));
    assert!(again["refresh_token"].is_string() && again["refresh_token"] != granted["refresh_token"]);
    let fields = [("grant_type", "refresh_token"), ("refresh_token", granted["refresh_token"].as_str().unwrap())];
    let client = [("client_id", sim::google::CLIENT_ID), ("client_secret", sim::google::CLIENT_SECRET)];
    assert_eq!(harness.form("/token", &[fields, client].concat()).await.json()["error"], "invalid_grant");
    assert_eq!(harness.control_ok("GET", "tokens", Value::Null).await[ANN]["granted"], 2);
    assert_eq!(harness.control("POST", "accounts/nobody@sim.example/grant", json!({})).await.status, 404);
}

#[tokio::test]
async fn requests_are_logged_until_cleared() {
    let harness = GoogleHarness::with_ann(1).await;
    harness.gmail("profile").await;
    harness.get("/gmail/v1/users/me/labels", "wrong").await;

    let counted = harness.control_ok("GET", "requests", Value::Null).await;
    let log = harness.control_ok("GET", "requests/log", Value::Null).await["items"].clone();
    harness.control_ok("DELETE", "requests", Value::Null).await;

    assert_eq!(counted["accounts"][ANN]["routes"]["profile"], 1);
    assert_eq!((&counted["all"]["routes"]["labels.list"], &counted["all"]["statuses"]["401"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&log[0]["method"], &log[0]["route"], &log[0]["account"]),
        (&json!("GET"), &json!("profile"), &json!(ANN))
    );
    assert_eq!((&log[1]["status"], &log[1]["account"]), (&json!(401), &json!("")));
    assert_eq!(harness.world.request_log(), []);
}

#[tokio::test]
async fn change_rate_changes_mailboxes() {
    let harness = GoogleHarness::with_ann(3).await;
    let before = harness.world.truth(ANN).unwrap();

    harness.control_ok("PUT", "rate", json!({"per_second": 500})).await;

    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    while harness.world.truth(ANN).unwrap() == before {
        assert!(tokio::time::Instant::now() < deadline, "nothing changes");
        tokio::task::yield_now().await;
    }
}
