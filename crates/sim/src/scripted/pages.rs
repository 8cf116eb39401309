//! What the provider tells about a mailbox, a page at a time.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use super::account::{Account, Change, FolderId, MessageId, Place, Role, Uid};

#[derive(Debug, Serialize)]
pub struct Page<'a> {
    pub folders: Vec<SeenFolder<'a>>,
    pub gone_folders: Vec<FolderId>,
    pub messages: Vec<SeenMessage<'a>>,
    pub vanished: Vec<SeenPlace>,
    pub present: Vec<Present>,
    pub cursor: String,
    pub is_last: bool,
}

#[derive(Debug, Serialize)]
pub struct SeenFolder<'a> {
    pub id: FolderId,
    pub name: &'a str,
    pub role: Option<Role>,
    pub delimiter: &'static str,
}

#[derive(Debug, Serialize)]
pub struct SeenMessage<'a> {
    pub id: MessageId,
    pub folder: FolderId,
    pub uid: Uid,
    pub flags: &'a [String],
    pub size: usize,
    pub received_at: Timestamp,
    pub revision: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SeenPlace {
    pub folder: FolderId,
    pub uid: Uid,
}

/// All that is in a folder.
#[derive(Debug, Serialize)]
pub struct Present {
    pub folder: FolderId,
    pub uids: Vec<Uid>,
}

/// How a page is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a> {
    pub cursor: Option<&'a str>,
    pub limit: usize,
    /// How much of what was told before is told again.
    pub overlap: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadCursor {
    Expired,
    Nonsense,
}

impl Account {
    /// What changed since the cursor; without one, the folders and a cursor for now.
    pub fn changes(&self, listing: Listing<'_>) -> Result<Page<'_>, BadCursor> {
        let Some(cursor) = listing.cursor else {
            let mut page = self.page(self.changes_cursor(self.next_change()), true);
            page.folders = self.folders.keys().filter_map(|id| self.seen_folder(*id)).collect();
            return Ok(page);
        };
        let [epoch, next] = numbers(cursor, 'c')?;
        if epoch != self.epoch || next < self.first_change || next > self.next_change() {
            return Err(BadCursor::Expired);
        }
        let from = next.saturating_sub(listing.overlap as u64).max(self.first_change);
        let to = next.saturating_add(listing.limit as u64).min(self.next_change());
        let mut page = self.page(self.changes_cursor(to), to == self.next_change());
        let mut told = Told::default();
        for number in from..to {
            self.tell(self.log[(number - self.first_change) as usize], &mut page, &mut told);
        }
        Ok(page)
    }

    /// Messages from the last that was there at the first call down to the first, none that came before `since`.
    pub fn history(&self, listing: Listing<'_>, since: Option<Timestamp>) -> Result<Page<'_>, BadCursor> {
        let below = match listing.cursor {
            None => self.next_message_number(),
            Some(cursor) => {
                let [epoch, below] = numbers(cursor, 'h')?;
                self.check_listing(epoch)?;
                below.saturating_add(listing.overlap as u64)
            }
        };
        let mut page = self.page(String::new(), true);
        for (id, message) in self.messages.range(..MessageId(below)).rev() {
            if since.is_some_and(|since| message.received_at < since) {
                continue;
            }
            // A repeated stretch comes on top, so that each page moves on.
            if page.messages.len() >= listing.limit + listing.overlap {
                page.is_last = false;
                break;
            }
            page.cursor = format!("h{}-{}", self.listing_epoch, id.0);
            page.messages.extend(message.places.iter().map(|place| self.seen(*id, place)));
        }
        let folders: BTreeSet<FolderId> = page.messages.iter().map(|message| message.folder).collect();
        page.folders = folders.into_iter().filter_map(|id| self.seen_folder(id)).collect();
        Ok(page)
    }

    /// Every place, in the order of messages; what comes while it is listed is for `changes` to tell.
    pub fn list(&self, listing: Listing<'_>) -> Result<Page<'_>, BadCursor> {
        let (from, ceiling) = match listing.cursor {
            None => (0, self.next_message_number()),
            Some(cursor) => {
                let [epoch, from, ceiling] = numbers(cursor, 'l')?;
                self.check_listing(epoch)?;
                (from.saturating_sub(listing.overlap as u64), ceiling)
            }
        };
        if from > ceiling {
            return Err(BadCursor::Nonsense);
        }
        let mut page = self.page(String::new(), true);
        page.folders = self.folders.keys().filter_map(|id| self.seen_folder(*id)).collect();
        for (id, message) in self.messages.range(MessageId(from)..MessageId(ceiling)) {
            if page.messages.len() >= listing.limit + listing.overlap {
                page.is_last = false;
                break;
            }
            page.cursor = format!("l{}-{}-{ceiling}", self.listing_epoch, id.0 + 1);
            page.messages.extend(message.places.iter().map(|place| self.seen(*id, place)));
        }
        Ok(page)
    }

    fn page(&self, cursor: String, is_last: bool) -> Page<'_> {
        Page {
            folders: Vec::new(),
            gone_folders: Vec::new(),
            messages: Vec::new(),
            vanished: Vec::new(),
            present: Vec::new(),
            cursor,
            is_last,
        }
    }

    fn changes_cursor(&self, next: u64) -> String {
        format!("c{}-{next}", self.epoch)
    }

    fn check_listing(&self, epoch: u64) -> Result<(), BadCursor> {
        if epoch == self.listing_epoch { Ok(()) } else { Err(BadCursor::Expired) }
    }

    /// Things as they are now, each once in a page. What is gone by now, a later change tells.
    fn tell<'a>(&'a self, change: Change, page: &mut Page<'a>, told: &mut Told) {
        match change {
            Change::Folder(id) if told.folders.insert(id) => page.folders.extend(self.seen_folder(id)),
            Change::FolderGone(id) => page.gone_folders.push(id),
            Change::Placed(message, folder, uid) if told.places.insert(SeenPlace { folder, uid }) => {
                page.messages.extend(self.find_place(message, folder, uid).map(|place| self.seen(message, place)));
            }
            Change::Vanished(folder, uid) if self.message_at(folder, uid).is_err() => {
                page.vanished.push(SeenPlace { folder, uid });
            }
            Change::Recounted(id) if told.recounted.insert(id) => {
                let uids = self.folders.get(&id).map(|folder| folder.messages.keys().copied().collect());
                page.present.extend(uids.map(|uids| Present { folder: id, uids }));
            }
            _ => {}
        }
    }

    fn seen_folder(&self, id: FolderId) -> Option<SeenFolder<'_>> {
        let folder = self.folders.get(&id)?;
        Some(SeenFolder { id, name: &folder.name, role: folder.role, delimiter: "/" })
    }

    fn seen<'a>(&'a self, id: MessageId, place: &'a Place) -> SeenMessage<'a> {
        let message = &self.messages[&id];
        SeenMessage {
            id,
            folder: place.folder,
            uid: place.uid,
            flags: &place.flags,
            size: message.raw.size(),
            received_at: message.received_at,
            revision: message.revision.map(|revision| revision.to_string()),
        }
    }
}

/// What a page tells already.
#[derive(Debug, Default)]
struct Told {
    folders: BTreeSet<FolderId>,
    places: BTreeSet<SeenPlace>,
    recounted: BTreeSet<FolderId>,
}

/// `c1-55` and the like.
fn numbers<const N: usize>(cursor: &str, letter: char) -> Result<[u64; N], BadCursor> {
    let parts = cursor.strip_prefix(letter).ok_or(BadCursor::Nonsense)?.split('-');
    let numbers: Result<Vec<u64>, _> = parts.map(str::parse).collect();
    numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or(BadCursor::Nonsense)
}
