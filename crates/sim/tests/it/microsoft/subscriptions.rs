//! Being told that a mailbox has changed.

use serde_json::{Value, json};
use sim::microsoft::{Fault, Kind, LifecycleEvent, Notifications, Operation, Route};

use super::hook::Hook;
use super::place::{ANN, IMMUTABLE, Place, code};
use crate::client::Answered;

fn wanted(hook: &Hook) -> Value {
    json!({
        "changeType": "created,updated,deleted", "notificationUrl": format!("{}/notified", hook.url),
        "lifecycleNotificationUrl": format!("{}/notified", hook.url), "resource": "/me/messages",
        "expirationDateTime": "2026-02-03T12:00:00Z", "clientState": "secret",
    })
}

fn with(hook: &Hook, field: &str, value: Value) -> Value {
    let mut body = wanted(hook);
    body[field] = value;
    body
}

async fn subscribe(place: &Place, body: &Value) -> Answered {
    place.post("/v1.0/subscriptions", &place.token(), body).await
}

async fn subscribed(place: &Place, body: &Value) -> Value {
    let answered = subscribe(place, body).await;
    assert_eq!(answered.status, 201, "{}", answered.text());
    answered.json()
}

async fn asked(place: &Place, method: &str, path: &str, body: &Value) -> Answered {
    let authorization = format!("Bearer {}", place.token());
    let fields =
        [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Prefer", IMMUTABLE)];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    place.send(method, &format!("/v1.0/subscriptions{path}"), &fields, body.as_bytes()).await.unwrap()
}

#[tokio::test]
async fn a_change_is_told_as_it_is_documented() {
    let (place, hook) = (Place::with_ann(0).await, Hook::start().await);
    let subscription = subscribed(&place, &wanted(&hook)).await;

    let id = place.world.apply(ANN, Operation::deliver()).unwrap().messages.remove(0);

    let items = hook.next().await;
    assert_eq!(items.len(), 1);
    let item = &items[0];
    let me = place.me("").await["id"].as_str().unwrap().to_owned();
    assert_eq!((&item["subscriptionId"], &item["clientState"]), (&subscription["id"], &json!("secret")));
    assert_eq!(
        (&item["changeType"], &item["resource"]),
        (&json!("created"), &json!(format!("Users/{me}/Messages/{id}")))
    );
    assert_eq!(item["tenantId"], place.world.directory("contoso.example").unwrap().id);
    assert_eq!(item["subscriptionExpirationDateTime"], "2026-02-03T12:00:00Z");
    let data = &item["resourceData"];
    assert_eq!((&data["@odata.type"], &data["id"]), (&json!("#Microsoft.Graph.Message"), &json!(id)));
    place.world.apply(ANN, Operation::Mark { message: id.clone(), read: Some(true), flagged: None }).unwrap();
    assert_eq!(hook.next().await[0]["changeType"], "updated");
    place.world.apply(ANN, Operation::Purge { message: id }).unwrap();
    assert_eq!(hook.next().await[0]["changeType"], "deleted");
    place.assert_no_violations();
}

#[tokio::test]
async fn many_changes_come_in_few_posts_and_one_folder_sees_its_own_only() {
    let (place, hook) = (Place::with_ann(0).await, Hook::start().await);
    subscribed(&place, &with(&hook, "resource", json!("me/mailFolders('inbox')/messages"))).await;

    place.world.apply(ANN, Operation::deliver_to("archive")).unwrap();
    let ids = place.world.apply(ANN, Operation::deliver_many(30)).unwrap().messages;
    let mut posts = [hook.next().await.len(), hook.next().await.len()];
    posts.sort_unstable();
    assert_eq!(posts, [10, 20], "in either order");
    place.world.apply(ANN, Operation::Move { message: ids[0].clone(), folder: "archive".to_owned() }).unwrap();
    let gone = hook.next().await;
    assert_eq!((&gone[0]["changeType"], &gone[0]["resourceData"]["id"]), (&json!("deleted"), &json!(ids[0])));
}

#[tokio::test]
async fn an_address_that_does_not_answer_its_validation_is_refused() {
    let (place, hook) = (Place::with_ann(0).await, Hook::start().await);
    for (field, path) in [
        ("notificationUrl", "/wrong"),
        ("notificationUrl", "/html"),
        ("notificationUrl", "/nowhere"),
        ("lifecycleNotificationUrl", "/wrong"),
    ] {
        let answered = subscribe(&place, &with(&hook, field, json!(format!("{}{path}", hook.url)))).await;
        assert_eq!((answered.status, code(&answered).as_str()), (400, "ValidationError"), "{field} {path}");
    }
    place.steer("PUT", "notifications", json!({"require_https": true})).await;
    assert_eq!(subscribe(&place, &wanted(&hook)).await.status, 400);
    assert_eq!(place.world.subscriptions().len(), 0);
}

#[tokio::test]
async fn what_a_subscription_cannot_be_is_refused() {
    let (place, hook) = (Place::with_ann(0).await, Hook::start().await);
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
        assert_eq!(subscribe(&place, &with(&hook, field, value)).await.status, 400, "{field}");
    }
    subscribed(&place, &wanted(&hook)).await;
    assert_eq!(subscribe(&place, &wanted(&hook)).await.status, 409);
    assert_eq!(
        subscribe(&place, &with(&hook, "resource", json!("users/bob@contoso.example/messages"))).await.status,
        404
    );
}

#[tokio::test]
async fn a_subscription_is_renewed_listed_and_ended() {
    let (place, hook) = (Place::with_ann(0).await, Hook::start().await);
    let soon = subscribed(&place, &with(&hook, "expirationDateTime", json!("2026-02-01T12:05:00Z"))).await;
    assert_eq!(soon["expirationDateTime"], "2026-02-01T12:45:00Z", "less than 45 minutes become 45");
    let path = format!("/{}", soon["id"].as_str().unwrap());

    let renewed = asked(&place, "PATCH", &path, &json!({"expirationDateTime": "2026-02-02T12:00:00Z"})).await;
    assert_eq!((renewed.status, &renewed.json()["expirationDateTime"]), (200, &json!("2026-02-02T12:00:00Z")));
    assert_eq!(asked(&place, "GET", "", &Value::Null).await.json()["value"][0]["id"], soon["id"]);
    assert_eq!(asked(&place, "GET", &path, &Value::Null).await.status, 200);
    assert_eq!(asked(&place, "DELETE", &path, &Value::Null).await.status, 204);
    let gone = asked(&place, "PATCH", &path, &json!({"expirationDateTime": "2026-02-02T12:00:00Z"})).await;
    assert_eq!((gone.status, code(&gone).as_str()), (404, "ResourceNotFound"));
    place.assert_no_violations();

    subscribed(&place, &wanted(&hook)).await;
    place.pass_ms(2 * 24 * 3_600_000);
    assert_eq!(asked(&place, "GET", "", &Value::Null).await.json()["value"], json!([]), "it has expired");
}

#[tokio::test]
async fn a_post_that_is_refused_comes_again() {
    let (place, hook) = (Place::with_ann(0).await, Hook::start().await);
    place.world.set_notifications(Notifications { retry_ms: 1, ..Notifications::default() });
    subscribed(&place, &wanted(&hook)).await;
    hook.answer_once_with(503);

    place.world.apply(ANN, Operation::deliver()).unwrap();

    assert_eq!(hook.next().await, hook.next().await);
    let counts = place.world.notification_counts();
    assert_eq!((counts.refused, counts.published), (1, 1));
}

#[tokio::test]
async fn a_post_is_lost_or_comes_twice() {
    let (place, hook) = (Place::with_ann(0).await, Hook::start().await);
    subscribed(&place, &wanted(&hook)).await;
    place.world.add_fault(Fault { route: Some(Route::Notify), ..Fault::once(Kind::Lost) });
    place.world.apply(ANN, Operation::deliver()).unwrap();
    place.world.add_fault(Fault::once(Kind::Duplicated { times: 1 }));
    let id = place.world.apply(ANN, Operation::deliver()).unwrap().messages.remove(0);

    let (first, second) = (hook.next().await, hook.next().await);

    assert_eq!(first, second);
    assert_eq!(first[0]["resourceData"]["id"], id);
    assert_eq!(place.world.notification_counts().lost, 1);
}

#[tokio::test]
async fn what_happens_to_the_subscription_itself_is_told() {
    let (place, hook) = (Place::with_ann(0).await, Hook::start().await);
    let id = subscribed(&place, &wanted(&hook)).await["id"].as_str().unwrap().to_owned();

    place.steer("POST", &format!("subscriptions/{id}/lifecycle"), json!({"event": "reauthorizationRequired"})).await;
    let item = &hook.next().await[0];
    assert_eq!((&item["lifecycleEvent"], &item["subscriptionId"]), (&json!("reauthorizationRequired"), &json!(id)));
    assert!(item["changeType"].is_null() && item["clientState"] == "secret");
    place.world.apply(ANN, Operation::deliver()).unwrap();
    assert_eq!(place.world.notification_counts().withheld, 1);
    assert_eq!(asked(&place, "POST", &format!("/{id}/reauthorize"), &Value::Null).await.status, 204);
    place.world.apply(ANN, Operation::deliver()).unwrap();
    assert_eq!(hook.next().await[0]["changeType"], "created");
    assert!(place.world.send_lifecycle(&id, LifecycleEvent::Missed));
    assert_eq!(hook.next().await[0]["lifecycleEvent"], "missed");

    place.steer("POST", &format!("subscriptions/{id}/remove"), json!({"silently": false})).await;
    assert_eq!(hook.next().await[0]["lifecycleEvent"], "subscriptionRemoved");
    assert_eq!(place.steer("GET", "subscriptions", Value::Null).await, json!({"items": []}));
    assert_eq!(place.control("POST", &format!("subscriptions/{id}/remove"), json!({})).await.status, 404);
    place.assert_no_violations();
}
