//! What Google's documents do not have is refused and written down.

use serde_json::{Value, json};
use sim::google::Side;

use super::place::Place;

async fn refused(place: &Place, method: &str, path: &str, body: &str) -> u16 {
    let authorization = format!("Bearer {}", place.token());
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    place.send(method, &format!("/gmail/v1/users/me/{path}"), &fields, body.as_bytes()).await.unwrap().status
}

#[tokio::test]
async fn a_request_that_the_document_does_not_have_is_400_with_the_reason_and_kept() {
    let place = Place::with_ann(1).await;
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
        place.world.forget_violations();

        assert_eq!(refused(&place, method, path, body).await, 400, "{path}");

        let violations = place.world.violations();
        assert_eq!(violations.len(), 1, "{path}");
        assert_eq!(violations[0].side, Side::Request);
        assert!(violations[0].why.contains(why), "{}", violations[0].why);
    }
    assert_eq!(refused(&place, "GET", "drafts", "").await, 404);
    let told = place.steer("GET", "violations", Value::Null).await;
    assert_eq!(told["items"][1]["why"], "there is no such method");
    place.steer("DELETE", "violations", Value::Null).await;
    place.assert_no_violations();
}

#[tokio::test]
async fn what_every_method_takes_is_taken() {
    let place = Place::with_ann(1).await;

    assert_eq!(refused(&place, "GET", "messages?prettyPrint=false&alt=json&quotaUser=a", "").await, 200);

    place.assert_no_violations();
    assert_eq!(place.steer("GET", "violations", Value::Null).await, json!({"items": []}));
}
