//! Messages and labels, one by one.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::json;
use sha2::{Digest, Sha256};
use sim::google::{Fault, Kind, Operation};

use super::place::{ANN, Place};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn every_message_has_the_bytes_labels_and_dates_that_the_truth_tells() {
    let place = Place::with_ann(30).await;
    let truth = place.world.truth(ANN).unwrap();

    for (id, known) in &truth.messages {
        let message = place.gmail(&format!("messages/{id}?format=raw")).await;

        let raw = URL_SAFE_NO_PAD.decode(message["raw"].as_str().unwrap()).unwrap();
        assert_eq!((sha256(&raw), raw.len()), (known.sha256.clone(), known.size));
        assert_eq!(message["threadId"], known.thread_id);
        assert_eq!(message["internalDate"], known.internal_date.to_string());
        assert_eq!(message["historyId"], known.history_id);
        let labels = message.get("labelIds").cloned().unwrap_or_else(|| json!([]));
        assert_eq!(labels, json!(known.label_ids));
    }
    assert_eq!(truth.messages.len(), 30);
    place.assert_no_violations();
}

#[tokio::test]
async fn a_message_is_shown_in_the_form_that_was_asked_for() {
    let place = Place::with_ann(0).await;
    let raw = "From: Ann <ann@x.test>\r\nSubject: Hello\r\n  there\r\nMIME-Version: 1.0\r\n\
               Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nText\r\n--b\r\n\
               Content-Type: application/pdf; name=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\
               Content-Disposition: attachment; filename=a.pdf\r\n\r\nJVBERg==\r\n--b--\r\n";
    let applied = place.world.apply(ANN, Operation::deliver_bytes(raw)).unwrap();
    let path = format!("messages/{}", applied.messages[0]);

    let minimal = place.gmail(&format!("{path}?format=minimal")).await;
    let metadata = place.gmail(&format!("{path}?format=metadata&metadataHeaders=subject")).await;
    let full = place.gmail(&path).await;

    assert!(minimal.get("payload").is_none() && minimal.get("raw").is_none());
    assert_eq!(minimal["labelIds"], json!(["INBOX", "UNREAD"]));
    assert_eq!(metadata["payload"]["headers"], json!([{"name": "Subject", "value": "Hello  there"}]));
    assert_eq!(full["payload"]["mimeType"], "multipart/mixed");
    assert_eq!(full["payload"]["parts"][0]["body"]["data"], URL_SAFE_NO_PAD.encode("Text"));
    let attached = &full["payload"]["parts"][1];
    assert_eq!(
        (&attached["filename"], &attached["partId"], &attached["body"]["size"]),
        (&json!("a.pdf"), &json!("1"), &json!(4))
    );
    let id = attached["body"]["attachmentId"].as_str().unwrap();
    let attachment = place.gmail(&format!("{path}/attachments/{id}")).await;
    assert_eq!(attachment, json!({"size": 4, "data": URL_SAFE_NO_PAD.encode("%PDF")}));
    let again = place.gmail(&path).await["payload"]["parts"][1]["body"]["attachmentId"].clone();
    assert_ne!(again, id, "an attachment's id holds for one reading");
    place.assert_no_violations();
}

#[tokio::test]
async fn padding_comes_when_it_is_scripted() {
    let place = Place::with_ann(0).await;
    let id =
        place.world.apply(ANN, Operation::deliver_bytes("From: a@x.test\r\n\r\nxx\r\n")).unwrap().messages.remove(0);
    let raw = async || place.gmail(&format!("messages/{id}?format=raw")).await["raw"].as_str().unwrap().to_owned();

    let plain = raw().await;
    place.world.add_fault(Fault::once(Kind::Padded));
    let padded = raw().await;

    assert!(!plain.ends_with('='));
    assert_eq!(URL_SAFE.decode(&padded).unwrap(), URL_SAFE_NO_PAD.decode(&plain).unwrap());
    assert!(padded.ends_with('='));
}

#[tokio::test]
async fn what_is_not_there_or_not_allowed_is_told_as_google_tells_it() {
    let place = Place::with_ann(1).await;
    let (token, me) = (place.token(), "/gmail/v1/users/me");
    let metadata = ["https://www.googleapis.com/auth/gmail.metadata"];
    let limited = place.world.grant_to(ANN, sim::google::CLIENT_ID, &metadata).unwrap().access_token;
    let labels = ["https://www.googleapis.com/auth/gmail.labels"];
    let useless = place.world.grant_to(ANN, sim::google::CLIENT_ID, &labels).unwrap().access_token;
    let id = place.gmail("messages?includeSpamTrash=true").await["messages"][0]["id"].as_str().unwrap().to_owned();

    for (path, token, status, reason) in [
        (format!("{me}/messages/0123456789abcdef"), &token, 404, "notFound"),
        (format!("{me}/labels/Label_99"), &token, 404, "notFound"),
        (format!("{me}/profile"), &"wrong".to_owned(), 401, "authError"),
        ("/gmail/v1/users/bob@sim.example/profile".to_owned(), &token, 403, "forbidden"),
        (format!("{me}/profile"), &useless, 403, "insufficientPermissions"),
        (format!("{me}/messages?q=is:unread"), &limited, 403, "forbidden"),
        (format!("{me}/messages/{id}?format=raw"), &limited, 403, "forbidden"),
        (format!("{me}/messages?q=larger:5M"), &token, 400, "invalidArgument"),
    ] {
        let answered = place.get(&path, token).await;
        assert_eq!((answered.status, answered.reason().as_str()), (status, reason), "{path}");
    }
    assert_eq!(place.get(&format!("{me}/messages/{id}?format=metadata"), &limited).await.status, 200);
    assert_eq!(place.get("/gmail/v1/users/ANN@sim.example/profile", &token).await.status, 200);
    place.assert_no_violations();
}

#[tokio::test]
async fn an_account_without_gmail_says_so() {
    let place = Place::with_ann(1).await;

    place.steer("PUT", &format!("accounts/{ANN}/mail-service"), json!({"enabled": false})).await;

    let answered = place.get("/gmail/v1/users/me/profile", &place.token()).await;
    assert_eq!((answered.status, answered.reason().as_str()), (400, "failedPrecondition"));
    place.assert_no_violations();
}

#[tokio::test]
async fn labels_are_listed_without_counts_and_got_with_them() {
    let place = Place::with_ann(0).await;
    let label = place.world.apply(ANN, Operation::CreateLabel { name: "Travel".into() }).unwrap().label.unwrap();
    let labels = Some(vec!["Travel".to_owned(), "UNREAD".to_owned()]);
    let deliver = Operation::Deliver { labels, count: Some(3), reply_to: None, raw: None, received_at: None };
    let first = place.world.apply(ANN, deliver).unwrap().messages.remove(0);
    place.world.apply(ANN, Operation::Label { message: first, add: vec![], remove: vec!["UNREAD".into()] }).unwrap();

    let listed = place.gmail("labels").await["labels"].as_array().unwrap().clone();
    let travel = place.gmail(&format!("labels/{label}")).await;

    let found = listed.iter().find(|shown| shown["id"] == *label).unwrap();
    assert_eq!((&found["name"], &found["type"], found.get("messagesTotal")), (&json!("Travel"), &json!("user"), None));
    assert!(listed.iter().any(|shown| shown["id"] == "INBOX" && shown["type"] == "system"));
    assert_eq!(
        (&travel["messagesTotal"], &travel["messagesUnread"], &travel["threadsTotal"]),
        (&json!(3), &json!(2), &json!(3))
    );
    place.assert_no_violations();
}

#[tokio::test]
async fn the_same_seed_makes_the_same_mailboxes() {
    let grown = async || {
        let place = Place::with_ann(20).await;
        place.world.create_many(2, 3);
        place.world.step(ANN, 200);
        place.world.step_any(50);
        place.world.addresses().iter().map(|address| place.world.truth(address).unwrap()).collect::<Vec<_>>()
    };

    assert_eq!(grown().await, grown().await);
}
