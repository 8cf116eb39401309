//! The folder tree of a mailbox.

use std::collections::{BTreeMap, BTreeSet};

use super::account::{OutlookAccount, OutlookOperationError, RemovedMessage};

/// The root folder's number.
pub const ROOT: u32 = 0;

#[derive(Debug)]
pub struct OutlookFolder {
    /// `None`: the folder is the root.
    pub parent: Option<u32>,
    pub name: String,
    pub well_known: Option<&'static str>,
    pub is_hidden: bool,
    /// Whether the folder is a search folder, which shows messages of other folders.
    pub is_search: bool,
    /// The mailbox's change counter at the last change.
    pub changed_at: u64,
    /// Delta tokens before this change have expired.
    pub oldest: u64,
    pub unread: usize,
    /// Messages by date, oldest first.
    pub by_date: BTreeSet<(i64, u64)>,
    /// Messages by last change.
    pub changed: BTreeMap<u64, u64>,
    /// Removed messages by change counter.
    pub removed: BTreeMap<u64, RemovedMessage>,
}

impl OutlookFolder {
    pub fn new(parent: Option<u32>, name: &str, changed_at: u64) -> Self {
        Self {
            parent,
            name: name.to_owned(),
            well_known: None,
            is_hidden: false,
            is_search: false,
            changed_at,
            oldest: 0,
            unread: 0,
            by_date: BTreeSet::new(),
            changed: BTreeMap::new(),
            removed: BTreeMap::new(),
        }
    }

    pub fn holds_mail(&self) -> bool {
        self.parent.is_some() && !self.is_search
    }
}

/// Well-known name, English name, German name, parent's number, whether it is hidden.
const WELL_KNOWN: [(&str, &str, &str, u32, bool); 13] = [
    ("msgfolderroot", "Top of Information Store", "Oberste Ebene des Informationsspeichers", ROOT, false),
    ("inbox", "Inbox", "Posteingang", ROOT, false),
    ("drafts", "Drafts", "Entwürfe", ROOT, false),
    ("sentitems", "Sent Items", "Gesendete Elemente", ROOT, false),
    ("deleteditems", "Deleted Items", "Gelöschte Elemente", ROOT, false),
    ("junkemail", "Junk Email", "Junk-E-Mail", ROOT, false),
    ("archive", "Archive", "Archiv", ROOT, false),
    ("outbox", "Outbox", "Postausgang", ROOT, false),
    ("conversationhistory", "Conversation History", "Aufgezeichnete Unterhaltungen", ROOT, true),
    ("syncissues", "Sync Issues", "Synchronisierungsprobleme", ROOT, true),
    ("conflicts", "Conflicts", "Konflikte", 9, true),
    ("localfailures", "Local Failures", "Lokale Fehler", 9, true),
    ("serverfailures", "Server Failures", "Serverfehler", 9, true),
];

pub const INBOX: u32 = 1;
pub const DRAFTS: u32 = 2;
pub const SENT: u32 = 3;
pub const DELETED: u32 = 4;
pub const JUNK: u32 = 5;
pub const ARCHIVE: u32 = 6;

/// Name, and the parent's index in this list.
const INITIAL_USER_FOLDERS: [(&str, Option<usize>); 5] =
    [("Projects", None), ("Müller & Söhne", Some(0)), ("2026", Some(1)), ("Receipts", None), ("請求書", Some(3))];

/// Builds the initial folders. One mailbox in three is German, and one in two has a search folder.
pub fn tree(seed: u64, changed_at: u64) -> BTreeMap<u32, OutlookFolder> {
    let mut folders: Vec<OutlookFolder> = Vec::new();
    for (well_known, name, german, parent, is_hidden) in WELL_KNOWN {
        let parent = (well_known != "msgfolderroot").then_some(parent);
        let name = if seed.is_multiple_of(3) { german } else { name };
        let folder =
            OutlookFolder { well_known: Some(well_known), is_hidden, ..OutlookFolder::new(parent, name, changed_at) };
        folders.push(folder);
    }
    for (name, parent) in INITIAL_USER_FOLDERS {
        let parent = parent.map_or(ROOT, |at| (WELL_KNOWN.len() + at) as u32);
        folders.push(OutlookFolder::new(Some(parent), name, changed_at));
    }
    if seed.is_multiple_of(2) {
        folders.push(OutlookFolder { is_search: true, ..OutlookFolder::new(Some(ROOT), "Unread Mail", changed_at) });
    }
    (0..).zip(folders).collect()
}

impl OutlookAccount {
    /// Iterates over the children of a folder, ordered by number.
    pub fn children(&self, parent: u32) -> impl Iterator<Item = (u32, &OutlookFolder)> {
        let of_it = self.folders.iter().filter(move |(_, folder)| folder.parent == Some(parent));
        of_it.map(|(number, folder)| (*number, folder))
    }

    /// Returns the folder's path below the root.
    pub fn path(&self, number: u32) -> String {
        let mut names = Vec::new();
        let mut at = Some(number);
        while let Some(folder) = at.filter(|at| *at != ROOT).and_then(|at| self.folders.get(&at)) {
            names.push(folder.name.as_str());
            at = folder.parent;
        }
        names.reverse();
        names.join("/")
    }

    /// Returns the folder and all its descendants.
    pub(super) fn below(&self, number: u32) -> Vec<u32> {
        let mut all = vec![number];
        let mut at = 0;
        while at < all.len() {
            let parent = all[at];
            all.extend(self.children(parent).map(|(number, _)| number));
            at += 1;
        }
        all
    }

    fn is_taken(&self, parent: u32, name: &str) -> bool {
        self.children(parent).any(|(_, folder)| folder.name.eq_ignore_ascii_case(name))
    }

    pub(super) fn create_folder(&mut self, parent: u32, name: &str) -> Result<u32, OutlookOperationError> {
        if self.folders.get(&parent).is_none_or(|folder| folder.is_search) {
            return Err(OutlookOperationError::NoFolder);
        }
        if self.is_taken(parent, name) {
            return Err(OutlookOperationError::FolderStays);
        }
        let number = self.next_folder;
        self.next_folder += 1;
        let at = self.tick();
        self.folders.insert(number, OutlookFolder::new(Some(parent), name, at));
        Ok(number)
    }

    pub(super) fn rename_folder(&mut self, number: u32, name: &str) -> Result<(), OutlookOperationError> {
        let parent = self.own(number)?;
        if self.is_taken(parent, name) {
            return Err(OutlookOperationError::FolderStays);
        }
        let at = self.tick();
        if let Some(folder) = self.folders.get_mut(&number) {
            (folder.name, folder.changed_at) = (name.to_owned(), at);
        }
        Ok(())
    }

    pub(super) fn move_folder(&mut self, number: u32, to: u32) -> Result<(), OutlookOperationError> {
        self.own(number)?;
        if self.folders.get(&to).is_none_or(|folder| folder.is_search) {
            return Err(OutlookOperationError::NoFolder);
        }
        let name = self.folders[&number].name.clone();
        if self.below(number).contains(&to) || self.is_taken(to, &name) {
            return Err(OutlookOperationError::FolderStays);
        }
        let at = self.tick();
        if let Some(folder) = self.folders.get_mut(&number) {
            (folder.parent, folder.changed_at) = (Some(to), at);
        }
        Ok(())
    }

    /// Deletes a folder with its messages and descendants for good.
    pub(super) fn purge_folder(&mut self, number: u32) -> Result<(), OutlookOperationError> {
        self.own(number)?;
        for gone in self.below(number).into_iter().rev() {
            self.empty_folder(gone)?;
            let at = self.tick();
            self.folders.remove(&gone);
            self.gone_folders.insert(at, gone);
        }
        Ok(())
    }

    /// Deletes the folder's messages for good, but not those of its descendants.
    pub(super) fn empty_folder(&mut self, number: u32) -> Result<(), OutlookOperationError> {
        let folder = self.folders.get(&number).ok_or(OutlookOperationError::NoFolder)?;
        let inside: Vec<u64> = folder.by_date.iter().map(|(_, number)| *number).collect();
        inside.into_iter().try_for_each(|message| self.purge(message))
    }

    /// Returns the parent of a user folder; other folders cannot be changed.
    fn own(&self, number: u32) -> Result<u32, OutlookOperationError> {
        let folder = self.folders.get(&number).ok_or(OutlookOperationError::NoFolder)?;
        match folder.parent {
            Some(parent) if folder.well_known.is_none() && !folder.is_search => Ok(parent),
            _ => Err(OutlookOperationError::FolderStays),
        }
    }
}
