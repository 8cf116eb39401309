//! Folders, messages, raw content and attachments.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sim::microsoft::OutlookOperation;

use super::harness::{ANN, IMMUTABLE, MicrosoftHarness, code};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the ids of all pages.
async fn walked(harness: &MicrosoftHarness, path: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut next = path.to_owned();
    loop {
        let page = harness.me(&next).await;
        ids.extend(page["value"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match page["@odata.nextLink"].as_str() {
            Some(link) => next = link.to_owned(),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn messages_match_the_ground_truth() {
    let harness = MicrosoftHarness::with_ann(35).await;
    let truth = harness.world.truth(ANN).unwrap();

    let mut ids = walked(&harness, "/messages?$select=id&$top=7").await;
    ids.sort();
    assert_eq!(ids, truth.messages.keys().cloned().collect::<Vec<_>>());
    for (id, message) in &truth.messages {
        let answered = harness.get(&format!("/v1.0/me/messages/{id}/$value"), &harness.token()).await;
        assert_eq!(sha256(&answered.body), message.sha256);
        assert!(["text/plain", "application/octet-stream"].contains(&answered.header("content-type").unwrap()));
    }
    harness.assert_no_violations();
}

#[tokio::test]
async fn folders_are_a_paged_tree() {
    let harness = MicrosoftHarness::with_ann(20).await;
    let truth = harness.world.truth(ANN).unwrap();

    let mut seen = walked(&harness, "/mailFolders?includeHiddenFolders=true&$top=3").await;
    let visible = walked(&harness, "/mailFolders").await;
    assert!(visible.len() < seen.len());
    let mut at = 0;
    while at < seen.len() {
        let below = format!("/mailFolders/{}/childFolders?includeHiddenFolders=true", seen[at]);
        seen.extend(walked(&harness, &below).await);
        at += 1;
    }
    seen.sort();

    assert_eq!(seen, truth.folders.keys().cloned().collect::<Vec<_>>());
    let inbox = harness.me("/mailFolders/inbox").await;
    let counted = truth.messages.values().filter(|message| message.folder_id == inbox["id"]).count();
    assert_eq!(inbox["totalItemCount"], counted);
    harness.assert_no_violations();
}

#[tokio::test]
async fn select_limits_message_fields() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let raw = "From: Bo <bo@x.test>\r\nTo: ann@contoso.example\r\nSubject: Hi\r\nMessage-ID: <1@x.test>\r\n\
               Date: Sun, 01 Feb 2026 10:00:00 +0000\r\n\r\nHello  you\r\n";
    let id = harness.world.apply(ANN, OutlookOperation::deliver_bytes(raw)).unwrap().messages.remove(0);

    let whole = harness.me(&format!("/messages/{id}")).await;
    assert_eq!((&whole["subject"], &whole["bodyPreview"]), (&json!("Hi"), &json!("Hello you")));
    assert_eq!(whole["from"]["emailAddress"], json!({"name": "Bo", "address": "bo@x.test"}));
    assert_eq!(
        (&whole["receivedDateTime"], &whole["sentDateTime"]),
        (&json!("2026-02-01T12:00:00Z"), &json!("2026-02-01T10:00:00Z"))
    );
    assert_eq!(whole["internetMessageId"], "<1@x.test>");
    assert!(whole["internetMessageHeaders"].is_null());
    let part = harness.me(&format!("/messages/{id}?$select=isRead,internetMessageHeaders")).await;
    assert_eq!(part["internetMessageHeaders"][2], json!({"name": "Subject", "value": "Hi"}));
    let names: Vec<&String> = part.as_object().unwrap().keys().collect();
    assert_eq!(names, ["@odata.context", "@odata.etag", "id", "internetMessageHeaders", "isRead"]);
    harness.assert_no_violations();
}

#[tokio::test]
async fn listings_are_filtered_and_ordered() {
    let harness = MicrosoftHarness::with_ann(30).await;
    let truth = harness.world.truth(ANN).unwrap();
    let since = "2026-02-01T08:00:00Z".parse::<jiff::Timestamp>().unwrap();
    let expected = truth.messages.values().filter(|message| message.received >= since.as_second()).count();
    assert!((1..30).contains(&expected));

    let filter = "$filter=receivedDateTime%20ge%202026-02-01T08:00:00Z";
    assert_eq!(walked(&harness, &format!("/messages?{filter}&$top=5")).await.len(), expected);
    let ordered =
        harness.me(&format!("/messages?{filter}&$orderby=receivedDateTime%20asc&$select=receivedDateTime")).await;
    let dates: Vec<&str> =
        ordered["value"].as_array().unwrap().iter().filter_map(|item| item["receivedDateTime"].as_str()).collect();
    assert!(dates.is_sorted() && dates.len() > 1);
    let other = "/v1.0/me/messages?$filter=isDraft%20eq%20false&$orderby=receivedDateTime%20desc";
    let answered = harness.get(other, &harness.token()).await;
    assert_eq!((answered.status, code(&answered).as_str()), (400, "InefficientFilter"));
    harness.assert_no_violations();
}

#[tokio::test]
async fn only_the_immutable_id_survives_a_move() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let id = harness.world.apply(ANN, OutlookOperation::deliver()).unwrap().messages.remove(0);
    let token = format!("Bearer {}", harness.token());
    let plain = async |id: &str| {
        let fields = [("Authorization", token.as_str())];
        harness.send("GET", &format!("/v1.0/me/messages/{id}?$select=id,changeKey"), &fields, b"").await.unwrap()
    };
    let before = plain(&id).await.json();
    assert_ne!(before["id"], id.as_str());
    assert_eq!(plain(before["id"].as_str().unwrap()).await.status, 200, "either kind is taken");

    harness.world.apply(ANN, OutlookOperation::Move { message: id.clone(), folder: "archive".to_owned() }).unwrap();

    assert_eq!(plain(before["id"].as_str().unwrap()).await.status, 404);
    let after = plain(&id).await.json();
    assert!(after["id"] != before["id"] && after["changeKey"] != before["changeKey"]);
    let answered = harness.get(&format!("/v1.0/me/messages/{id}"), &harness.token()).await;
    assert_eq!(answered.header("preference-applied"), Some(IMMUTABLE));
    assert_eq!(answered.json()["id"], id.as_str());
    assert_eq!(harness.world.without_immutable_ids()[ANN], 4);
    let told = harness.control_ok("GET", "requests", Value::Null).await;
    assert_eq!(told["without_immutable_ids"][ANN], 4);
}

#[tokio::test]
async fn ids_are_case_sensitive() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let made = harness.world.apply(ANN, OutlookOperation::deliver_many(2)).unwrap().messages;
    assert!(made[0].eq_ignore_ascii_case(&made[1]) && made[0] != made[1]);
    let token = harness.token();

    let answered = harness.get("/v1.0/me/messages/nonsense", &token).await;
    assert_eq!((answered.status, code(&answered).as_str()), (400, "ErrorInvalidIdMalformed"));
    harness.world.apply(ANN, OutlookOperation::Purge { message: made[0].clone() }).unwrap();
    let answered = harness.get(&format!("/v1.0/me/messages/{}", made[0]), &token).await;
    assert_eq!((answered.status, code(&answered).as_str()), (404, "ErrorItemNotFound"));
    assert_eq!(harness.get(&format!("/v1.0/me/messages/{}", made[1]), &token).await.status, 200);
}

#[tokio::test]
async fn attachments_have_three_kinds() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let raw = "From: bo@x.test\r\nSubject: Files\r\nX-Sim-Reference: https://files.x.test/plan.docx\r\nMIME-Version: 1.0\r\n\
               Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nHello\r\n\
               --b\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\n\
               Content-Transfer-Encoding: base64\r\n\r\nJVBERi0=\r\n\
               --b\r\nContent-Type: message/rfc822\r\n\r\nSubject: Inner\r\n\r\nInside\r\n--b--\r\n";
    let id = harness.world.apply(ANN, OutlookOperation::deliver_bytes(raw)).unwrap().messages.remove(0);
    let token = harness.token();

    assert_eq!(harness.me(&format!("/messages/{id}?$select=hasAttachments")).await["hasAttachments"], true);
    let list = harness.me(&format!("/messages/{id}/attachments")).await;
    let list = list["value"].as_array().unwrap();
    let kinds: Vec<&str> = list.iter().filter_map(|item| item["@odata.type"].as_str()).collect();
    assert_eq!(
        kinds,
        ["fileAttachment", "itemAttachment", "referenceAttachment"].map(|kind| format!("#microsoft.graph.{kind}"))
    );
    assert_eq!((&list[0]["name"], &list[0]["contentBytes"]), (&json!("a.pdf"), &json!("JVBERi0=")));
    let value = async |at: usize| {
        let path = format!("/v1.0/me/messages/{id}/attachments/{}/$value", list[at]["id"].as_str().unwrap());
        harness.get(&path, &token).await
    };
    assert_eq!(value(0).await.text(), "%PDF-");
    assert!(value(1).await.text().starts_with("Subject: Inner"));
    assert_eq!(value(2).await.status, 405);
    let one = harness.me(&format!("/messages/{id}/attachments/{}", list[0]["id"].as_str().unwrap())).await;
    assert_eq!(STANDARD.decode(one["contentBytes"].as_str().unwrap()).unwrap(), b"%PDF-");
    harness.assert_no_violations();
}

#[tokio::test]
async fn mail_needs_the_mail_read_permission() {
    let harness = MicrosoftHarness::with_ann(1).await;
    let basic = harness.world.grant_to(ANN, sim::microsoft::CLIENT_ID, &["Mail.ReadBasic"]).unwrap().access_token;
    let none = harness.world.grant_to(ANN, sim::microsoft::CLIENT_ID, &["User.Read"]).unwrap().access_token;
    let id = harness.world.truth(ANN).unwrap().messages.into_keys().next().unwrap();

    assert_eq!(harness.get("/v1.0/me/messages", &basic).await.status, 200);
    assert_eq!(harness.get(&format!("/v1.0/me/messages/{id}/$value"), &basic).await.status, 403);
    assert_eq!(harness.get("/v1.0/me/messages", &none).await.status, 403);
    harness.control_ok("PUT", &format!("accounts/{ANN}/mail-service"), json!({"enabled": false})).await;
    let answered = harness.get("/v1.0/me/mailFolders/inbox", &harness.token()).await;
    assert_eq!((answered.status, code(&answered).as_str()), (404, "MailboxNotEnabledForRESTAPI"));
}

#[tokio::test]
async fn search_folder_shows_other_folders_mail() {
    let harness = MicrosoftHarness::new().await;
    for number in 0..8 {
        harness.world.create_many(number, 10);
    }
    let owner = harness
        .world
        .addresses()
        .into_iter()
        .find(|address| harness.world.truth(address).unwrap().folders.values().any(|folder| folder.is_search))
        .unwrap();
    let token = harness.world.grant(&owner).unwrap().access_token;

    let page = harness.get("/v1.0/me/mailFolders?$top=100", &token).await.json();

    let kind = "#microsoft.graph.mailSearchFolder";
    let search = page["value"].as_array().unwrap().iter().find(|folder| folder["@odata.type"] == kind).unwrap();
    let shown = harness
        .get(&format!("/v1.0/me/mailFolders/{}/messages?$top=1000", search["id"].as_str().unwrap()), &token)
        .await;
    let unread = harness.world.truth(&owner).unwrap().messages.values().filter(|message| !message.is_read).count();
    assert_eq!(shown.json()["value"].as_array().unwrap().len(), unread);
    harness.assert_no_violations();
}
