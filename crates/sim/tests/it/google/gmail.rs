//! Single messages and labels.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::json;
use sha2::{Digest, Sha256};
use sim::google::{GmailOperation, GmailTruth, GoogleFault, GoogleFaultKind};

use super::harness::{ANN, GoogleHarness};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn messages_match_the_ground_truth() {
    let harness = GoogleHarness::with_ann(30).await;
    let truth = harness.world.truth(ANN).unwrap();

    for (id, known) in &truth.messages {
        let message = harness.gmail(&format!("messages/{id}?format=raw")).await;

        let raw = URL_SAFE_NO_PAD.decode(message["raw"].as_str().unwrap()).unwrap();
        assert_eq!((sha256(&raw), raw.len()), (known.sha256.clone(), known.size));
        assert_eq!(message["threadId"], known.thread_id);
        assert_eq!(message["internalDate"], known.internal_date.to_string());
        assert_eq!(message["historyId"], known.history_id);
        let labels = message.get("labelIds").cloned().unwrap_or_else(|| json!([]));
        assert_eq!(labels, json!(known.label_ids));
    }
    assert_eq!(truth.messages.len(), 30);
    harness.assert_no_violations();
}

#[tokio::test]
async fn message_is_shown_in_the_requested_format() {
    let harness = GoogleHarness::with_ann(0).await;
    let raw = "From: Ann <ann@x.test>\r\nSubject: Hello\r\n  there\r\nMIME-Version: 1.0\r\n\
               Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nText\r\n--b\r\n\
               Content-Type: application/pdf; name=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\
               Content-Disposition: attachment; filename=a.pdf\r\n\r\nJVBERg==\r\n--b--\r\n";
    let applied = harness.world.apply(ANN, GmailOperation::deliver_bytes(raw)).unwrap();
    let path = format!("messages/{}", applied.messages[0]);

    let minimal = harness.gmail(&format!("{path}?format=minimal")).await;
    let metadata = harness.gmail(&format!("{path}?format=metadata&metadataHeaders=subject")).await;
    let full = harness.gmail(&path).await;

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
    let attachment = harness.gmail(&format!("{path}/attachments/{id}")).await;
    assert_eq!(attachment, json!({"size": 4, "data": URL_SAFE_NO_PAD.encode("%PDF")}));
    let again = harness.gmail(&path).await["payload"]["parts"][1]["body"]["attachmentId"].clone();
    assert_ne!(again, id, "an attachment's id holds for one reading");
    harness.assert_no_violations();
}

#[tokio::test]
async fn padding_is_injected() {
    let harness = GoogleHarness::with_ann(0).await;
    let id = harness
        .world
        .apply(ANN, GmailOperation::deliver_bytes("From: a@x.test\r\n\r\nxx\r\n"))
        .unwrap()
        .messages
        .remove(0);
    let raw = async || harness.gmail(&format!("messages/{id}?format=raw")).await["raw"].as_str().unwrap().to_owned();

    let plain = raw().await;
    harness.world.add_fault(GoogleFault::once(GoogleFaultKind::Padded));
    let padded = raw().await;

    assert!(!plain.ends_with('='));
    assert_eq!(URL_SAFE.decode(&padded).unwrap(), URL_SAFE_NO_PAD.decode(&plain).unwrap());
    assert!(padded.ends_with('='));
}

#[tokio::test]
async fn missing_and_forbidden_are_googles_errors() {
    let harness = GoogleHarness::with_ann(1).await;
    let (token, me) = (harness.token(), "/gmail/v1/users/me");
    let metadata = ["https://www.googleapis.com/auth/gmail.metadata"];
    let limited = harness.world.grant_to(ANN, sim::google::CLIENT_ID, &metadata).unwrap().access_token;
    let labels = ["https://www.googleapis.com/auth/gmail.labels"];
    let useless = harness.world.grant_to(ANN, sim::google::CLIENT_ID, &labels).unwrap().access_token;
    let id = harness.gmail("messages?includeSpamTrash=true").await["messages"][0]["id"].as_str().unwrap().to_owned();

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
        let answered = harness.get(&path, token).await;
        assert_eq!((answered.status, answered.reason().as_str()), (status, reason), "{path}");
    }
    assert_eq!(harness.get(&format!("{me}/messages/{id}?format=metadata"), &limited).await.status, 200);
    assert_eq!(harness.get("/gmail/v1/users/ANN@sim.example/profile", &token).await.status, 200);
    harness.assert_no_violations();
}

#[tokio::test]
async fn account_without_gmail_is_refused() {
    let harness = GoogleHarness::with_ann(1).await;

    harness.control_ok("PUT", &format!("accounts/{ANN}/mail-service"), json!({"enabled": false})).await;

    let answered = harness.get("/gmail/v1/users/me/profile", &harness.token()).await;
    assert_eq!((answered.status, answered.reason().as_str()), (400, "failedPrecondition"));
    harness.assert_no_violations();
}

#[tokio::test]
async fn only_single_labels_have_counts() {
    let harness = GoogleHarness::with_ann(0).await;
    let label = harness.world.apply(ANN, GmailOperation::CreateLabel { name: "Travel".into() }).unwrap().label.unwrap();
    let labels = Some(vec!["Travel".to_owned(), "UNREAD".to_owned()]);
    let deliver = GmailOperation::Deliver { labels, count: Some(3), reply_to: None, raw: None, received_at: None };
    let first = harness.world.apply(ANN, deliver).unwrap().messages.remove(0);
    harness
        .world
        .apply(ANN, GmailOperation::Label { message: first, add: vec![], remove: vec!["UNREAD".into()] })
        .unwrap();

    let listed = harness.gmail("labels").await["labels"].as_array().unwrap().clone();
    let travel = harness.gmail(&format!("labels/{label}")).await;

    let found = listed.iter().find(|shown| shown["id"] == *label).unwrap();
    assert_eq!((&found["name"], &found["type"], found.get("messagesTotal")), (&json!("Travel"), &json!("user"), None));
    assert!(listed.iter().any(|shown| shown["id"] == "INBOX" && shown["type"] == "system"));
    assert_eq!(
        (&travel["messagesTotal"], &travel["messagesUnread"], &travel["threadsTotal"]),
        (&json!(3), &json!(2), &json!(3))
    );
    harness.assert_no_violations();
}

async fn grown_mailboxes() -> Vec<GmailTruth> {
    let harness = GoogleHarness::with_ann(20).await;
    harness.world.create_many(2, 3);
    harness.world.step(ANN, 200);
    harness.world.step_any(50);
    harness.world.addresses().iter().map(|address| harness.world.truth(address).unwrap()).collect()
}

#[tokio::test]
async fn same_seed_makes_the_same_mailboxes() {
    assert_eq!(grown_mailboxes().await, grown_mailboxes().await);
}
