//! The folders of a mailbox.

use std::collections::{BTreeMap, BTreeSet};

use super::account::{Account, Refused, Removal};

/// The root is the first of them.
pub const ROOT: u32 = 0;

#[derive(Debug)]
pub struct Folder {
    /// Nothing: the root.
    pub parent: Option<u32>,
    pub name: String,
    pub well_known: Option<&'static str>,
    pub is_hidden: bool,
    /// It shows what lies elsewhere.
    pub is_search: bool,
    /// When it last changed, counted in changes to the mailbox.
    pub changed_at: u64,
    /// Tokens from before this change have expired.
    pub oldest: u64,
    pub unread: usize,
    /// What is in it, oldest first.
    pub by_date: BTreeSet<(i64, u64)>,
    /// What is in it, by when it last changed.
    pub changed: BTreeMap<u64, u64>,
    /// What was in it, by when it went.
    pub removed: BTreeMap<u64, Removal>,
}

impl Folder {
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

/// Well-known name, name, name in an account whose owner speaks German, number of the parent, whether it is hidden.
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

/// Name, and the place of the parent in this list.
const OWN: [(&str, Option<usize>); 5] =
    [("Projects", None), ("Müller & Söhne", Some(0)), ("2026", Some(1)), ("Receipts", None), ("請求書", Some(3))];

/// As a mailbox has them from the start. One in three speaks German, and one in two has a search folder.
pub fn tree(seed: u64, changed_at: u64) -> BTreeMap<u32, Folder> {
    let mut folders: Vec<Folder> = Vec::new();
    for (well_known, name, german, parent, is_hidden) in WELL_KNOWN {
        let parent = (well_known != "msgfolderroot").then_some(parent);
        let name = if seed.is_multiple_of(3) { german } else { name };
        let folder = Folder { well_known: Some(well_known), is_hidden, ..Folder::new(parent, name, changed_at) };
        folders.push(folder);
    }
    for (name, parent) in OWN {
        let parent = parent.map_or(ROOT, |at| (WELL_KNOWN.len() + at) as u32);
        folders.push(Folder::new(Some(parent), name, changed_at));
    }
    if seed.is_multiple_of(2) {
        folders.push(Folder { is_search: true, ..Folder::new(Some(ROOT), "Unread Mail", changed_at) });
    }
    (0..).zip(folders).collect()
}

impl Account {
    /// Right below, in the order of their numbers.
    pub fn children(&self, parent: u32) -> impl Iterator<Item = (u32, &Folder)> {
        let of_it = self.folders.iter().filter(move |(_, folder)| folder.parent == Some(parent));
        of_it.map(|(number, folder)| (*number, folder))
    }

    /// Names from below the root down to it.
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

    /// It and all below it.
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

    pub(super) fn create_folder(&mut self, parent: u32, name: &str) -> Result<u32, Refused> {
        if self.folders.get(&parent).is_none_or(|folder| folder.is_search) {
            return Err(Refused::NoFolder);
        }
        if self.is_taken(parent, name) {
            return Err(Refused::FolderStays);
        }
        let number = self.next_folder;
        self.next_folder += 1;
        let at = self.tick();
        self.folders.insert(number, Folder::new(Some(parent), name, at));
        Ok(number)
    }

    pub(super) fn rename_folder(&mut self, number: u32, name: &str) -> Result<(), Refused> {
        let parent = self.own(number)?;
        if self.is_taken(parent, name) {
            return Err(Refused::FolderStays);
        }
        let at = self.tick();
        if let Some(folder) = self.folders.get_mut(&number) {
            (folder.name, folder.changed_at) = (name.to_owned(), at);
        }
        Ok(())
    }

    pub(super) fn move_folder(&mut self, number: u32, to: u32) -> Result<(), Refused> {
        self.own(number)?;
        if self.folders.get(&to).is_none_or(|folder| folder.is_search) {
            return Err(Refused::NoFolder);
        }
        let name = self.folders[&number].name.clone();
        if self.below(number).contains(&to) || self.is_taken(to, &name) {
            return Err(Refused::FolderStays);
        }
        let at = self.tick();
        if let Some(folder) = self.folders.get_mut(&number) {
            (folder.parent, folder.changed_at) = (Some(to), at);
        }
        Ok(())
    }

    /// For good, with all that is in it and below it.
    pub(super) fn purge_folder(&mut self, number: u32) -> Result<(), Refused> {
        self.own(number)?;
        for gone in self.below(number).into_iter().rev() {
            self.empty_folder(gone)?;
            let at = self.tick();
            self.folders.remove(&gone);
            self.gone_folders.insert(at, gone);
        }
        Ok(())
    }

    /// For good, but not what lies in folders below it.
    pub(super) fn empty_folder(&mut self, number: u32) -> Result<(), Refused> {
        let folder = self.folders.get(&number).ok_or(Refused::NoFolder)?;
        let inside: Vec<u64> = folder.by_date.iter().map(|(_, number)| *number).collect();
        inside.into_iter().try_for_each(|message| self.purge(message))
    }

    /// The parent of a folder that somebody made, and may change.
    fn own(&self, number: u32) -> Result<u32, Refused> {
        let folder = self.folders.get(&number).ok_or(Refused::NoFolder)?;
        match folder.parent {
            Some(parent) if folder.well_known.is_none() && !folder.is_search => Ok(parent),
            _ => Err(Refused::FolderStays),
        }
    }
}
