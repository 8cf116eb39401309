//! Many calls in one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sim::microsoft::{Fault, Kind, Route};

use super::place::{ANN, IMMUTABLE, Place};

/// `$value` of each message.
pub fn values(ids: &[String]) -> Value {
    let part = |(at, id): (usize, &String)| json!({"id": at.to_string(), "method": "GET", "url": format!("/me/messages/{id}/$value"), "headers": {"Prefer": IMMUTABLE}});
    json!({"requests": ids.iter().enumerate().map(part).collect::<Vec<_>>()})
}

async fn sent(place: &Place, batch: &Value) -> Vec<Value> {
    let answered = place.post("/v1.0/$batch", &place.token(), batch).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    answered.json()["responses"].as_array().unwrap().clone()
}

#[tokio::test]
async fn bytes_come_in_base64_each_under_its_id() {
    let place = Place::with_ann(20).await;
    let ids: Vec<String> = place.world.truth(ANN).unwrap().messages.into_keys().collect();

    let answers = sent(&place, &values(&ids)).await;

    assert_eq!(answers.len(), 20);
    for answer in answers {
        let id = &ids[answer["id"].as_str().unwrap().parse::<usize>().unwrap()];
        assert_eq!(answer["status"], 200);
        let bytes = STANDARD.decode(answer["body"].as_str().unwrap()).unwrap();
        let alone = place.get(&format!("/v1.0/me/messages/{id}/$value"), &place.token()).await.body;
        assert_eq!(bytes, alone);
    }
    let log = place.world.request_log();
    assert_eq!(log.iter().filter(|entry| entry.in_batch && entry.route == Route::MessagesValue).count(), 20);
    assert!(place.world.without_immutable_ids().is_empty());
    place.assert_no_violations();
}

#[tokio::test]
async fn each_part_is_throttled_alone() {
    let place = Place::with_ann(3).await;
    let ids: Vec<String> = place.world.truth(ANN).unwrap().messages.into_keys().collect();
    place.world.add_fault(Fault {
        route: Some(Route::MessagesValue),
        ..Fault::once(Kind::Throttled { retry_after: Some(7) })
    });

    let answers = sent(&place, &values(&ids)).await;

    let throttled: Vec<&Value> = answers.iter().filter(|answer| answer["status"] == 429).collect();
    assert_eq!((throttled.len(), &throttled[0]["headers"]["Retry-After"]), (1, &json!("7")));
    assert_eq!(throttled[0]["body"]["error"]["code"], "ApplicationThrottled");
    assert_eq!(answers.iter().filter(|answer| answer["status"] == 200).count(), 2);
}

#[tokio::test]
async fn what_depends_on_a_failed_part_fails() {
    let place = Place::with_ann(1).await;
    let batch = json!({"requests": [
        {"id": "a", "method": "GET", "url": "/me/messages/nonsense", "headers": {"Prefer": IMMUTABLE}},
        {"id": "b", "method": "GET", "url": "/me", "dependsOn": ["a"]},
        {"id": "c", "method": "GET", "url": "/me"},
    ]});

    let statuses: Vec<Value> = sent(&place, &batch).await.iter().map(|answer| answer["status"].clone()).collect();

    assert_eq!(statuses, [json!(400), json!(424), json!(200)]);
}

#[tokio::test]
async fn a_part_can_be_missing_and_parts_come_in_any_order() {
    let place = Place::with_ann(5).await;
    let ids: Vec<String> = place.world.truth(ANN).unwrap().messages.into_keys().collect();
    place.world.add_fault(Fault::once(Kind::MissingPart));
    place.world.add_fault(Fault::once(Kind::ShuffledParts));

    let came: Vec<Value> = sent(&place, &values(&ids)).await.iter().map(|answer| answer["id"].clone()).collect();

    assert_eq!(came, ["3", "2", "1", "0"]);
}

#[tokio::test]
async fn what_is_no_batch_is_400_and_kept() {
    let place = Place::with_ann(1).await;
    let token = place.token();

    let answered =
        place.post("/v1.0/$batch", &token, &json!({"requests": [{"id": "1", "method": "GET", "url": "me"}]})).await;
    assert_eq!(answered.status, 400);
    assert_eq!(place.world.violations().len(), 1);
    assert_eq!(place.post("/v1.0/$batch", "nobody", &json!({"requests": []})).await.status, 401);
}
