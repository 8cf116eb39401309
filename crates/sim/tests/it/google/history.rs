//! What happened since, and when that is not known any more.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sim::google::{Operation, Truth};

use super::place::{ANN, Place, encoded};

/// All records since an id, and the mailbox's id in the last page.
async fn since(place: &Place, start: &str, more: &str) -> (Vec<Value>, String) {
    let (mut records, mut token) = (Vec::new(), String::new());
    loop {
        let page = place.gmail(&format!("history?startHistoryId={start}{more}{token}")).await;
        records.extend(page["history"].as_array().into_iter().flatten().cloned());
        match page["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={}", encoded(next)),
            None => return (records, page["historyId"].as_str().unwrap().to_owned()),
        }
    }
}

/// What somebody knows who has read the history only: labels by message.
type Known = BTreeMap<String, BTreeSet<String>>;

fn known(truth: &Truth) -> Known {
    truth.messages.iter().map(|(id, m)| (id.clone(), m.label_ids.iter().cloned().collect())).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn follow(known: &mut Known, record: &Value) {
    let list = |field: &str| record[field].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
    let id = |entry: &Value| entry["message"]["id"].as_str().unwrap().to_owned();
    for entry in list("messagesAdded") {
        known.insert(id(&entry), texts(&entry["message"]["labelIds"]).into_iter().collect());
    }
    for entry in list("labelsAdded") {
        known.get_mut(&id(&entry)).unwrap().extend(texts(&entry["labelIds"]));
    }
    for entry in list("labelsRemoved") {
        let gone = texts(&entry["labelIds"]);
        known.get_mut(&id(&entry)).unwrap().retain(|label| !gone.contains(label));
    }
    for entry in list("messagesDeleted") {
        known.remove(&id(&entry)).unwrap();
    }
}

#[tokio::test]
async fn whoever_follows_the_history_knows_the_truth() {
    let place = Place::with_ann(30).await;
    let mut reader = known(&place.world.truth(ANN).unwrap());
    let mut cursor = place.gmail("profile").await["historyId"].as_str().unwrap().to_owned();

    for round in 1..6 {
        place.world.step(ANN, 80);
        let (records, next) = since(&place, &cursor, &format!("&maxResults={}", round * 7)).await;
        let ids: Vec<u64> = records.iter().map(|record| record["id"].as_str().unwrap().parse().unwrap()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "in order, each once");
        records.iter().for_each(|record| follow(&mut reader, record));
        cursor = next;
    }

    assert_eq!(reader, known(&place.world.truth(ANN).unwrap()));
    let (nothing, same) = since(&place, &cursor, "").await;
    assert!(nothing.is_empty());
    assert_eq!(same, cursor);
    place.assert_no_violations();
}

#[tokio::test]
async fn a_message_that_came_and_went_is_told_twice_and_cannot_be_got() {
    let place = Place::with_ann(3).await;
    let start = place.gmail("profile").await["historyId"].as_str().unwrap().to_owned();
    let id = place.world.apply(ANN, Operation::deliver()).unwrap().messages.remove(0);
    place.world.apply(ANN, Operation::Delete { message: id.clone() }).unwrap();

    let (records, _) = since(&place, &start, "").await;

    assert_eq!(records[0]["messagesAdded"][0]["message"]["id"], *id);
    assert_eq!(records[0]["messagesAdded"][0]["message"]["labelIds"], json!(["INBOX", "UNREAD"]));
    assert_eq!(records[1]["messagesDeleted"][0]["message"]["id"], *id);
    assert!(records.iter().all(|record| record["messages"][0]["threadId"].is_string()));
    assert_eq!(place.get(&format!("/gmail/v1/users/me/messages/{id}"), &place.token()).await.status, 404);
}

#[tokio::test]
async fn the_trash_is_a_label_and_types_and_labels_narrow_what_is_told() {
    let place = Place::with_ann(0).await;
    let start = place.gmail("profile").await["historyId"].as_str().unwrap().to_owned();
    let first = place.world.apply(ANN, Operation::deliver()).unwrap().messages.remove(0);
    place.world.apply(ANN, Operation::Trash { message: first.clone() }).unwrap();
    place.world.apply(ANN, Operation::Label { message: first, add: vec!["STARRED".into()], remove: vec![] }).unwrap();

    let (all, _) = since(&place, &start, "").await;
    let (added, _) = since(&place, &start, "&historyTypes=messageAdded&historyTypes=labelRemoved").await;
    let (starred, _) = since(&place, &start, "&labelId=STARRED").await;

    assert_eq!(all[1]["labelsAdded"][0]["labelIds"], json!(["TRASH"]));
    assert_eq!(all[1]["labelsRemoved"][0]["labelIds"], json!(["INBOX"]));
    assert_eq!(added.len(), 2);
    assert!(added[1].get("labelsAdded").is_none() && added[1].get("labelsRemoved").is_some());
    assert_eq!(starred, [all[2].clone()]);
    place.assert_no_violations();
}

#[tokio::test]
async fn an_edited_draft_is_another_message_in_the_same_thread() {
    let place = Place::with_ann(0).await;
    let draft = place.world.apply(ANN, Operation::Draft { message: None }).unwrap().messages.remove(0);
    let thread = place.world.truth(ANN).unwrap().messages[&draft].thread_id.clone();

    let edited = place.world.apply(ANN, Operation::Draft { message: Some(draft.clone()) }).unwrap().messages.remove(0);

    let truth = place.world.truth(ANN).unwrap();
    assert_eq!(truth.messages.keys().collect::<Vec<_>>(), [&edited]);
    assert_eq!(
        (&truth.messages[&edited].thread_id, &truth.messages[&edited].label_ids),
        (&thread, &vec!["DRAFT".to_owned()])
    );
}

#[tokio::test]
async fn an_id_that_has_expired_or_never_was_is_404_and_one_that_is_none_400() {
    let place = Place::with_ann(2).await;
    let id = place.gmail("profile").await["historyId"].as_str().unwrap().parse::<u64>().unwrap();
    let status = async |start: &str| {
        place.get(&format!("/gmail/v1/users/me/history?startHistoryId={start}"), &place.token()).await.status
    };
    assert_eq!(status(&id.to_string()).await, 200);

    place.world.apply(ANN, Operation::ExpireHistory).unwrap();

    assert_eq!(status(&id.to_string()).await, 404);
    assert_eq!(status(&(id + 1_000_000).to_string()).await, 404);
    assert_eq!(status("yesterday").await, 400);
    assert_eq!(status("").await, 400);
    assert_eq!(place.get("/gmail/v1/users/me/history", &place.token()).await.status, 400);
    let (records, now) = since(&place, &place.world.truth(ANN).unwrap().history_id, "").await;
    assert!(records.is_empty() && now.parse::<u64>().unwrap() > id);
}

#[tokio::test]
async fn a_label_can_go_with_and_without_a_word_in_the_history() {
    let place = Place::with_ann(0).await;
    for (name, silently, told) in [("One", false, 1), ("Two", true, 0)] {
        let label = place.world.apply(ANN, Operation::CreateLabel { name: name.into() }).unwrap().label.unwrap();
        let labels = Some(vec![label.clone()]);
        let deliver = Operation::Deliver { labels, count: None, reply_to: None, raw: None, received_at: None };
        let applied = place.world.apply(ANN, deliver).unwrap();

        place.world.apply(ANN, Operation::DeleteLabel { label: name.into(), silently }).unwrap();

        assert_eq!(since(&place, &applied.history_id, "").await.0.len(), told);
        let truth = place.world.truth(ANN).unwrap();
        assert!(truth.messages[&applied.messages[0]].label_ids.is_empty() && !truth.labels.contains_key(&label));
    }
}
