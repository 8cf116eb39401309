//! The mailbox as its provider lists it, a page at a time.

use std::collections::BTreeSet;

use domain::Flags;
use domain::connector::{Cursors, FolderSnapshot, KnownFolder, ListedFolder, ListingPage, Placement, SeenMessage};
use jiff::Timestamp;

use super::mailbox::{LoggedChange, WorldFolderId, WorldMailbox, WorldMessageId, WorldPlacement, WorldUid};

/// The one scope of all cursors: the whole mailbox.
pub const SCOPE: &str = "mailbox";

/// The request of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    pub cursor: Option<&'a str>,
    pub limit: usize,
    /// How much of the page before is listed again.
    pub overlap: usize,
}

/// The cursor is too old, or none of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorRefusal;

impl WorldMailbox {
    /// Lists what changed since the cursor; without one, the folders and a cursor for now.
    pub fn changes(&self, request: PageRequest<'_>) -> Result<ListingPage, CursorRefusal> {
        let Some(cursor) = request.cursor else {
            let mut page = page_with_cursor(self.changes_cursor(self.log.len()), true);
            page.folders = self.folders.keys().filter_map(|id| self.listed_folder(*id)).collect();
            return Ok(page);
        };
        let [epoch, next] = parse_cursor(cursor, 'c')?;
        let next = next as usize;
        if epoch != self.epoch || next > self.log.len() {
            return Err(CursorRefusal);
        }
        let from = next.saturating_sub(request.overlap);
        let to = (next + request.limit).min(self.log.len());
        let mut page = page_with_cursor(self.changes_cursor(to), to == self.log.len());
        let mut listed = ListedIds::default();
        for change in &self.log[from..to] {
            self.list_change(*change, &mut page, &mut listed);
        }
        Ok(page)
    }

    /// Lists messages from the last one that was there at the first call down to the first, none that came before `since`.
    pub fn history(&self, request: PageRequest<'_>, since: Option<Timestamp>) -> Result<ListingPage, CursorRefusal> {
        let below = match request.cursor {
            None => self.next_message_number(),
            Some(cursor) => {
                let [epoch, below] = parse_cursor(cursor, 'h')?;
                self.check_listing_epoch(epoch)?;
                below.saturating_add(request.overlap as u64)
            }
        };
        let mut page = page_with_cursor(String::new(), true);
        let mut cursor = String::new();
        for (id, message) in self.messages.range(..WorldMessageId(below)).rev() {
            if since.is_some_and(|since| message.received_at < since) {
                continue;
            }
            // A repeated stretch comes on top, so that each page moves on.
            if page.seen.len() >= request.limit + request.overlap {
                page = ListingPage { is_last: false, cursors: cursors(cursor.clone()), ..page };
                break;
            }
            cursor = format!("h{}-{}", self.listing_epoch, id.0);
            page.seen.extend(message.placements.iter().map(|placement| self.seen(*id, placement)));
        }
        let folders: BTreeSet<&str> = page.seen.iter().map(|seen| seen.placement.folder.as_str()).collect();
        let folders = folders.into_iter().filter_map(WorldFolderId::parse);
        page.folders = folders.filter_map(|id| self.listed_folder(id)).collect();
        Ok(page)
    }

    /// Lists every placement, in the order of messages. What comes meanwhile is in the changes.
    pub fn list(&self, request: PageRequest<'_>) -> Result<ListingPage, CursorRefusal> {
        let (from, ceiling) = match request.cursor {
            None => (0, self.next_message_number()),
            Some(cursor) => {
                let [epoch, from, ceiling] = parse_cursor(cursor, 'l')?;
                self.check_listing_epoch(epoch)?;
                (from.saturating_sub(request.overlap as u64), ceiling)
            }
        };
        if from > ceiling {
            return Err(CursorRefusal);
        }
        let mut page = page_with_cursor(String::new(), true);
        let mut cursor = String::new();
        page.folders = self.folders.keys().filter_map(|id| self.listed_folder(*id)).collect();
        for (id, message) in self.messages.range(WorldMessageId(from)..WorldMessageId(ceiling)) {
            if page.seen.len() >= request.limit + request.overlap {
                page = ListingPage { is_last: false, cursors: cursors(cursor.clone()), ..page };
                break;
            }
            cursor = format!("l{}-{}-{ceiling}", self.listing_epoch, id.0 + 1);
            page.seen.extend(message.placements.iter().map(|placement| self.seen(*id, placement)));
        }
        Ok(page)
    }

    /// Adds known folders that are missing, as long as they are known, and those that are back.
    pub fn compare_folders(&self, known: &[KnownFolder], page: &mut ListingPage) {
        for folder in known {
            let now = WorldFolderId::parse(&folder.id).and_then(|id| self.listed_folder(id));
            match now {
                None if !page.missing_folders.contains(&folder.id) => page.missing_folders.push(folder.id.clone()),
                Some(now) if folder.missing_since.is_some() && !page.folders.contains(&now) => page.folders.push(now),
                _ => {}
            }
        }
    }

    fn changes_cursor(&self, next: usize) -> String {
        format!("c{}-{next}", self.epoch)
    }

    fn check_listing_epoch(&self, epoch: u64) -> Result<(), CursorRefusal> {
        if epoch == self.listing_epoch { Ok(()) } else { Err(CursorRefusal) }
    }

    /// Lists the changed thing as it is now, each once in a page. If it is gone by now, a later change says so.
    fn list_change(&self, change: LoggedChange, page: &mut ListingPage, listed: &mut ListedIds) {
        match change {
            LoggedChange::Folder(id) if listed.folders.insert(id) => page.folders.extend(self.listed_folder(id)),
            LoggedChange::FolderRemoved(id) => page.missing_folders.push(id.to_string()),
            LoggedChange::Placed(message, folder, uid) if listed.placements.insert((folder, uid)) => {
                let placement = self.find_placement(message, folder, uid);
                page.seen.extend(placement.map(|placement| self.seen(message, placement)));
            }
            LoggedChange::Removed(folder, uid) if self.message_at(folder, uid).is_err() => {
                page.removed_placements.push(placement(folder, uid));
            }
            LoggedChange::Recounted(id) if listed.recounted.insert(id) => {
                let folder = self.folders.get(&id);
                page.folder_snapshots.extend(folder.map(|folder| FolderSnapshot {
                    folder: id.to_string(),
                    uids: folder.messages.keys().map(ToString::to_string).collect(),
                }));
            }
            _ => {}
        }
    }

    fn listed_folder(&self, id: WorldFolderId) -> Option<ListedFolder> {
        let folder = self.folders.get(&id)?;
        Some(ListedFolder {
            id: id.to_string(),
            name: folder.name.clone(),
            role: folder.role,
            delimiter: Some("/".to_owned()),
            uid_validity: None,
        })
    }

    fn seen(&self, id: WorldMessageId, at: &WorldPlacement) -> SeenMessage {
        let message = &self.messages[&id];
        SeenMessage {
            message: id.to_string(),
            placement: placement(at.folder, at.uid),
            flags: Flags::from_names(at.flags.iter().map(String::as_str)),
            size_bytes: Some(message.raw.len() as u64),
            received_at: Some(message.received_at),
            revision: message.revision.map(|revision| revision.to_string()),
        }
    }
}

/// What a page lists already.
#[derive(Debug, Default)]
struct ListedIds {
    folders: BTreeSet<WorldFolderId>,
    placements: BTreeSet<(WorldFolderId, WorldUid)>,
    recounted: BTreeSet<WorldFolderId>,
}

fn placement(folder: WorldFolderId, uid: WorldUid) -> Placement {
    Placement { folder: folder.to_string(), uid: uid.to_string() }
}

/// An empty cursor: the listing is over, and the next one begins anew.
fn cursors(cursor: String) -> Cursors {
    Cursors::from([(SCOPE.to_owned(), cursor)])
}

fn page_with_cursor(cursor: String, is_last: bool) -> ListingPage {
    ListingPage { cursors: cursors(cursor), is_last, ..ListingPage::default() }
}

/// Parses `c1-55` and the like.
fn parse_cursor<const N: usize>(cursor: &str, letter: char) -> Result<[u64; N], CursorRefusal> {
    let parts = cursor.strip_prefix(letter).ok_or(CursorRefusal)?.split('-');
    let numbers: Result<Vec<u64>, _> = parts.map(str::parse).collect();
    numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or(CursorRefusal)
}
