//! What changed, folder by folder.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sim::microsoft::{Fault, Kind, Operation};

use super::place::{ANN, IMMUTABLE, Place, code};

/// A reader of one folder that follows links to the end of each round.
struct Reader {
    link: String,
    /// What it believes to be there: read or not, by id.
    seen: BTreeMap<String, Value>,
    pages: usize,
}

impl Reader {
    fn of(folder: &str) -> Self {
        let link = format!("/mailFolders/{folder}/messages/delta?$select=isRead,receivedDateTime");
        Self { link, seen: BTreeMap::new(), pages: 0 }
    }

    /// To the end of a round; what came, in order.
    async fn read(&mut self, place: &Place, size: usize) -> Vec<Value> {
        let mut came = Vec::new();
        loop {
            let path = self
                .link
                .strip_prefix(&place.server.url())
                .map_or_else(|| format!("/v1.0/me{}", self.link), str::to_owned);
            let token = format!("Bearer {}", place.token());
            let prefer = format!("{IMMUTABLE}, odata.maxpagesize={size}");
            let fields = [("Authorization", token.as_str()), ("Prefer", prefer.as_str())];
            let answered = place.send("GET", &path, &fields, b"").await.unwrap();
            assert_eq!(answered.status, 200, "{}", answered.text());
            self.pages += 1;
            let page = answered.json();
            for item in page["value"].as_array().unwrap() {
                let id = item["id"].as_str().unwrap().to_owned();
                match item["@removed"].is_null() {
                    true => drop(self.seen.insert(id, item["isRead"].clone())),
                    false => drop(self.seen.remove(&id)),
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

fn inside(place: &Place, folder: &str) -> BTreeMap<String, Value> {
    let truth = place.world.truth(ANN).unwrap();
    let of = |id: &String| truth.folders[id].well_known.as_deref() == Some(folder);
    let there = truth.messages.iter().filter(|(_, message)| of(&message.folder_id));
    there.map(|(id, message)| (id.clone(), json!(message.is_read))).collect()
}

fn apply(place: &Place, operation: Operation) -> Option<String> {
    place.world.apply(ANN, operation).unwrap().messages.pop()
}

#[tokio::test]
async fn a_reader_that_follows_every_folder_ends_up_with_what_is_there() {
    let place = Place::with_ann(60).await;
    let folders = ["inbox", "sentitems", "deleteditems", "archive", "drafts", "junkemail"];
    let mut readers: Vec<Reader> = folders.iter().map(|folder| Reader::of(folder)).collect();
    for round in 0..6 {
        for (folder, reader) in folders.iter().zip(&mut readers) {
            reader.read(&place, 1 + round * 2).await;
            assert_eq!(reader.seen, inside(&place, folder), "{folder} in round {round}");
        }
        place.pass_ms(60_000);
        place.world.step(ANN, 80);
    }
    place.assert_no_violations();
}

#[tokio::test]
async fn what_changes_while_the_first_round_is_read_is_not_missed() {
    let place = Place::with_ann(40).await;
    let mut reader = Reader::of("inbox");
    let first = place.me("/mailFolders/inbox/messages/delta?$select=isRead,receivedDateTime&$top=5").await;
    reader.link = first["@odata.nextLink"].as_str().unwrap().to_owned();
    for item in first["value"].as_array().unwrap() {
        reader.seen.insert(item["id"].as_str().unwrap().to_owned(), item["isRead"].clone());
    }

    place.world.step(ANN, 100);
    reader.read(&place, 5).await;
    reader.read(&place, 5).await;

    assert_eq!(reader.seen, inside(&place, "inbox"));
}

#[tokio::test]
async fn a_move_is_gone_from_one_folder_and_new_in_the_other_under_the_same_id() {
    let place = Place::with_ann(0).await;
    let id = apply(&place, Operation::deliver()).unwrap();
    let (mut inbox, mut archive) = (Reader::of("inbox"), Reader::of("archive"));
    inbox.read(&place, 50).await;
    archive.read(&place, 50).await;

    apply(&place, Operation::Move { message: id.clone(), folder: "archive".to_owned() });

    assert_eq!(inbox.read(&place, 50).await, [json!({"id": id, "@removed": {"reason": "deleted"}})]);
    let came = archive.read(&place, 50).await;
    assert_eq!((came.len(), &came[0]["id"]), (1, &json!(id)));
    assert_eq!(inbox.read(&place, 50).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_draft_keeps_its_id_and_changes_its_key() {
    let place = Place::with_ann(0).await;
    let id = apply(&place, Operation::Draft { message: None, raw: None }).unwrap();
    let before = place.world.truth(ANN).unwrap().messages[&id].clone();
    let mut drafts = Reader::of("drafts");
    drafts.read(&place, 50).await;

    apply(&place, Operation::Draft { message: Some(id.clone()), raw: None });

    let came = drafts.read(&place, 50).await;
    assert_eq!(came[0]["id"], id.as_str());
    let after = place.world.truth(ANN).unwrap().messages[&id].clone();
    assert!(before.change_key != after.change_key && before.sha256 != after.sha256);
    apply(&place, Operation::SendDraft { message: id.clone() });
    assert_eq!(inside(&place, "sentitems").into_keys().collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn an_expired_token_is_410_with_a_place_to_start_over() {
    let place = Place::with_ann(5).await;
    let mut inbox = Reader::of("inbox");
    inbox.read(&place, 50).await;
    let old = inbox.link.strip_prefix(&place.server.url()).unwrap().to_owned();
    let token = place.token();

    apply(&place, Operation::ExpireDelta { folder: Some("archive".to_owned()) });
    assert_eq!(place.get(&old, &token).await.status, 200, "another folder's have expired");
    apply(&place, Operation::ExpireDelta { folder: Some("inbox".to_owned()) });
    let answered = place.get(&old, &token).await;
    assert_eq!((answered.status, code(&answered).as_str()), (410, "syncStateNotFound"));
    let again = answered.header("location").unwrap().strip_prefix(&place.server.url()).unwrap().to_owned();
    assert_eq!(place.get(&again, &token).await.status, 200);

    inbox = Reader::of("inbox");
    inbox.read(&place, 50).await;
    apply(&place, Operation::ExpireDelta { folder: None });
    let link = inbox.link.strip_prefix(&place.server.url()).unwrap();
    assert_eq!(place.get(link, &token).await.status, 410);
    place.assert_no_violations();
}

#[tokio::test]
async fn a_token_is_good_for_its_folder_only_and_takes_no_other_options() {
    let place = Place::with_ann(5).await;
    let mut inbox = Reader::of("inbox");
    inbox.read(&place, 50).await;
    let (_, query) = inbox.link.split_once('?').unwrap();
    let token = place.token();

    let answered = place.get(&format!("/v1.0/me/mailFolders/drafts/messages/delta?{query}"), &token).await;
    assert_eq!((answered.status, code(&answered).as_str()), (400, "SyncStateInvalid"));
    place.assert_no_violations();
    let answered = place.get(&format!("/v1.0/me/mailFolders/inbox/messages/delta?{query}&$select=id"), &token).await;
    assert_eq!(answered.status, 400);
    assert_eq!(place.world.violations().len(), 1);
}

#[tokio::test]
async fn a_filter_limits_what_is_new_and_not_what_changes() {
    let place = Place::with_ann(0).await;
    let at = |text: &str| Some(text.parse::<jiff::Timestamp>().unwrap());
    let deliver = |received: &str| {
        let operation = Operation::Deliver {
            folder: None,
            count: None,
            reply_to: None,
            raw: None,
            received_at: at(received),
            is_read: false,
        };
        apply(&place, operation).unwrap()
    };
    let (old, new) = (deliver("2025-01-01T00:00:00Z"), deliver("2026-01-20T00:00:00Z"));
    let mut reader = Reader::of("inbox");
    reader.link.push_str("&$filter=receivedDateTime%20ge%202026-01-01T00:00:00Z&$orderby=receivedDateTime%20desc");

    let ids = |came: &[Value]| came.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(ids(&reader.read(&place, 50).await), BTreeSet::from([new]));
    deliver("2025-06-01T00:00:00Z");
    apply(&place, Operation::Mark { message: old.clone(), read: Some(true), flagged: None });
    assert_eq!(ids(&reader.read(&place, 50).await), BTreeSet::from([old]));
    let refused = "/v1.0/me/mailFolders/inbox/messages/delta?$filter=isRead%20eq%20true";
    assert_eq!(place.get(refused, &place.token()).await.status, 400);
}

#[tokio::test]
async fn folders_that_come_change_and_go_are_told() {
    let place = Place::with_ann(3).await;
    let mut read = place.me("/mailFolders/delta?$select=displayName,parentFolderId").await;
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let link = loop {
        seen.extend(read["value"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match (read["@odata.nextLink"].as_str(), read["@odata.deltaLink"].as_str()) {
            (Some(next), None) => read = place.me(next).await,
            (None, Some(delta)) => break delta.to_owned(),
            other => panic!("exactly one link is expected, not {other:?}"),
        }
    };
    assert_eq!(seen, place.world.truth(ANN).unwrap().folders.into_keys().collect::<BTreeSet<_>>());

    let made = place.world.apply(ANN, Operation::CreateFolder { name: "New".to_owned(), parent: None }).unwrap();
    let made = made.folder.unwrap();
    let page = place.me(&link).await;
    assert_eq!((&page["value"][0]["id"], &page["value"][0]["displayName"]), (&json!(made), &json!("New")));
    apply(&place, Operation::DeleteFolder { folder: made.clone(), purge: true });
    let page = place.me(page["@odata.deltaLink"].as_str().unwrap()).await;
    assert_eq!(page["value"], json!([{"id": made, "@removed": {"reason": "deleted"}}]));
    let gone = place.get(&format!("/v1.0/me/mailFolders/{made}/messages/delta"), &place.token()).await;
    assert_eq!((gone.status, code(&gone).as_str()), (404, "ErrorItemNotFound"));
    place.assert_no_violations();
}

#[tokio::test]
async fn empty_pages_and_repeated_items_come_and_change_nothing() {
    let place = Place::with_ann(30).await;
    place.world.add_fault(Fault::sometimes(Kind::EmptyPage, 0.3));
    place.world.add_fault(Fault::sometimes(Kind::RepeatedItems, 0.3));
    let mut reader = Reader::of("inbox");

    let came = reader.read(&place, 2).await;

    assert!(came.len() > reader.seen.len(), "something came twice");
    assert!(reader.pages > reader.seen.len().div_ceil(2), "a page came empty");
    assert_eq!(reader.seen, inside(&place, "inbox"));
}
