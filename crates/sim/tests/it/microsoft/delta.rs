//! Delta queries.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sim::microsoft::{MicrosoftFault, MicrosoftFaultKind, OutlookOperation};

use super::harness::{ANN, IMMUTABLE, MicrosoftHarness, code};

/// A reader of one folder that follows links to the end of each round.
struct DeltaReader {
    link: String,
    /// The known messages: read or not, by id.
    seen: BTreeMap<String, Value>,
    pages: usize,
}

impl DeltaReader {
    fn of(folder: &str) -> Self {
        let link = format!("/mailFolders/{folder}/messages/delta?$select=isRead,receivedDateTime");
        Self { link, seen: BTreeMap::new(), pages: 0 }
    }

    /// Reads to the end of a round and returns its items in order.
    async fn read(&mut self, harness: &MicrosoftHarness, size: usize) -> Vec<Value> {
        let mut came = Vec::new();
        loop {
            let path = self
                .link
                .strip_prefix(&harness.server.url())
                .map_or_else(|| format!("/v1.0/me{}", self.link), str::to_owned);
            let token = format!("Bearer {}", harness.token());
            let prefer = format!("{IMMUTABLE}, odata.maxpagesize={size}");
            let fields = [("Authorization", token.as_str()), ("Prefer", prefer.as_str())];
            let answered = harness.send("GET", &path, &fields, b"").await.unwrap();
            assert_eq!(answered.status, 200, "{}", answered.text());
            self.pages += 1;
            let page = answered.json();
            for item in page["value"].as_array().unwrap() {
                let id = item["id"].as_str().unwrap().to_owned();
                if item["@removed"].is_null() {
                    drop(self.seen.insert(id, item["isRead"].clone()));
                } else {
                    drop(self.seen.remove(&id));
                }
                came.push(item.clone());
            }
            let links = [&page["@odata.nextLink"], &page["@odata.deltaLink"]].map(Value::as_str);
            match links {
                [Some(next), None] => self.link = next.to_owned(),
                [None, Some(delta)] => {
                    self.link = delta.to_owned();
                    return came;
                }
                other => panic!("exactly one link is expected, not {other:?}"),
            }
        }
    }
}

fn inside(harness: &MicrosoftHarness, folder: &str) -> BTreeMap<String, Value> {
    let truth = harness.world.truth(ANN).unwrap();
    let there = truth
        .messages
        .iter()
        .filter(|(_, message)| truth.folders[&message.folder_id].well_known.as_deref() == Some(folder));
    there.map(|(id, message)| (id.clone(), json!(message.is_read))).collect()
}

fn apply(harness: &MicrosoftHarness, operation: OutlookOperation) -> Option<String> {
    harness.world.apply(ANN, operation).unwrap().messages.pop()
}

#[tokio::test]
async fn delta_leads_to_the_ground_truth() {
    let harness = MicrosoftHarness::with_ann(60).await;
    let folders = ["inbox", "sentitems", "deleteditems", "archive", "drafts", "junkemail"];
    let mut readers: Vec<DeltaReader> = folders.iter().map(|folder| DeltaReader::of(folder)).collect();
    for round in 0..6 {
        for (folder, reader) in folders.iter().zip(&mut readers) {
            reader.read(&harness, 1 + round * 2).await;
            assert_eq!(reader.seen, inside(&harness, folder), "{folder} in round {round}");
        }
        harness.advance_ms(60_000);
        harness.world.step(ANN, 80);
    }
    harness.assert_no_violations();
}

#[tokio::test]
async fn changes_during_the_initial_round_are_reported() {
    let harness = MicrosoftHarness::with_ann(40).await;
    let mut reader = DeltaReader::of("inbox");
    let first = harness.me("/mailFolders/inbox/messages/delta?$select=isRead,receivedDateTime&$top=5").await;
    reader.link = first["@odata.nextLink"].as_str().unwrap().to_owned();
    for item in first["value"].as_array().unwrap() {
        reader.seen.insert(item["id"].as_str().unwrap().to_owned(), item["isRead"].clone());
    }

    harness.world.step(ANN, 100);
    reader.read(&harness, 5).await;
    reader.read(&harness, 5).await;

    assert_eq!(reader.seen, inside(&harness, "inbox"));
}

#[tokio::test]
async fn move_is_a_removal_and_an_arrival() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let id = apply(&harness, OutlookOperation::deliver()).unwrap();
    let (mut inbox, mut archive) = (DeltaReader::of("inbox"), DeltaReader::of("archive"));
    inbox.read(&harness, 50).await;
    archive.read(&harness, 50).await;

    apply(&harness, OutlookOperation::Move { message: id.clone(), folder: "archive".to_owned() });

    assert_eq!(inbox.read(&harness, 50).await, [json!({"id": id, "@removed": {"reason": "deleted"}})]);
    let came = archive.read(&harness, 50).await;
    assert_eq!((came.len(), &came[0]["id"]), (1, &json!(id)));
    assert_eq!(inbox.read(&harness, 50).await, Vec::<Value>::new());
}

#[tokio::test]
async fn edited_draft_keeps_its_id() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let id = apply(&harness, OutlookOperation::Draft { message: None, raw: None }).unwrap();
    let before = harness.world.truth(ANN).unwrap().messages[&id].clone();
    let mut drafts = DeltaReader::of("drafts");
    drafts.read(&harness, 50).await;

    apply(&harness, OutlookOperation::Draft { message: Some(id.clone()), raw: None });

    let came = drafts.read(&harness, 50).await;
    assert_eq!(came[0]["id"], id.as_str());
    let after = harness.world.truth(ANN).unwrap().messages[&id].clone();
    assert!(before.change_key != after.change_key && before.sha256 != after.sha256);
    apply(&harness, OutlookOperation::SendDraft { message: id.clone() });
    assert_eq!(inside(&harness, "sentitems").into_keys().collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn expired_token_is_410_with_a_location() {
    let harness = MicrosoftHarness::with_ann(5).await;
    let mut inbox = DeltaReader::of("inbox");
    inbox.read(&harness, 50).await;
    let old = inbox.link.strip_prefix(&harness.server.url()).unwrap().to_owned();
    let token = harness.token();

    apply(&harness, OutlookOperation::ExpireDelta { folder: Some("archive".to_owned()) });
    assert_eq!(harness.get(&old, &token).await.status, 200, "another folder's have expired");
    apply(&harness, OutlookOperation::ExpireDelta { folder: Some("inbox".to_owned()) });
    let answered = harness.get(&old, &token).await;
    assert_eq!((answered.status, code(&answered).as_str()), (410, "syncStateNotFound"));
    let again = answered.header("location").unwrap().strip_prefix(&harness.server.url()).unwrap().to_owned();
    assert_eq!(harness.get(&again, &token).await.status, 200);

    inbox = DeltaReader::of("inbox");
    inbox.read(&harness, 50).await;
    apply(&harness, OutlookOperation::ExpireDelta { folder: None });
    let link = inbox.link.strip_prefix(&harness.server.url()).unwrap();
    assert_eq!(harness.get(link, &token).await.status, 410);
    harness.assert_no_violations();
}

#[tokio::test]
async fn delta_token_is_valid_only_for_its_folder() {
    let harness = MicrosoftHarness::with_ann(5).await;
    let mut inbox = DeltaReader::of("inbox");
    inbox.read(&harness, 50).await;
    let (_, query) = inbox.link.split_once('?').unwrap();
    let token = harness.token();

    let answered = harness.get(&format!("/v1.0/me/mailFolders/drafts/messages/delta?{query}"), &token).await;
    assert_eq!((answered.status, code(&answered).as_str()), (400, "SyncStateInvalid"));
    harness.assert_no_violations();
    let answered = harness.get(&format!("/v1.0/me/mailFolders/inbox/messages/delta?{query}&$select=id"), &token).await;
    assert_eq!(answered.status, 400);
    assert_eq!(harness.world.violations().len(), 1);
}

fn deliver_at(harness: &MicrosoftHarness, received: &str) -> String {
    let operation = OutlookOperation::Deliver {
        folder: None,
        count: None,
        reply_to: None,
        raw: None,
        received_at: Some(received.parse().unwrap()),
        is_read: false,
    };
    apply(harness, operation).unwrap()
}

fn ids(items: &[Value]) -> BTreeSet<String> {
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn filter_limits_only_new_messages() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let (old, new) = (deliver_at(&harness, "2025-01-01T00:00:00Z"), deliver_at(&harness, "2026-01-20T00:00:00Z"));
    let mut reader = DeltaReader::of("inbox");
    reader.link.push_str("&$filter=receivedDateTime%20ge%202026-01-01T00:00:00Z&$orderby=receivedDateTime%20desc");

    assert_eq!(ids(&reader.read(&harness, 50).await), BTreeSet::from([new]));
    deliver_at(&harness, "2025-06-01T00:00:00Z");
    apply(&harness, OutlookOperation::Mark { message: old.clone(), read: Some(true), flagged: None });
    assert_eq!(ids(&reader.read(&harness, 50).await), BTreeSet::from([old]));
    let refused = "/v1.0/me/mailFolders/inbox/messages/delta?$filter=isRead%20eq%20true";
    assert_eq!(harness.get(refused, &harness.token()).await.status, 400);
}

#[tokio::test]
async fn folder_delta_reports_all_changes() {
    let harness = MicrosoftHarness::with_ann(3).await;
    let mut read = harness.me("/mailFolders/delta?$select=displayName,parentFolderId").await;
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let link = loop {
        seen.extend(read["value"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match (read["@odata.nextLink"].as_str(), read["@odata.deltaLink"].as_str()) {
            (Some(next), None) => read = harness.me(next).await,
            (None, Some(delta)) => break delta.to_owned(),
            other => panic!("exactly one link is expected, not {other:?}"),
        }
    };
    assert_eq!(seen, harness.world.truth(ANN).unwrap().folders.into_keys().collect::<BTreeSet<_>>());

    let made =
        harness.world.apply(ANN, OutlookOperation::CreateFolder { name: "New".to_owned(), parent: None }).unwrap();
    let made = made.folder.unwrap();
    let page = harness.me(&link).await;
    assert_eq!((&page["value"][0]["id"], &page["value"][0]["displayName"]), (&json!(made), &json!("New")));
    apply(&harness, OutlookOperation::DeleteFolder { folder: made.clone(), purge: true });
    let page = harness.me(page["@odata.deltaLink"].as_str().unwrap()).await;
    assert_eq!(page["value"], json!([{"id": made, "@removed": {"reason": "deleted"}}]));
    let gone = harness.get(&format!("/v1.0/me/mailFolders/{made}/messages/delta"), &harness.token()).await;
    assert_eq!((gone.status, code(&gone).as_str()), (404, "ErrorItemNotFound"));
    harness.assert_no_violations();
}

#[tokio::test]
async fn empty_pages_and_repeats_are_harmless() {
    let harness = MicrosoftHarness::with_ann(30).await;
    harness.world.add_fault(MicrosoftFault::sometimes(MicrosoftFaultKind::EmptyPage, 0.3));
    harness.world.add_fault(MicrosoftFault::sometimes(MicrosoftFaultKind::RepeatedItems, 0.3));
    let mut reader = DeltaReader::of("inbox");

    let came = reader.read(&harness, 2).await;

    assert!(came.len() > reader.seen.len(), "something came twice");
    assert!(reader.pages > reader.seen.len().div_ceil(2), "a page came empty");
    assert_eq!(reader.seen, inside(&harness, "inbox"));
}
