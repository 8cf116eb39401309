//! Pushes and notifications.

use serde_json::{Value, json};
use sim::microsoft::{
    LifecycleEvent, MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute, Notifications, OutlookOperation,
};

use super::harness::{ANN, IMMUTABLE, MicrosoftHarness, code};
use super::webhook_stub::WebhookStub;
use crate::client::HttpReply;

fn wanted(hook: &WebhookStub) -> Value {
    json!({
        "changeType": "created,updated,deleted", "notificationUrl": format!("{}/notified", hook.url),
        "lifecycleNotificationUrl": format!("{}/notified", hook.url), "resource": "/me/messages",
        "expirationDateTime": "2026-02-03T12:00:00Z", "clientState": "secret",
    })
}

fn with(hook: &WebhookStub, field: &str, value: Value) -> Value {
    let mut body = wanted(hook);
    body[field] = value;
    body
}

async fn subscribe(harness: &MicrosoftHarness, body: &Value) -> HttpReply {
    harness.post("/v1.0/subscriptions", &harness.token(), body).await
}

async fn subscribed(harness: &MicrosoftHarness, body: &Value) -> Value {
    let answered = subscribe(harness, body).await;
    assert_eq!(answered.status, 201, "{}", answered.text());
    answered.json()
}

async fn asked(harness: &MicrosoftHarness, method: &str, path: &str, body: &Value) -> HttpReply {
    let authorization = format!("Bearer {}", harness.token());
    let fields =
        [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Prefer", IMMUTABLE)];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    harness.send(method, &format!("/v1.0/subscriptions{path}"), &fields, body.as_bytes()).await.unwrap()
}

#[tokio::test]
async fn notification_matches_the_documentation() {
    let (harness, hook) = (MicrosoftHarness::with_ann(0).await, WebhookStub::start().await);
    let subscription = subscribed(&harness, &wanted(&hook)).await;

    let id = harness.world.apply(ANN, OutlookOperation::deliver()).unwrap().messages.remove(0);

    let items = hook.next().await;
    assert_eq!(items.len(), 1);
    let item = &items[0];
    let me = harness.me("").await["id"].as_str().unwrap().to_owned();
    assert_eq!((&item["subscriptionId"], &item["clientState"]), (&subscription["id"], &json!("secret")));
    assert_eq!(
        (&item["changeType"], &item["resource"]),
        (&json!("created"), &json!(format!("Users/{me}/Messages/{id}")))
    );
    assert_eq!(item["tenantId"], harness.world.directory("contoso.example").unwrap().id);
    assert_eq!(item["subscriptionExpirationDateTime"], "2026-02-03T12:00:00Z");
    let data = &item["resourceData"];
    assert_eq!((&data["@odata.type"], &data["id"]), (&json!("#Microsoft.Graph.Message"), &json!(id)));
    harness.world.apply(ANN, OutlookOperation::Mark { message: id.clone(), read: Some(true), flagged: None }).unwrap();
    assert_eq!(hook.next().await[0]["changeType"], "updated");
    harness.world.apply(ANN, OutlookOperation::Purge { message: id }).unwrap();
    assert_eq!(hook.next().await[0]["changeType"], "deleted");
    harness.assert_no_violations();
}

#[tokio::test]
async fn changes_are_batched_by_subscription() {
    let (harness, hook) = (MicrosoftHarness::with_ann(0).await, WebhookStub::start().await);
    subscribed(&harness, &with(&hook, "resource", json!("me/mailFolders('inbox')/messages"))).await;

    harness.world.apply(ANN, OutlookOperation::deliver_to("archive")).unwrap();
    let ids = harness.world.apply(ANN, OutlookOperation::deliver_many(30)).unwrap().messages;
    let mut posts = [hook.next().await.len(), hook.next().await.len()];
    posts.sort_unstable();
    assert_eq!(posts, [10, 20], "in either order");
    harness.world.apply(ANN, OutlookOperation::Move { message: ids[0].clone(), folder: "archive".to_owned() }).unwrap();
    let gone = hook.next().await;
    assert_eq!((&gone[0]["changeType"], &gone[0]["resourceData"]["id"]), (&json!("deleted"), &json!(ids[0])));
}

#[tokio::test]
async fn unvalidated_url_is_refused() {
    let (harness, hook) = (MicrosoftHarness::with_ann(0).await, WebhookStub::start().await);
    for (field, path) in [
        ("notificationUrl", "/wrong"),
        ("notificationUrl", "/html"),
        ("notificationUrl", "/nowhere"),
        ("lifecycleNotificationUrl", "/wrong"),
    ] {
        let answered = subscribe(&harness, &with(&hook, field, json!(format!("{}{path}", hook.url)))).await;
        assert_eq!((answered.status, code(&answered).as_str()), (400, "ValidationError"), "{field} {path}");
    }
    harness.control_ok("PUT", "notifications", json!({"require_https": true})).await;
    assert_eq!(subscribe(&harness, &wanted(&hook)).await.status, 400);
    assert_eq!(harness.world.subscriptions().len(), 0);
}

#[tokio::test]
async fn invalid_subscriptions_are_refused() {
    let (harness, hook) = (MicrosoftHarness::with_ann(0).await, WebhookStub::start().await);
    for (field, value) in [
        ("changeType", json!("created,changed")),
        ("expirationDateTime", json!("2026-02-08T12:01:00Z")),
        ("expirationDateTime", json!("2026-02-01T11:00:00Z")),
        ("resource", json!("me/events")),
        ("resource", json!("me/mailFolders/nowhere/messages")),
        ("clientState", json!("x".repeat(129))),
        ("includeResourceData", json!(true)),
        ("notificationUrl", Value::Null),
    ] {
        assert_eq!(subscribe(&harness, &with(&hook, field, value)).await.status, 400, "{field}");
    }
    subscribed(&harness, &wanted(&hook)).await;
    assert_eq!(subscribe(&harness, &wanted(&hook)).await.status, 409);
    assert_eq!(
        subscribe(&harness, &with(&hook, "resource", json!("users/bob@contoso.example/messages"))).await.status,
        404
    );
}

#[tokio::test]
async fn subscription_is_listed_renewed_and_deleted() {
    let (harness, hook) = (MicrosoftHarness::with_ann(0).await, WebhookStub::start().await);
    let soon = subscribed(&harness, &with(&hook, "expirationDateTime", json!("2026-02-01T12:05:00Z"))).await;
    assert_eq!(soon["expirationDateTime"], "2026-02-01T12:45:00Z", "less than 45 minutes become 45");
    let path = format!("/{}", soon["id"].as_str().unwrap());

    let renewed = asked(&harness, "PATCH", &path, &json!({"expirationDateTime": "2026-02-02T12:00:00Z"})).await;
    assert_eq!((renewed.status, &renewed.json()["expirationDateTime"]), (200, &json!("2026-02-02T12:00:00Z")));
    assert_eq!(asked(&harness, "GET", "", &Value::Null).await.json()["value"][0]["id"], soon["id"]);
    assert_eq!(asked(&harness, "GET", &path, &Value::Null).await.status, 200);
    assert_eq!(asked(&harness, "DELETE", &path, &Value::Null).await.status, 204);
    let gone = asked(&harness, "PATCH", &path, &json!({"expirationDateTime": "2026-02-02T12:00:00Z"})).await;
    assert_eq!((gone.status, code(&gone).as_str()), (404, "ResourceNotFound"));
    harness.assert_no_violations();

    subscribed(&harness, &wanted(&hook)).await;
    harness.advance_ms(2 * 24 * 3_600_000);
    assert_eq!(asked(&harness, "GET", "", &Value::Null).await.json()["value"], json!([]), "it has expired");
}

#[tokio::test]
async fn refused_notification_is_retried() {
    let (harness, hook) = (MicrosoftHarness::with_ann(0).await, WebhookStub::start().await);
    harness.world.set_notifications(Notifications { retry_ms: 1, ..Notifications::default() });
    subscribed(&harness, &wanted(&hook)).await;
    hook.answer_once_with(503);

    harness.world.apply(ANN, OutlookOperation::deliver()).unwrap();

    assert_eq!(hook.next().await, hook.next().await);
    let counts = harness.world.notification_counts();
    assert_eq!((counts.refused, counts.published), (1, 1));
}

#[tokio::test]
async fn faults_lose_and_duplicate_notifications() {
    let (harness, hook) = (MicrosoftHarness::with_ann(0).await, WebhookStub::start().await);
    subscribed(&harness, &wanted(&hook)).await;
    harness.world.add_fault(MicrosoftFault {
        route: Some(MicrosoftRoute::Notify),
        ..MicrosoftFault::once(MicrosoftFaultKind::Lost)
    });
    harness.world.apply(ANN, OutlookOperation::deliver()).unwrap();
    harness.world.add_fault(MicrosoftFault::once(MicrosoftFaultKind::Duplicated { times: 1 }));
    let id = harness.world.apply(ANN, OutlookOperation::deliver()).unwrap().messages.remove(0);

    let (first, second) = (hook.next().await, hook.next().await);

    assert_eq!(first, second);
    assert_eq!(first[0]["resourceData"]["id"], id);
    assert_eq!(harness.world.notification_counts().lost, 1);
}

#[tokio::test]
async fn lifecycle_notifications_are_sent() {
    let (harness, hook) = (MicrosoftHarness::with_ann(0).await, WebhookStub::start().await);
    let id = subscribed(&harness, &wanted(&hook)).await["id"].as_str().unwrap().to_owned();

    harness
        .control_ok("POST", &format!("subscriptions/{id}/lifecycle"), json!({"event": "reauthorizationRequired"}))
        .await;
    let item = &hook.next().await[0];
    assert_eq!((&item["lifecycleEvent"], &item["subscriptionId"]), (&json!("reauthorizationRequired"), &json!(id)));
    assert!(item["changeType"].is_null() && item["clientState"] == "secret");
    harness.world.apply(ANN, OutlookOperation::deliver()).unwrap();
    assert_eq!(harness.world.notification_counts().withheld, 1);
    assert_eq!(asked(&harness, "POST", &format!("/{id}/reauthorize"), &Value::Null).await.status, 204);
    harness.world.apply(ANN, OutlookOperation::deliver()).unwrap();
    assert_eq!(hook.next().await[0]["changeType"], "created");
    assert!(harness.world.send_lifecycle(&id, LifecycleEvent::Missed));
    assert_eq!(hook.next().await[0]["lifecycleEvent"], "missed");

    harness.control_ok("POST", &format!("subscriptions/{id}/remove"), json!({"silently": false})).await;
    assert_eq!(hook.next().await[0]["lifecycleEvent"], "subscriptionRemoved");
    assert_eq!(harness.control_ok("GET", "subscriptions", Value::Null).await, json!({"items": []}));
    assert_eq!(harness.control("POST", &format!("subscriptions/{id}/remove"), json!({})).await.status, 404);
    harness.assert_no_violations();
}
