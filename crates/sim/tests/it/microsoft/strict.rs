//! What Microsoft's description does not have is refused and written down.

use serde_json::{Value, json};
use sim::microsoft::Side;

use super::place::{ANN, IMMUTABLE, Place};

async fn refused(place: &Place, method: &str, path: &str, prefer: &str, body: &str) -> u16 {
    let authorization = format!("Bearer {}", place.token());
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Prefer", prefer)];
    place.send(method, &format!("/v1.0/{path}"), &fields, body.as_bytes()).await.unwrap().status
}

#[tokio::test]
async fn a_request_that_the_document_does_not_have_is_400_with_the_reason_and_kept() {
    let place = Place::with_ann(1).await;
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
        place.world.forget_violations();

        assert_eq!(refused(&place, method, path, prefer, body).await, 400, "{path}");

        let violations = place.world.violations();
        assert_eq!(violations.len(), 1, "{path}");
        assert_eq!(violations[0].side, Side::Request);
        assert!(violations[0].why.contains(why), "{}", violations[0].why);
    }
    assert_eq!(refused(&place, "GET", "me/calendars", IMMUTABLE, "").await, 400);
    assert_eq!(refused(&place, "PATCH", "me/messages/x", IMMUTABLE, "{}").await, 400);
    let told = place.steer("GET", "violations", Value::Null).await;
    assert_eq!(told["items"][1]["why"], "there is no such method");
    place.steer("DELETE", "violations", Value::Null).await;
    place.assert_no_violations();
}

#[tokio::test]
async fn everything_of_a_lively_mailbox_is_shown_as_the_document_has_it() {
    let place = Place::with_ann(40).await;
    place.world.step(ANN, 200);

    for page in ["/messages?$top=1000", "/mailFolders?includeHiddenFolders=true&$top=100", "/mailFolders/inbox"] {
        place.me(page).await;
    }
    for id in place.world.truth(ANN).unwrap().messages.keys() {
        place.me(&format!("/messages/{id}")).await;
        place.me(&format!("/messages/{id}/attachments")).await;
    }

    place.assert_no_violations();
}

#[tokio::test]
async fn a_mailbox_is_what_its_seed_makes_it() {
    let (one, other) = (Place::with_ann(30).await, Place::with_ann(30).await);
    for place in [&one, &other] {
        place.steer("POST", &format!("accounts/{ANN}/steps"), json!({"count": 100})).await;
    }

    assert_eq!(one.world.truth(ANN), other.world.truth(ANN));
    let told = one.steer("GET", &format!("accounts/{ANN}/truth"), Value::Null).await;
    assert_eq!(serde_json::from_value::<sim::microsoft::Truth>(told).ok(), other.world.truth(ANN));
}

#[tokio::test]
async fn every_operation_is_done_by_a_script() {
    let place = Place::with_ann(0).await;
    let apply = async |operation: Value| place.steer("POST", &format!("accounts/{ANN}/apply"), operation).await;
    let id = apply(json!({"op": "deliver", "received_at": "2026-01-01T00:00:00Z"})).await["messages"][0].clone();
    let folder = apply(json!({"op": "create_folder", "name": "A", "parent": "inbox"})).await["folder"].clone();
    apply(json!({"op": "move", "message": id, "folder": folder})).await;
    apply(json!({"op": "copy", "message": id, "folder": "inbox"})).await;
    apply(json!({"op": "mark", "message": id, "read": true, "flagged": true})).await;
    apply(json!({"op": "rename_folder", "folder": folder, "name": "B"})).await;
    apply(json!({"op": "move_folder", "folder": folder})).await;
    let truth = place.world.truth(ANN).unwrap();
    let message = &truth.messages[id.as_str().unwrap()];
    assert_eq!((message.folder.as_str(), message.is_read, message.is_flagged), ("B", true, true));
    assert_eq!((message.received, truth.messages.len()), (1_767_225_600, 2));

    apply(json!({"op": "delete", "message": id})).await;
    apply(json!({"op": "delete_folder", "folder": folder})).await;
    let truth = place.world.truth(ANN).unwrap();
    assert_eq!(
        truth.folders[&truth.messages[id.as_str().unwrap()].folder_id].well_known.as_deref(),
        Some("deleteditems")
    );
    apply(json!({"op": "delete_folder", "folder": folder, "purge": true})).await;
    apply(json!({"op": "purge", "message": id})).await;
    apply(json!({"op": "empty_folder", "folder": "inbox"})).await;
    let draft = apply(json!({"op": "draft"})).await["messages"][0].clone();
    apply(json!({"op": "draft", "message": draft})).await;
    apply(json!({"op": "send_draft", "message": draft})).await;
    apply(json!({"op": "expire_delta"})).await;
    assert_eq!(place.world.truth(ANN).unwrap().messages.len(), 1);
    let wrong = place.control("POST", &format!("accounts/{ANN}/apply"), json!({"op": "purge", "message": id})).await;
    assert_eq!(wrong.status, 409);
    let stays = json!({"op": "delete_folder", "folder": "inbox", "purge": true});
    assert_eq!(place.control("POST", &format!("accounts/{ANN}/apply"), stays).await.status, 409);
}
