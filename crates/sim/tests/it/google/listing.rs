//! Message listings.

use serde_json::{Value, json};
use sim::google::{GmailMessageTruth, GmailOperation, GmailTruth, GoogleFault, GoogleFaultKind};

use super::harness::{ANN, GoogleHarness};
use crate::client::encoded;

/// Returns the ids of all pages, and the number of pages.
async fn all(harness: &GoogleHarness, query: &str) -> (Vec<String>, usize) {
    let (mut ids, mut pages, mut token) = (Vec::new(), 0, String::new());
    loop {
        let page = harness.gmail(&format!("messages?{query}{token}")).await;
        pages += 1;
        let found = page["messages"].as_array().into_iter().flatten();
        ids.extend(found.map(|message| message["id"].as_str().unwrap().to_owned()));
        match page["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={}", encoded(next)),
            None => return (ids, pages),
        }
    }
}

fn expected(truth: &GmailTruth, wanted: impl Fn(&GmailMessageTruth) -> bool) -> Vec<String> {
    let mut found: Vec<(i64, &String)> =
        truth.messages.iter().filter(|(_, message)| wanted(message)).map(|(id, m)| (m.internal_date, id)).collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, id)| id.clone()).collect()
}

fn has(message: &GmailMessageTruth, label: &str) -> bool {
    message.label_ids.iter().any(|id| id == label)
}

/// Listings leave out spam and trash.
fn is_usual(message: &GmailMessageTruth) -> bool {
    !has(message, "SPAM") && !has(message, "TRASH")
}

#[tokio::test]
async fn listing_is_newest_first_without_spam_and_trash() {
    let harness = GoogleHarness::with_ann(95).await;
    let truth = harness.world.truth(ANN).unwrap();

    let (usual, pages) = all(&harness, "maxResults=20").await;
    let (everything, _) = all(&harness, "includeSpamTrash=true&maxResults=500").await;
    let (spam, _) = all(&harness, "labelIds=SPAM").await;
    let (unread, _) = all(&harness, "labelIds=INBOX&labelIds=UNREAD").await;

    assert_eq!(usual, expected(&truth, is_usual));
    assert_eq!(pages, usual.len().div_ceil(20));
    assert_eq!(everything, expected(&truth, |_| true));
    assert_eq!(spam, expected(&truth, |message| has(message, "SPAM")));
    assert_eq!(
        unread,
        expected(&truth, |message| is_usual(message) && has(message, "INBOX") && has(message, "UNREAD"))
    );
    assert!(!spam.is_empty() && !unread.is_empty() && usual.len() < everything.len());
    harness.assert_no_violations();
}

#[tokio::test]
async fn search_narrows_a_listing() {
    let harness = GoogleHarness::with_ann(60).await;
    let truth = harness.world.truth(ANN).unwrap();
    let middle = expected(&truth, |_| true)[30].clone();
    let seconds = truth.messages[&middle].internal_date / 1_000;
    let query = format!("q={}", encoded(&format!("after:{seconds} -in:chats -in:drafts")));

    let (late, _) = all(&harness, &query).await;

    assert_eq!(
        late,
        expected(&truth, |m| {
            is_usual(m) && m.internal_date >= seconds * 1_000 && !has(m, "CHAT") && !has(m, "DRAFT")
        })
    );
    assert_eq!(all(&harness, "q=in:anywhere").await.0.len(), 60);
}

#[tokio::test]
async fn pages_stay_consistent_during_changes() {
    let harness = GoogleHarness::with_ann(60).await;
    let before = expected(&harness.world.truth(ANN).unwrap(), |_| true);
    let list = "messages?includeSpamTrash=true&maxResults=10";
    let first = harness.gmail(list).await;
    let token = encoded(first["nextPageToken"].as_str().unwrap());

    harness.world.apply(ANN, GmailOperation::deliver()).unwrap();
    harness.world.apply(ANN, GmailOperation::Delete { message: before[9].clone() }).unwrap();
    harness.world.apply(ANN, GmailOperation::Delete { message: before[12].clone() }).unwrap();
    let second = harness.gmail(&format!("{list}&pageToken={token}")).await;

    let ids: Vec<&str> = second["messages"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    let left: Vec<&str> = before[10..21].iter().map(String::as_str).filter(|id| *id != before[12]).collect();
    assert_eq!(ids, left);
    assert_eq!(second, harness.gmail(&format!("{list}&pageToken={token}")).await, "a page can be asked for again");
}

#[tokio::test]
async fn page_token_is_valid_only_for_its_query() {
    let harness = GoogleHarness::with_ann(30).await;
    let token = harness.gmail("messages?maxResults=5").await["nextPageToken"].as_str().unwrap().to_owned();
    let status = async |query: String| {
        harness.get(&format!("/gmail/v1/users/me/messages?{query}"), &harness.token()).await.status
    };

    assert_eq!(status(format!("pageToken={token}&maxResults=7")).await, 200);
    assert_eq!(status(format!("pageToken={token}&labelIds=INBOX")).await, 400);
    assert_eq!(status("pageToken=nonsense".to_owned()).await, 400);
}

#[tokio::test]
async fn empty_page_has_no_messages_key() {
    let harness = GoogleHarness::with_ann(0).await;
    let empty = harness.gmail("messages").await;
    harness.world.apply(ANN, GmailOperation::deliver()).unwrap();
    harness.world.add_fault(GoogleFault::once(GoogleFaultKind::EmptyPage));

    let scripted = harness.gmail("messages").await;
    let (ids, _) = all(&harness, "").await;

    assert_eq!(empty, json!({"resultSizeEstimate": 0}));
    assert!(scripted.get("messages").is_none() && scripted["nextPageToken"].is_string());
    let token = encoded(scripted["nextPageToken"].as_str().unwrap());
    let after = harness.gmail(&format!("messages?pageToken={token}")).await;
    assert_eq!(after["messages"][0]["id"], Value::from(ids[0].clone()));
    harness.assert_no_violations();
}
