//! Batch requests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sim::microsoft::{MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute};

use super::harness::{ANN, IMMUTABLE, MicrosoftHarness};

/// Builds a batch that reads `$value` of each message.
pub fn values(ids: &[String]) -> Value {
    json!({"requests": ids.iter().enumerate().map(|(at, id)| json!({"id": at.to_string(), "method": "GET", "url": format!("/me/messages/{id}/$value"), "headers": {"Prefer": IMMUTABLE}})).collect::<Vec<_>>()})
}

async fn sent(harness: &MicrosoftHarness, batch: &Value) -> Vec<Value> {
    let answered = harness.post("/v1.0/$batch", &harness.token(), batch).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    answered.json()["responses"].as_array().unwrap().clone()
}

#[tokio::test]
async fn raw_parts_are_base64_under_their_ids() {
    let harness = MicrosoftHarness::with_ann(20).await;
    let ids: Vec<String> = harness.world.truth(ANN).unwrap().messages.into_keys().collect();

    let answers = sent(&harness, &values(&ids)).await;

    assert_eq!(answers.len(), 20);
    for answer in answers {
        let id = &ids[answer["id"].as_str().unwrap().parse::<usize>().unwrap()];
        assert_eq!(answer["status"], 200);
        let bytes = STANDARD.decode(answer["body"].as_str().unwrap()).unwrap();
        let alone = harness.get(&format!("/v1.0/me/messages/{id}/$value"), &harness.token()).await.body;
        assert_eq!(bytes, alone);
    }
    let log = harness.world.request_log();
    assert_eq!(log.iter().filter(|entry| entry.in_batch && entry.route == MicrosoftRoute::MessagesValue).count(), 20);
    assert!(harness.world.without_immutable_ids().is_empty());
    harness.assert_no_violations();
}

#[tokio::test]
async fn parts_are_throttled_separately() {
    let harness = MicrosoftHarness::with_ann(3).await;
    let ids: Vec<String> = harness.world.truth(ANN).unwrap().messages.into_keys().collect();
    harness.world.add_fault(MicrosoftFault {
        route: Some(MicrosoftRoute::MessagesValue),
        ..MicrosoftFault::once(MicrosoftFaultKind::Throttled { retry_after: Some(7) })
    });

    let answers = sent(&harness, &values(&ids)).await;

    let throttled: Vec<&Value> = answers.iter().filter(|answer| answer["status"] == 429).collect();
    assert_eq!((throttled.len(), &throttled[0]["headers"]["Retry-After"]), (1, &json!("7")));
    assert_eq!(throttled[0]["body"]["error"]["code"], "ApplicationThrottled");
    assert_eq!(answers.iter().filter(|answer| answer["status"] == 200).count(), 2);
}

#[tokio::test]
async fn dependent_of_a_failed_part_fails() {
    let harness = MicrosoftHarness::with_ann(1).await;
    let batch = json!({"requests": [
        {"id": "a", "method": "GET", "url": "/me/messages/nonsense", "headers": {"Prefer": IMMUTABLE}},
        {"id": "b", "method": "GET", "url": "/me", "dependsOn": ["a"]},
        {"id": "c", "method": "GET", "url": "/me"},
    ]});

    let statuses: Vec<Value> = sent(&harness, &batch).await.iter().map(|answer| answer["status"].clone()).collect();

    assert_eq!(statuses, [json!(400), json!(424), json!(200)]);
}

#[tokio::test]
async fn faults_drop_and_reorder_parts() {
    let harness = MicrosoftHarness::with_ann(5).await;
    let ids: Vec<String> = harness.world.truth(ANN).unwrap().messages.into_keys().collect();
    harness.world.add_fault(MicrosoftFault::once(MicrosoftFaultKind::MissingPart));
    harness.world.add_fault(MicrosoftFault::once(MicrosoftFaultKind::ShuffledParts));

    let came: Vec<Value> = sent(&harness, &values(&ids)).await.iter().map(|answer| answer["id"].clone()).collect();

    assert_eq!(came, ["3", "2", "1", "0"]);
}

#[tokio::test]
async fn malformed_batch_is_400_and_a_violation() {
    let harness = MicrosoftHarness::with_ann(1).await;
    let token = harness.token();

    let answered =
        harness.post("/v1.0/$batch", &token, &json!({"requests": [{"id": "1", "method": "GET", "url": "me"}]})).await;
    assert_eq!(answered.status, 400);
    assert_eq!(harness.world.violations().len(), 1);
    assert_eq!(harness.post("/v1.0/$batch", "nobody", &json!({"requests": []})).await.status, 401);
}
