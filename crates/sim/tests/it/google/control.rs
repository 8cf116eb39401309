//! The control API, as docs/providers/gmail-simulator.md has it.

use serde_json::{Value, json};

use super::place::{ANN, Place};

#[tokio::test]
async fn accounts_are_made_one_by_one_or_many_at_once() {
    let place = Place::new().await;
    place.steer("POST", "accounts", json!({"address": "Ann@sim.example", "messages": 4})).await;

    let again = place.control("POST", "accounts", json!({"address": ANN})).await;
    place.steer("POST", "accounts", json!({"count": 3, "messages": 2})).await;

    assert_eq!(again.status, 409);
    let items = place.steer("GET", "accounts", Value::Null).await["items"].clone();
    assert_eq!(items[0], json!({"address": ANN, "messages": 4}));
    assert_eq!(items[3], json!({"address": "user3@sim.example", "messages": 2}));
    assert_eq!(place.steer("GET", "truth", Value::Null).await.as_object().unwrap().len(), 4);
}

#[tokio::test]
async fn operations_do_what_they_say() {
    let place = Place::with_ann(0).await;
    let apply = async |operation: Value| place.steer("POST", &format!("accounts/{ANN}/apply"), operation).await;
    let labels = async |id: &Value| {
        let truth = place.steer("GET", &format!("accounts/{ANN}/truth"), Value::Null).await;
        truth["messages"][id.as_str().unwrap()]["label_ids"].clone()
    };

    let raw = "RnJvbTogYUB4LnRlc3QNCg0KSGkNCg==";
    let mail =
        apply(json!({"op": "deliver", "raw": raw, "received_at": "2020-01-01T00:00:00Z"})).await["messages"][0].clone();
    let reply = apply(json!({"op": "deliver", "reply_to": mail, "labels": ["SENT"]})).await["messages"][0].clone();
    let label = apply(json!({"op": "create_label", "name": "Travel"})).await["label"].clone();
    apply(json!({"op": "label", "message": mail, "add": ["Travel", "STARRED"], "remove": ["UNREAD"]})).await;
    assert_eq!(labels(&mail).await, json!(["INBOX", "STARRED", label]));
    apply(json!({"op": "trash", "message": mail})).await;
    assert_eq!(labels(&mail).await, json!(["TRASH", "STARRED", label]));
    apply(json!({"op": "untrash", "message": mail})).await;
    apply(json!({"op": "spam", "message": mail})).await;
    assert_eq!(labels(&mail).await, json!(["SPAM", "STARRED", label]));
    apply(json!({"op": "unspam", "message": mail})).await;
    apply(json!({"op": "rename_label", "label": label, "name": "Journeys"})).await;
    let draft = apply(json!({"op": "draft"})).await["messages"][0].clone();
    let edited = apply(json!({"op": "draft", "message": draft})).await["messages"][0].clone();
    apply(json!({"op": "delete", "message": reply})).await;

    let truth = place.steer("GET", &format!("accounts/{ANN}/truth"), Value::Null).await;
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
        assert_eq!(place.control("POST", &format!("accounts/{ANN}/apply"), refused).await.status, status);
    }
}

#[tokio::test]
async fn tokens_are_granted_revoked_and_expire_on_demand() {
    let place = Place::with_ann(1).await;
    let ann = format!("accounts/{ANN}");
    let status = async |granted: &Value| {
        place.get("/gmail/v1/users/me/profile", granted["access_token"].as_str().unwrap()).await.status
    };

    let granted = place.steer("POST", &format!("{ann}/grant"), json!({})).await;
    let before = status(&granted).await;
    place.steer("POST", &format!("{ann}/expire-access-tokens"), Value::Null).await;
    let expired = status(&granted).await;
    let again = place.steer("POST", &format!("{ann}/grant"), json!({"scopes": ["openid"]})).await;
    place.steer("POST", &format!("{ann}/revoke-tokens"), Value::Null).await;

    assert_eq!((before, expired), (200, 401));
    assert!(again["refresh_token"].is_string() && again["refresh_token"] != granted["refresh_token"]);
    let fields = [("grant_type", "refresh_token"), ("refresh_token", granted["refresh_token"].as_str().unwrap())];
    let client = [("client_id", sim::google::CLIENT_ID), ("client_secret", sim::google::CLIENT_SECRET)];
    assert_eq!(place.form("/token", &[fields, client].concat()).await.json()["error"], "invalid_grant");
    assert_eq!(place.steer("GET", "tokens", Value::Null).await[ANN]["granted"], 2);
    assert_eq!(place.control("POST", "accounts/nobody@sim.example/grant", json!({})).await.status, 404);
}

#[tokio::test]
async fn requests_are_written_down_and_counted_until_they_are_forgotten() {
    let place = Place::with_ann(1).await;
    place.gmail("profile").await;
    place.get("/gmail/v1/users/me/labels", "wrong").await;

    let counted = place.steer("GET", "requests", Value::Null).await;
    let log = place.steer("GET", "requests/log", Value::Null).await["items"].clone();
    place.steer("DELETE", "requests", Value::Null).await;

    assert_eq!(counted["accounts"][ANN]["routes"]["profile"], 1);
    assert_eq!((&counted["all"]["routes"]["labels.list"], &counted["all"]["statuses"]["401"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&log[0]["method"], &log[0]["route"], &log[0]["account"]),
        (&json!("GET"), &json!("profile"), &json!(ANN))
    );
    assert_eq!((&log[1]["status"], &log[1]["account"]), (&json!(401), &json!("")));
    assert_eq!(place.world.request_log(), []);
}

#[tokio::test]
async fn a_world_with_a_rate_changes_by_itself() {
    let place = Place::with_ann(3).await;
    let before = place.world.truth(ANN).unwrap();

    place.steer("PUT", "rate", json!({"per_second": 500})).await;

    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    while place.world.truth(ANN).unwrap() == before {
        assert!(tokio::time::Instant::now() < deadline, "nothing changes");
        tokio::task::yield_now().await;
    }
}
