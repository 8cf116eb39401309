//! Which messages there are, page by page.

use serde_json::{Value, json};
use sim::google::{Fault, Kind, Operation, Truth, TruthMessage};

use super::place::{ANN, Place, encoded};

/// The ids of all pages, and how many pages there were.
async fn all(place: &Place, query: &str) -> (Vec<String>, usize) {
    let (mut ids, mut pages, mut token) = (Vec::new(), 0, String::new());
    loop {
        let page = place.gmail(&format!("messages?{query}{token}")).await;
        pages += 1;
        let found = page["messages"].as_array().into_iter().flatten();
        ids.extend(found.map(|message| message["id"].as_str().unwrap().to_owned()));
        match page["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={}", encoded(next)),
            None => return (ids, pages),
        }
    }
}

fn expected(truth: &Truth, wanted: impl Fn(&TruthMessage) -> bool) -> Vec<String> {
    let mut found: Vec<(i64, &String)> =
        truth.messages.iter().filter(|(_, message)| wanted(message)).map(|(id, m)| (m.internal_date, id)).collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, id)| id.clone()).collect()
}

fn has(message: &TruthMessage, label: &str) -> bool {
    message.label_ids.iter().any(|id| id == label)
}

#[tokio::test]
async fn messages_come_newest_first_in_pages_and_spam_and_trash_only_when_asked_for() {
    let place = Place::with_ann(95).await;
    let truth = place.world.truth(ANN).unwrap();
    let is_usual = |message: &TruthMessage| !has(message, "SPAM") && !has(message, "TRASH");

    let (usual, pages) = all(&place, "maxResults=20").await;
    let (everything, _) = all(&place, "includeSpamTrash=true&maxResults=500").await;
    let (spam, _) = all(&place, "labelIds=SPAM").await;
    let (unread, _) = all(&place, "labelIds=INBOX&labelIds=UNREAD").await;

    assert_eq!(usual, expected(&truth, is_usual));
    assert_eq!(pages, usual.len().div_ceil(20));
    assert_eq!(everything, expected(&truth, |_| true));
    assert_eq!(spam, expected(&truth, |message| has(message, "SPAM")));
    assert_eq!(
        unread,
        expected(&truth, |message| is_usual(message) && has(message, "INBOX") && has(message, "UNREAD"))
    );
    assert!(!spam.is_empty() && !unread.is_empty() && usual.len() < everything.len());
    place.assert_no_violations();
}

#[tokio::test]
async fn a_search_narrows_a_listing() {
    let place = Place::with_ann(60).await;
    let truth = place.world.truth(ANN).unwrap();
    let middle = expected(&truth, |_| true)[30].clone();
    let seconds = truth.messages[&middle].internal_date / 1_000;
    let is_usual = |message: &TruthMessage| !has(message, "SPAM") && !has(message, "TRASH");
    let query = format!("q={}", encoded(&format!("after:{seconds} -in:chats -in:drafts")));

    let (late, _) = all(&place, &query).await;

    let is_late =
        |m: &TruthMessage| is_usual(m) && m.internal_date >= seconds * 1_000 && !has(m, "CHAT") && !has(m, "DRAFT");
    assert_eq!(late, expected(&truth, is_late));
    assert_eq!(all(&place, "q=in:anywhere").await.0.len(), 60);
}

#[tokio::test]
async fn pages_miss_nothing_and_repeat_nothing_while_mail_comes_and_goes() {
    let place = Place::with_ann(60).await;
    let before = expected(&place.world.truth(ANN).unwrap(), |_| true);
    let list = "messages?includeSpamTrash=true&maxResults=10";
    let first = place.gmail(list).await;
    let token = encoded(first["nextPageToken"].as_str().unwrap());

    place.world.apply(ANN, Operation::deliver()).unwrap();
    place.world.apply(ANN, Operation::Delete { message: before[9].clone() }).unwrap();
    place.world.apply(ANN, Operation::Delete { message: before[12].clone() }).unwrap();
    let second = place.gmail(&format!("{list}&pageToken={token}")).await;

    let ids: Vec<&str> = second["messages"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    let left: Vec<&str> = before[10..21].iter().map(String::as_str).filter(|id| *id != before[12]).collect();
    assert_eq!(ids, left);
    assert_eq!(second, place.gmail(&format!("{list}&pageToken={token}")).await, "a page can be asked for again");
}

#[tokio::test]
async fn a_token_is_good_for_its_own_question_only() {
    let place = Place::with_ann(30).await;
    let token = place.gmail("messages?maxResults=5").await["nextPageToken"].as_str().unwrap().to_owned();
    let status =
        async |query: String| place.get(&format!("/gmail/v1/users/me/messages?{query}"), &place.token()).await.status;

    assert_eq!(status(format!("pageToken={token}&maxResults=7")).await, 200);
    assert_eq!(status(format!("pageToken={token}&labelIds=INBOX")).await, 400);
    assert_eq!(status("pageToken=nonsense".to_owned()).await, 400);
}

#[tokio::test]
async fn an_empty_mailbox_has_no_messages_key_and_a_scripted_page_is_empty_with_more_to_come() {
    let place = Place::with_ann(0).await;
    let empty = place.gmail("messages").await;
    place.world.apply(ANN, Operation::deliver()).unwrap();
    place.world.add_fault(Fault::once(Kind::EmptyPage));

    let scripted = place.gmail("messages").await;
    let (ids, _) = all(&place, "").await;

    assert_eq!(empty, json!({"resultSizeEstimate": 0}));
    assert!(scripted.get("messages").is_none() && scripted["nextPageToken"].is_string());
    let token = encoded(scripted["nextPageToken"].as_str().unwrap());
    let after = place.gmail(&format!("messages?pageToken={token}")).await;
    assert_eq!(after["messages"][0]["id"], Value::from(ids[0].clone()));
    place.assert_no_violations();
}
