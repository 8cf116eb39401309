//! Requests that violate Microsoft's API description.

use serde_json::{Value, json};
use sim::microsoft::Side;

use super::harness::{ANN, IMMUTABLE, MicrosoftHarness};

async fn refused(harness: &MicrosoftHarness, method: &str, path: &str, prefer: &str, body: &str) -> u16 {
    let authorization = format!("Bearer {}", harness.token());
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Prefer", prefer)];
    harness.send(method, &format!("/v1.0/{path}"), &fields, body.as_bytes()).await.unwrap().status
}

#[tokio::test]
async fn undocumented_request_is_400_and_a_violation() {
    let harness = MicrosoftHarness::with_ann(1).await;
    for (method, path, prefer, body, why) in [
        ("GET", "me/messages?top=5", IMMUTABLE, "", "unknown parameter \"top\""),
        ("GET", "me/messages?$top=five", IMMUTABLE, "", "\"five\" is not between"),
        ("GET", "me/messages?$select=isread", IMMUTABLE, "", "Could not find a property named 'isread'"),
        ("GET", "me/messages?$select=id,from&$select=id", IMMUTABLE, "", "comes twice"),
        ("GET", "me/messages", "IdType=\"Immutable\"", "", "unknown preference"),
        ("GET", "me/mailFolders/inbox/messages/delta?$deltaToken=x", IMMUTABLE, "", "unknown parameter"),
        ("POST", "subscriptions", IMMUTABLE, r#"{"changetype":"created"}"#, "changetype is not known"),
        ("POST", "subscriptions", IMMUTABLE, r#"{"changeType":7}"#, "a number is not a string"),
        ("POST", "subscriptions", IMMUTABLE, "{", "no JSON"),
        ("DELETE", "subscriptions/x", IMMUTABLE, "{}", "takes no body"),
    ] {
        harness.world.clear_violations();

        assert_eq!(refused(&harness, method, path, prefer, body).await, 400, "{path}");

        let violations = harness.world.violations();
        assert_eq!(violations.len(), 1, "{path}");
        assert_eq!(violations[0].side, Side::Request);
        assert!(violations[0].why.contains(why), "{}", violations[0].why);
    }
    assert_eq!(refused(&harness, "GET", "me/calendars", IMMUTABLE, "").await, 400);
    assert_eq!(refused(&harness, "PATCH", "me/messages/x", IMMUTABLE, "{}").await, 400);
    let told = harness.control_ok("GET", "violations", Value::Null).await;
    assert_eq!(told["items"][1]["why"], "there is no such method");
    harness.control_ok("DELETE", "violations", Value::Null).await;
    harness.assert_no_violations();
}

#[tokio::test]
async fn changing_mailbox_matches_the_api_description() {
    let harness = MicrosoftHarness::with_ann(40).await;
    harness.world.step(ANN, 200);

    for page in ["/messages?$top=1000", "/mailFolders?includeHiddenFolders=true&$top=100", "/mailFolders/inbox"] {
        harness.me(page).await;
    }
    for id in harness.world.truth(ANN).unwrap().messages.keys() {
        harness.me(&format!("/messages/{id}")).await;
        harness.me(&format!("/messages/{id}/attachments")).await;
    }

    harness.assert_no_violations();
}

#[tokio::test]
async fn same_seed_makes_the_same_mailbox() {
    let (one, other) = (MicrosoftHarness::with_ann(30).await, MicrosoftHarness::with_ann(30).await);
    for harness in [&one, &other] {
        harness.control_ok("POST", &format!("accounts/{ANN}/steps"), json!({"count": 100})).await;
    }

    assert_eq!(one.world.truth(ANN), other.world.truth(ANN));
    let told = one.control_ok("GET", &format!("accounts/{ANN}/truth"), Value::Null).await;
    assert_eq!(serde_json::from_value::<sim::microsoft::OutlookTruth>(told).ok(), other.world.truth(ANN));
}

#[tokio::test]
async fn scripted_operations_take_effect() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let id = harness.apply(ANN, json!({"op": "deliver", "received_at": "2026-01-01T00:00:00Z"})).await["messages"][0]
        .clone();
    let folder =
        harness.apply(ANN, json!({"op": "create_folder", "name": "A", "parent": "inbox"})).await["folder"].clone();
    harness.apply(ANN, json!({"op": "move", "message": id, "folder": folder})).await;
    harness.apply(ANN, json!({"op": "copy", "message": id, "folder": "inbox"})).await;
    harness.apply(ANN, json!({"op": "mark", "message": id, "read": true, "flagged": true})).await;
    harness.apply(ANN, json!({"op": "rename_folder", "folder": folder, "name": "B"})).await;
    harness.apply(ANN, json!({"op": "move_folder", "folder": folder})).await;
    let truth = harness.world.truth(ANN).unwrap();
    let message = &truth.messages[id.as_str().unwrap()];
    assert_eq!((message.folder.as_str(), message.is_read, message.is_flagged), ("B", true, true));
    assert_eq!((message.received, truth.messages.len()), (1_767_225_600, 2));

    harness.apply(ANN, json!({"op": "delete", "message": id})).await;
    harness.apply(ANN, json!({"op": "delete_folder", "folder": folder})).await;
    let truth = harness.world.truth(ANN).unwrap();
    assert_eq!(
        truth.folders[&truth.messages[id.as_str().unwrap()].folder_id].well_known.as_deref(),
        Some("deleteditems")
    );
    harness.apply(ANN, json!({"op": "delete_folder", "folder": folder, "purge": true})).await;
    harness.apply(ANN, json!({"op": "purge", "message": id})).await;
    harness.apply(ANN, json!({"op": "empty_folder", "folder": "inbox"})).await;
    let draft = harness.apply(ANN, json!({"op": "draft"})).await["messages"][0].clone();
    harness.apply(ANN, json!({"op": "draft", "message": draft})).await;
    harness.apply(ANN, json!({"op": "send_draft", "message": draft})).await;
    harness.apply(ANN, json!({"op": "expire_delta"})).await;
    assert_eq!(harness.world.truth(ANN).unwrap().messages.len(), 1);
    let wrong = harness.control("POST", &format!("accounts/{ANN}/apply"), json!({"op": "purge", "message": id})).await;
    assert_eq!(wrong.status, 409);
    let stays = json!({"op": "delete_folder", "folder": "inbox", "purge": true});
    assert_eq!(harness.control("POST", &format!("accounts/{ANN}/apply"), stays).await.status, 409);
}
