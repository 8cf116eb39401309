//! The history and its expiration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sim::google::{GmailOperation, GmailTruth};

use super::harness::{ANN, GoogleHarness};
use crate::client::encoded;

/// Returns all records since an id, and the history id of the last page.
async fn since(harness: &GoogleHarness, start: &str, more: &str) -> (Vec<Value>, String) {
    let (mut records, mut token) = (Vec::new(), String::new());
    loop {
        let page = harness.gmail(&format!("history?startHistoryId={start}{more}{token}")).await;
        records.extend(page["history"].as_array().into_iter().flatten().cloned());
        match page["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={}", encoded(next)),
            None => return (records, page["historyId"].as_str().unwrap().to_owned()),
        }
    }
}

/// The labels by message that a client knows from the history.
type LabelsByMessage = BTreeMap<String, BTreeSet<String>>;

fn known(truth: &GmailTruth) -> LabelsByMessage {
    truth.messages.iter().map(|(id, m)| (id.clone(), m.label_ids.iter().cloned().collect())).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn entries(record: &Value, field: &str) -> Vec<Value> {
    record[field].as_array().into_iter().flatten().cloned().collect()
}

fn message_id(entry: &Value) -> String {
    entry["message"]["id"].as_str().unwrap().to_owned()
}

fn follow(known: &mut LabelsByMessage, record: &Value) {
    for entry in entries(record, "messagesAdded") {
        known.insert(message_id(&entry), texts(&entry["message"]["labelIds"]).into_iter().collect());
    }
    for entry in entries(record, "labelsAdded") {
        known.get_mut(&message_id(&entry)).unwrap().extend(texts(&entry["labelIds"]));
    }
    for entry in entries(record, "labelsRemoved") {
        let gone = texts(&entry["labelIds"]);
        known.get_mut(&message_id(&entry)).unwrap().retain(|label| !gone.contains(label));
    }
    for entry in entries(record, "messagesDeleted") {
        known.remove(&message_id(&entry)).unwrap();
    }
}

#[tokio::test]
async fn history_leads_to_the_ground_truth() {
    let harness = GoogleHarness::with_ann(30).await;
    let mut reader = known(&harness.world.truth(ANN).unwrap());
    let mut cursor = harness.gmail("profile").await["historyId"].as_str().unwrap().to_owned();

    for round in 1..6 {
        harness.world.step(ANN, 80);
        let (records, next) = since(&harness, &cursor, &format!("&maxResults={}", round * 7)).await;
        let ids: Vec<u64> = records.iter().map(|record| record["id"].as_str().unwrap().parse().unwrap()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "in order, each once");
        records.iter().for_each(|record| follow(&mut reader, record));
        cursor = next;
    }

    assert_eq!(reader, known(&harness.world.truth(ANN).unwrap()));
    let (nothing, same) = since(&harness, &cursor, "").await;
    assert!(nothing.is_empty());
    assert_eq!(same, cursor);
    harness.assert_no_violations();
}

#[tokio::test]
async fn deleted_message_has_two_history_records() {
    let harness = GoogleHarness::with_ann(3).await;
    let start = harness.gmail("profile").await["historyId"].as_str().unwrap().to_owned();
    let id = harness.world.apply(ANN, GmailOperation::deliver()).unwrap().messages.remove(0);
    harness.world.apply(ANN, GmailOperation::Delete { message: id.clone() }).unwrap();

    let (records, _) = since(&harness, &start, "").await;

    assert_eq!(records[0]["messagesAdded"][0]["message"]["id"], *id);
    assert_eq!(records[0]["messagesAdded"][0]["message"]["labelIds"], json!(["INBOX", "UNREAD"]));
    assert_eq!(records[1]["messagesDeleted"][0]["message"]["id"], *id);
    assert!(records.iter().all(|record| record["messages"][0]["threadId"].is_string()));
    assert_eq!(harness.get(&format!("/gmail/v1/users/me/messages/{id}"), &harness.token()).await.status, 404);
}

#[tokio::test]
async fn history_is_filtered_by_type_and_label() {
    let harness = GoogleHarness::with_ann(0).await;
    let start = harness.gmail("profile").await["historyId"].as_str().unwrap().to_owned();
    let first = harness.world.apply(ANN, GmailOperation::deliver()).unwrap().messages.remove(0);
    harness.world.apply(ANN, GmailOperation::Trash { message: first.clone() }).unwrap();
    harness
        .world
        .apply(ANN, GmailOperation::Label { message: first, add: vec!["STARRED".into()], remove: vec![] })
        .unwrap();

    let (all, _) = since(&harness, &start, "").await;
    let (added, _) = since(&harness, &start, "&historyTypes=messageAdded&historyTypes=labelRemoved").await;
    let (starred, _) = since(&harness, &start, "&labelId=STARRED").await;

    assert_eq!(all[1]["labelsAdded"][0]["labelIds"], json!(["TRASH"]));
    assert_eq!(all[1]["labelsRemoved"][0]["labelIds"], json!(["INBOX"]));
    assert_eq!(added.len(), 2);
    assert!(added[1].get("labelsAdded").is_none() && added[1].get("labelsRemoved").is_some());
    assert_eq!(starred, [all[2].clone()]);
    harness.assert_no_violations();
}

#[tokio::test]
async fn edited_draft_is_a_new_message_in_its_thread() {
    let harness = GoogleHarness::with_ann(0).await;
    let draft = harness.world.apply(ANN, GmailOperation::Draft { message: None }).unwrap().messages.remove(0);
    let thread = harness.world.truth(ANN).unwrap().messages[&draft].thread_id.clone();

    let edited =
        harness.world.apply(ANN, GmailOperation::Draft { message: Some(draft.clone()) }).unwrap().messages.remove(0);

    let truth = harness.world.truth(ANN).unwrap();
    assert_eq!(truth.messages.keys().collect::<Vec<_>>(), [&edited]);
    assert_eq!(
        (&truth.messages[&edited].thread_id, &truth.messages[&edited].label_ids),
        (&thread, &vec!["DRAFT".to_owned()])
    );
}

#[tokio::test]
async fn expired_history_id_is_404_and_malformed_400() {
    let harness = GoogleHarness::with_ann(2).await;
    let id = harness.gmail("profile").await["historyId"].as_str().unwrap().parse::<u64>().unwrap();
    let status = async |start: &str| {
        harness.get(&format!("/gmail/v1/users/me/history?startHistoryId={start}"), &harness.token()).await.status
    };
    assert_eq!(status(&id.to_string()).await, 200);

    harness.world.apply(ANN, GmailOperation::ExpireHistory).unwrap();

    assert_eq!(status(&id.to_string()).await, 404);
    assert_eq!(status(&(id + 1_000_000).to_string()).await, 404);
    assert_eq!(status("yesterday").await, 400);
    assert_eq!(status("").await, 400);
    assert_eq!(harness.get("/gmail/v1/users/me/history", &harness.token()).await.status, 400);
    let (records, now) = since(&harness, &harness.world.truth(ANN).unwrap().history_id, "").await;
    assert!(records.is_empty() && now.parse::<u64>().unwrap() > id);
}

#[tokio::test]
async fn silent_label_deletion_leaves_no_history() {
    let harness = GoogleHarness::with_ann(0).await;
    for (name, silently, told) in [("One", false, 1), ("Two", true, 0)] {
        let label = harness.world.apply(ANN, GmailOperation::CreateLabel { name: name.into() }).unwrap().label.unwrap();
        let labels = Some(vec![label.clone()]);
        let deliver = GmailOperation::Deliver { labels, count: None, reply_to: None, raw: None, received_at: None };
        let applied = harness.world.apply(ANN, deliver).unwrap();

        harness.world.apply(ANN, GmailOperation::DeleteLabel { label: name.into(), silently }).unwrap();

        assert_eq!(since(&harness, &applied.history_id, "").await.0.len(), told);
        let truth = harness.world.truth(ANN).unwrap();
        assert!(truth.messages[&applied.messages[0]].label_ids.is_empty() && !truth.labels.contains_key(&label));
    }
}
