//! The scripted mailbox told by its pages is the mailbox as it is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sim::scripted::{Account, Letters, Listing, Page, Truth};

/// What somebody knows who has only read pages.
#[derive(Debug, Clone, Default)]
struct Reader {
    folders: BTreeMap<String, String>,
    places: BTreeMap<(String, String), Known>,
    cursor: Option<String>,
}

type Known = (String, Vec<String>, usize, Option<String>);

impl Reader {
    fn read(&mut self, page: &Page<'_>) {
        for folder in &page.folders {
            self.folders.insert(folder.id.to_string(), folder.name.to_owned());
        }
        for message in &page.messages {
            let known = (message.id.to_string(), message.flags.to_vec(), message.size, message.revision.clone());
            self.places.insert((message.folder.to_string(), message.uid.to_string()), known);
        }
        for place in &page.vanished {
            self.places.remove(&(place.folder.to_string(), place.uid.to_string()));
        }
        for id in page.gone_folders.iter().map(ToString::to_string) {
            self.folders.remove(&id);
            self.places.retain(|(folder, _), _| *folder != id);
        }
        for present in &page.present {
            let (id, uids) = (present.folder.to_string(), &present.uids);
            self.places.retain(|(folder, uid), _| *folder != id || uids.iter().any(|left| left.to_string() == *uid));
        }
        self.cursor = Some(page.cursor.clone());
    }

    fn follow(&mut self, account: &Account, limit: usize, overlap: usize) {
        loop {
            let page = account.changes(Listing { cursor: self.cursor.as_deref(), limit, overlap }).unwrap();
            let is_last = page.is_last;
            self.read(&page);
            if is_last {
                return;
            }
        }
    }

    fn assert_knows(&self, truth: &Truth) {
        let folders: BTreeMap<String, String> =
            truth.folders.iter().map(|(id, folder)| (id.clone(), folder.name.clone())).collect();
        assert_eq!(self.folders, folders);
        let places: BTreeMap<(String, String), Known> = truth
            .folders
            .iter()
            .flat_map(|(id, folder)| folder.places.iter().map(move |place| (id, place)))
            .map(|(id, place)| {
                let known = (place.message.clone(), place.flags.clone(), place.size, place.revision.clone());
                ((id.clone(), place.uid.clone()), known)
            })
            .collect();
        assert_eq!(self.places, places);
    }
}

fn start() -> Timestamp {
    "2026-02-01T12:00:00Z".parse().unwrap()
}

/// Everything that is there, as somebody would learn it who begins now.
fn newcomer(account: &Account, limit: usize) -> Reader {
    let mut reader = Reader::default();
    reader.follow(account, limit, 0);
    let changes = reader.cursor.take();
    loop {
        let page = account.history(Listing { cursor: reader.cursor.as_deref(), limit, overlap: 0 }, None).unwrap();
        let is_last = page.is_last;
        reader.read(&page);
        if is_last {
            break;
        }
    }
    Reader { cursor: changes, ..reader }
}

#[test]
fn changes_from_any_cursor_lead_to_the_truth() {
    let letters = Letters::new(1, 20);
    for seed in 0..20 {
        let mut account = Account::new(seed);
        account.fill(20, &letters, start());
        let mut readers = Vec::new();
        for _ in 0..12 {
            readers.push(newcomer(&account, 7));
            (0..60).for_each(|_| account.step(&letters, start()));
        }

        let truth = account.truth();
        for (number, mut reader) in readers.into_iter().enumerate() {
            reader.follow(&account, 1 + 13 * number, number % 3 * 5);
            reader.assert_knows(&truth);
        }
        newcomer(&account, 11).assert_knows(&truth);
    }
}

#[test]
fn a_reader_that_stays_a_little_behind_still_arrives() {
    let letters = Letters::new(1, 20);
    let mut account = Account::new(77);
    let mut reader = newcomer(&account, 1);

    for round in 0..2_000 {
        account.step(&letters, start());
        let page =
            account.changes(Listing { cursor: reader.cursor.as_deref(), limit: 1 + round % 2, overlap: round % 4 });
        reader.read(&page.unwrap());
    }

    reader.follow(&account, 3, 0);
    reader.assert_knows(&account.truth());
}

#[test]
fn a_listing_shows_every_place_once() {
    let letters = Letters::new(1, 20);
    let mut account = Account::new(3);
    account.fill(50, &letters, start());
    (0..300).for_each(|_| account.step(&letters, start()));
    let mut reader = Reader::default();
    let mut shown = 0;

    loop {
        let page = account.list(Listing { cursor: reader.cursor.as_deref(), limit: 9, overlap: 0 }).unwrap();
        let is_last = page.is_last;
        shown += page.messages.len();
        reader.read(&page);
        if is_last {
            break;
        }
    }

    reader.assert_knows(&account.truth());
    assert_eq!(shown, reader.places.len());
}

#[test]
fn history_comes_newest_first_and_stops_at_since() {
    let letters = Letters::new(1, 20);
    let mut account = Account::new(5);
    account.fill(100, &letters, start());
    let since = start() - jiff::SignedDuration::from_mins(15 * 40);

    let page = account.history(Listing { cursor: None, limit: 1_000, overlap: 0 }, Some(since)).unwrap();

    let times: Vec<Timestamp> = page.messages.iter().map(|message| message.received_at).collect();
    assert_eq!(times.len(), 40);
    assert!(times.iter().all(|time| *time >= since) && times.is_sorted_by(|a, b| a >= b));
}

#[test]
fn steps_do_everything_that_can_happen() {
    let letters = Letters::new(1, 20);
    let mut account = Account::new(9);
    account.fill(20, &letters, start());
    let (mut twins, mut revised, mut shared, mut recounted) = (0, 0, 0, 0);
    let mut cursor = account.changes(Listing { cursor: None, limit: 1, overlap: 0 }).unwrap().cursor;

    for _ in 0..3_000 {
        account.step(&letters, start());
        let page = account.changes(Listing { cursor: Some(&cursor), limit: 100, overlap: 0 }).unwrap();
        revised += page.messages.iter().filter(|seen| seen.revision.as_deref() > Some("1")).count();
        recounted += page.present.len();
        cursor = page.cursor;
    }

    let truth = account.truth();
    let mut by_hash: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut by_message: BTreeMap<&str, usize> = BTreeMap::new();
    for place in truth.folders.values().flat_map(|folder| &folder.places) {
        by_hash.entry(&place.sha256).or_default().push(&place.message);
        *by_message.entry(&place.message).or_default() += 1;
    }
    for messages in by_hash.values_mut() {
        messages.dedup();
        twins += usize::from(messages.len() > 1);
    }
    shared += by_message.values().filter(|places| **places > 1).count();
    assert!(twins > 0 && revised > 0 && shared > 0 && recounted > 0, "{twins} {revised} {shared} {recounted}");
    assert!(truth.folders.len() > 6, "no folder was made");
}

#[test]
fn the_same_seed_makes_the_same_mailbox() {
    let grown = || {
        let letters = Letters::new(4, 20);
        let mut account = Account::new(8);
        account.fill(10, &letters, start());
        (0..200).for_each(|_| account.step(&letters, start()));
        account.truth()
    };

    assert_eq!(grown(), grown());
}
