//! The world of a storm: what its pages list is what is in the mailbox.

use std::collections::BTreeMap;

use domain::connector::{Cursors, ListingPage};
use jiff::{SignedDuration, Timestamp};
use testkit::world::{LetterStock, MailboxTruth, PageRequest, SCOPE, WorldMailbox};

/// Message, flags, size and revision.
type KnownMessage = (String, Vec<String>, usize, Option<String>);

/// What the reader of pages knows of a mailbox.
#[derive(Debug, Clone, Default)]
struct PageReader {
    folders: BTreeMap<String, String>,
    /// By folder and uid.
    placements: BTreeMap<(String, String), KnownMessage>,
    cursors: Cursors,
}

impl PageReader {
    /// Reads the changes since now and the whole history.
    fn from_now(mailbox: &WorldMailbox, limit: usize) -> Self {
        let mut reader = Self::default();
        reader.follow(mailbox, limit, 0);
        let changes = std::mem::take(&mut reader.cursors);
        loop {
            let page = mailbox.history(reader.request(limit, 0), None).unwrap();
            reader.read(&page);
            if page.is_last {
                break;
            }
        }
        Self { cursors: changes, ..reader }
    }

    fn request(&self, limit: usize, overlap: usize) -> PageRequest<'_> {
        PageRequest { cursor: self.cursors.get(SCOPE).map(String::as_str), limit, overlap }
    }

    fn read(&mut self, page: &ListingPage) {
        for folder in &page.folders {
            self.folders.insert(folder.id.clone(), folder.name.clone());
        }
        for seen in &page.seen {
            let size = usize::try_from(seen.size_bytes.unwrap()).unwrap();
            let known = (seen.message.clone(), seen.flags.names().to_vec(), size, seen.revision.clone());
            self.placements.insert((seen.placement.folder.clone(), seen.placement.uid.clone()), known);
        }
        for removed in &page.removed_placements {
            self.placements.remove(&(removed.folder.clone(), removed.uid.clone()));
        }
        for id in &page.missing_folders {
            self.folders.remove(id);
            self.placements.retain(|(folder, _), _| folder != id);
        }
        for snapshot in &page.folder_snapshots {
            self.placements.retain(|(folder, uid), _| *folder != snapshot.folder || snapshot.uids.contains(uid));
        }
        page.move_cursors(&mut self.cursors);
    }

    fn follow(&mut self, mailbox: &WorldMailbox, limit: usize, overlap: usize) {
        loop {
            let page = mailbox.changes(self.request(limit, overlap)).unwrap();
            self.read(&page);
            if page.is_last {
                return;
            }
        }
    }

    fn assert_knows(&self, truth: &MailboxTruth) {
        let mut folders = BTreeMap::new();
        let mut placements = BTreeMap::new();
        for (id, folder) in &truth.folders {
            folders.insert(id.clone(), folder.name.clone());
            for at in &folder.placements {
                let known = (at.message.clone(), at.flags.clone(), at.size, at.revision.clone());
                placements.insert((id.clone(), at.uid.clone()), known);
            }
        }
        assert_eq!(self.folders, folders);
        assert_eq!(self.placements, placements);
    }
}

fn start() -> Timestamp {
    "2026-02-01T12:00:00Z".parse().unwrap()
}

fn change(mailbox: &mut WorldMailbox, letters: &LetterStock, steps: usize) {
    (0..steps).for_each(|_| mailbox.step(letters, start()));
}

#[test]
fn changes_from_any_cursor_lead_to_the_truth() {
    let letters = LetterStock::new(1, 20);
    for seed in 0..20 {
        let mut mailbox = WorldMailbox::new(seed);
        mailbox.fill(20, &letters, start());
        let mut readers = Vec::new();
        for _ in 0..12 {
            readers.push(PageReader::from_now(&mailbox, 7));
            change(&mut mailbox, &letters, 60);
        }

        let truth = mailbox.truth();
        for (number, mut reader) in readers.into_iter().enumerate() {
            reader.follow(&mailbox, 1 + 13 * number, number % 3 * 5);
            reader.assert_knows(&truth);
        }
        PageReader::from_now(&mailbox, 11).assert_knows(&truth);
    }
}

#[test]
fn reader_that_lags_behind_still_arrives() {
    let letters = LetterStock::new(1, 20);
    let mut mailbox = WorldMailbox::new(77);
    let mut reader = PageReader::from_now(&mailbox, 1);

    for round in 0..2_000 {
        mailbox.step(&letters, start());
        let page = mailbox.changes(reader.request(1 + round % 2, round % 4)).unwrap();
        reader.read(&page);
    }

    reader.follow(&mailbox, 3, 0);
    reader.assert_knows(&mailbox.truth());
}

#[test]
fn listing_shows_every_placement_once() {
    let letters = LetterStock::new(1, 20);
    let mut mailbox = WorldMailbox::new(3);
    mailbox.fill(50, &letters, start());
    change(&mut mailbox, &letters, 300);
    let mut reader = PageReader::default();
    let mut shown = 0;

    loop {
        let page = mailbox.list(reader.request(9, 0)).unwrap();
        shown += page.seen.len();
        reader.read(&page);
        if page.is_last {
            break;
        }
    }

    reader.assert_knows(&mailbox.truth());
    assert_eq!(shown, reader.placements.len());
}

#[test]
fn history_comes_newest_first_and_stops_at_since() {
    let letters = LetterStock::new(1, 20);
    let mut mailbox = WorldMailbox::new(5);
    mailbox.fill(100, &letters, start());
    let since = start() - SignedDuration::from_mins(15 * 40);

    let page = mailbox.history(PageRequest { cursor: None, limit: 1_000, overlap: 0 }, Some(since)).unwrap();

    let times: Vec<Timestamp> = page.seen.iter().map(|seen| seen.received_at.unwrap()).collect();
    assert_eq!(times.len(), 40);
    assert!(times.iter().all(|time| *time >= since) && times.is_sorted_by(|a, b| a >= b));
}

#[test]
fn steps_make_every_kind_of_change() {
    let letters = LetterStock::new(1, 20);
    let mut mailbox = WorldMailbox::new(9);
    mailbox.fill(20, &letters, start());
    let mut reader = PageReader::from_now(&mailbox, 100);
    let (mut revised, mut recounted) = (0, 0);

    for _ in 0..3_000 {
        mailbox.step(&letters, start());
        let page = mailbox.changes(reader.request(100, 0)).unwrap();
        revised += page.seen.iter().filter(|seen| seen.revision.as_deref() > Some("1")).count();
        recounted += page.folder_snapshots.len();
        reader.read(&page);
    }

    let truth = mailbox.truth();
    let mut by_hash: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut by_message: BTreeMap<&str, usize> = BTreeMap::new();
    for at in truth.folders.values().flat_map(|folder| &folder.placements) {
        by_hash.entry(&at.sha256).or_default().push(&at.message);
        *by_message.entry(&at.message).or_default() += 1;
    }
    by_hash.values_mut().for_each(Vec::dedup);
    let twins = by_hash.values().filter(|messages| messages.len() > 1).count();
    let shared = by_message.values().filter(|count| **count > 1).count();
    assert!(twins > 0 && revised > 0 && shared > 0 && recounted > 0, "{twins} {revised} {shared} {recounted}");
    assert!(truth.folders.len() > 6, "no folder was made");
}

#[test]
fn same_seed_makes_the_same_mailbox() {
    let [first, second] = [(), ()].map(|()| {
        let letters = LetterStock::new(4, 20);
        let mut mailbox = WorldMailbox::new(8);
        mailbox.fill(10, &letters, start());
        change(&mut mailbox, &letters, 200);
        mailbox.truth()
    });

    assert_eq!(first, second);
}
