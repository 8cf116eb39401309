//! Requests that violate Google's API description.

use serde_json::{Value, json};
use sim::google::Side;

use super::harness::GoogleHarness;

async fn refused(harness: &GoogleHarness, method: &str, path: &str, body: &str) -> u16 {
    let authorization = format!("Bearer {}", harness.token());
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    harness.send(method, &format!("/gmail/v1/users/me/{path}"), &fields, body.as_bytes()).await.unwrap().status
}

#[tokio::test]
async fn undocumented_request_is_400_and_a_violation() {
    let harness = GoogleHarness::with_ann(1).await;
    for (method, path, body, why) in [
        ("GET", "messages?max_results=5", "", "unknown parameter \"max_results\""),
        ("GET", "messages?maxResults=five", "", "\"five\" is not between"),
        ("GET", "messages/1?format=RAW", "", "\"RAW\" is not"),
        ("GET", "history?startHistoryId=1&historyTypes=messagesAdded", "", "\"messagesAdded\" is not"),
        ("POST", "watch", r#"{"topicName":"projects/p/topics/t","label_ids":["INBOX"]}"#, "label_ids is not known"),
        ("POST", "watch", r#"{"topicName":7}"#, "a number is not a string"),
        ("POST", "watch", "{", "no JSON"),
        ("POST", "stop", "{}", "takes no body"),
    ] {
        harness.world.clear_violations();

        assert_eq!(refused(&harness, method, path, body).await, 400, "{path}");

        let violations = harness.world.violations();
        assert_eq!(violations.len(), 1, "{path}");
        assert_eq!(violations[0].side, Side::Request);
        assert!(violations[0].why.contains(why), "{}", violations[0].why);
    }
    assert_eq!(refused(&harness, "GET", "drafts", "").await, 404);
    let told = harness.control_ok("GET", "violations", Value::Null).await;
    assert_eq!(told["items"][1]["why"], "there is no such method");
    harness.control_ok("DELETE", "violations", Value::Null).await;
    harness.assert_no_violations();
}

#[tokio::test]
async fn common_parameters_are_accepted() {
    let harness = GoogleHarness::with_ann(1).await;

    assert_eq!(refused(&harness, "GET", "messages?prettyPrint=false&alt=json&quotaUser=a", "").await, 200);

    harness.assert_no_violations();
    assert_eq!(harness.control_ok("GET", "violations", Value::Null).await, json!({"items": []}));
}
