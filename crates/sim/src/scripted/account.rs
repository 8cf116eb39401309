//! One mailbox: what is in it, and the log of what happened to it. Nothing here reads a clock or a socket.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::letters::{Letters, Raw};
use crate::mail::rng::Rng;

/// Deleted messages that can still be restored; older ones are lost, so that a mailbox under change stays small.
const KEPT_DELETED: usize = 100;

/// The changes that are kept: a cursor from before them has expired.
const KEPT_CHANGES: usize = 100_000;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $letter:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl $name {
            pub fn parse(text: &str) -> Option<Self> {
                text.strip_prefix($letter)?.parse().ok().map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).ok_or_else(|| serde::de::Error::custom("no such name"))
            }
        }
    )*};
}

names! {
    /// Stays the same when the folder is renamed, and is never used again.
    FolderId, "f";
    /// Stays the same wherever the message goes.
    MessageId, "m";
    /// What a message is called in one folder; never used there again.
    Uid, "";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Inbox,
    Sent,
    Archive,
    Drafts,
    Spam,
    Trash,
}

#[derive(Debug)]
pub(super) struct Folder {
    pub name: String,
    pub role: Option<Role>,
    next_uid: u64,
    pub messages: BTreeMap<Uid, MessageId>,
}

#[derive(Debug)]
pub(super) struct Message {
    pub raw: Raw,
    pub received_at: Timestamp,
    /// Of a draft: grows when its text changes.
    pub revision: Option<u32>,
    pub places: Vec<Place>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub folder: FolderId,
    pub uid: Uid,
    pub flags: Vec<String>,
}

/// What the log remembers is which thing changed, and a page tells how that thing is now: as real providers do, and so
/// that no page says two things of one place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Folder(FolderId),
    FolderGone(FolderId),
    Placed(MessageId, FolderId, Uid),
    Vanished(FolderId, Uid),
    /// Something went from a folder; what, only what is left there tells.
    Recounted(FolderId),
}

/// Why an operation cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    NoFolder,
    NoMessage,
    /// Folders with a role stay, and stay what they are.
    HasRole,
    NotADraft,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFolder => "there is no such folder",
            Self::NoMessage => "there is no such message, or not there",
            Self::HasRole => "a folder with a role can be neither renamed nor deleted",
            Self::NotADraft => "only a draft can be edited",
        })
    }
}

impl std::error::Error for Refused {}

#[derive(Debug)]
pub struct Account {
    seed: u64,
    pub(super) rng: Rng,
    pub(super) folders: BTreeMap<FolderId, Folder>,
    pub(super) messages: BTreeMap<MessageId, Message>,
    pub(super) deleted: VecDeque<(MessageId, Message)>,
    next_folder: u64,
    next_message: u64,
    /// The number of the first change in the log.
    pub(super) first_change: u64,
    pub(super) log: VecDeque<Change>,
    /// Grows when cursors expire; a cursor carries the one it was given in.
    pub(super) epoch: u64,
    pub(super) listing_epoch: u64,
}

impl Account {
    /// With the usual folders and no mail.
    pub fn new(seed: u64) -> Self {
        let mut account = Self {
            seed,
            rng: Rng::new(seed),
            folders: BTreeMap::new(),
            messages: BTreeMap::new(),
            deleted: VecDeque::new(),
            next_folder: 1,
            next_message: 1,
            first_change: 1,
            log: VecDeque::new(),
            epoch: 1,
            listing_epoch: 1,
        };
        let usual = [
            ("INBOX", Role::Inbox),
            ("Sent", Role::Sent),
            ("Archive", Role::Archive),
            ("Drafts", Role::Drafts),
            ("Spam", Role::Spam),
            ("Trash", Role::Trash),
        ];
        for (name, role) in usual {
            account.add_folder(name.to_owned(), Some(role));
        }
        account
    }

    pub fn folder_with(&self, role: Role) -> FolderId {
        let found = self.folders.iter().find(|(_, folder)| folder.role == Some(role));
        *found.expect("folders with a role are never deleted").0
    }

    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// The bytes of a message as they are now, when it came, and its revision.
    pub fn raw(&self, message: MessageId) -> Option<(Raw, Timestamp, Option<u32>)> {
        let message = self.messages.get(&message)?;
        Some((message.raw.clone(), message.received_at, message.revision))
    }

    pub(super) fn write(&mut self, letters: &Letters) -> Raw {
        let message_id = self.message_id(self.next_message);
        letters.write(&mut self.rng, &message_id, None)
    }

    fn message_id(&self, number: u64) -> String {
        format!("{:x}.{number}@scripted.example", self.seed)
    }

    pub(super) fn add_folder(&mut self, name: String, role: Option<Role>) -> FolderId {
        let id = FolderId(self.next_folder);
        self.next_folder += 1;
        self.folders.insert(id, Folder { name, role, next_uid: 1, messages: BTreeMap::new() });
        self.record(Change::Folder(id));
        id
    }

    /// Folders below it are renamed with it.
    pub(super) fn rename_folder(&mut self, id: FolderId, name: String) -> Result<(), Refused> {
        let folder = self.folders.get_mut(&id).ok_or(Refused::NoFolder)?;
        if folder.role.is_some() {
            return Err(Refused::HasRole);
        }
        let (old, new) = (format!("{}/", folder.name), format!("{name}/"));
        folder.name = name;
        let mut renamed = vec![id];
        for (id, folder) in &mut self.folders {
            if let Some(rest) = folder.name.strip_prefix(&old) {
                folder.name = format!("{new}{rest}");
                renamed.push(*id);
            }
        }
        renamed.into_iter().for_each(|id| self.record(Change::Folder(id)));
        Ok(())
    }

    pub(super) fn delete_folder(&mut self, id: FolderId) -> Result<(), Refused> {
        if self.folders.get(&id).ok_or(Refused::NoFolder)?.role.is_some() {
            return Err(Refused::HasRole);
        }
        let folder = self.folders.remove(&id).ok_or(Refused::NoFolder)?;
        for (uid, message) in folder.messages {
            self.forget_place(message, id, uid);
        }
        self.record(Change::FolderGone(id));
        Ok(())
    }

    pub(super) fn add_message(
        &mut self,
        folder: FolderId,
        raw: Raw,
        received_at: Timestamp,
        flags: Vec<String>,
        revision: Option<u32>,
    ) -> Result<MessageId, Refused> {
        let id = MessageId(self.next_message);
        self.messages.insert(id, Message { raw, received_at, revision, places: Vec::new() });
        match self.place(id, folder, flags) {
            Ok(_) => self.next_message += 1,
            Err(refused) => {
                self.messages.remove(&id);
                return Err(refused);
            }
        }
        Ok(id)
    }

    /// Into a folder, under a uid of its own.
    pub(super) fn place(&mut self, id: MessageId, folder: FolderId, flags: Vec<String>) -> Result<Uid, Refused> {
        let message = self.messages.get_mut(&id).ok_or(Refused::NoMessage)?;
        let target = self.folders.get_mut(&folder).ok_or(Refused::NoFolder)?;
        let uid = Uid(target.next_uid);
        target.next_uid += 1;
        target.messages.insert(uid, id);
        message.places.push(Place { folder, uid, flags });
        self.record(Change::Placed(id, folder, uid));
        Ok(uid)
    }

    /// To another folder, where it has another uid. Which half of it is told first is left to chance.
    pub(super) fn move_message(&mut self, folder: FolderId, uid: Uid, to: FolderId) -> Result<Uid, Refused> {
        let (id, flags) = self.flags_at(folder, uid)?;
        if !self.folders.contains_key(&to) {
            return Err(Refused::NoFolder);
        }
        let is_gone_first = self.rng.percent(50);
        if is_gone_first {
            self.record(Change::Vanished(folder, uid));
        }
        let placed = self.place(id, to, flags)?;
        self.take_away(folder, uid)?;
        if !is_gone_first {
            self.record(Change::Vanished(folder, uid));
        }
        Ok(placed)
    }

    pub(super) fn set_flags(&mut self, folder: FolderId, uid: Uid, mut flags: Vec<String>) -> Result<(), Refused> {
        let id = self.message_at(folder, uid)?;
        flags.sort();
        flags.dedup();
        let places = self.messages.get_mut(&id).map(|message| message.places.iter_mut()).ok_or(Refused::NoMessage)?;
        places.filter(|place| (place.folder, place.uid) == (folder, uid)).for_each(|place| place.flags = flags.clone());
        self.record(Change::Placed(id, folder, uid));
        Ok(())
    }

    pub(super) fn delete(&mut self, folder: FolderId, uid: Uid) -> Result<(), Refused> {
        self.take_away(folder, uid)?;
        self.record(Change::Vanished(folder, uid));
        Ok(())
    }

    /// Gone, and the log tells only that the folder is to be looked at.
    pub(super) fn expunge(&mut self, folder: FolderId, uids: &[Uid]) -> Result<(), Refused> {
        if !self.folders.contains_key(&folder) {
            return Err(Refused::NoFolder);
        }
        let taken = uids.iter().try_for_each(|uid| self.take_away(folder, *uid));
        self.record(Change::Recounted(folder));
        taken
    }

    pub(super) fn restore(&mut self, id: MessageId, folder: FolderId) -> Result<Uid, Refused> {
        if !self.folders.contains_key(&folder) {
            return Err(Refused::NoFolder);
        }
        let at = self.deleted.iter().position(|(deleted, _)| *deleted == id).ok_or(Refused::NoMessage)?;
        let (_, message) = self.deleted.remove(at).ok_or(Refused::NoMessage)?;
        self.messages.insert(id, message);
        self.place(id, folder, vec!["seen".to_owned()])
    }

    /// Another text under the same Message-ID, told in each place.
    pub(super) fn edit(&mut self, id: MessageId, letters: &Letters) -> Result<u32, Refused> {
        let message_id = self.message_id(id.0);
        let message = self.messages.get_mut(&id).ok_or(Refused::NoMessage)?;
        let revision = message.revision.ok_or(Refused::NotADraft)? + 1;
        message.revision = Some(revision);
        message.raw = letters.write(&mut self.rng, &message_id, Some(revision));
        let places: Vec<_> = message.places.iter().map(|place| (place.folder, place.uid)).collect();
        places.into_iter().for_each(|(folder, uid)| self.record(Change::Placed(id, folder, uid)));
        Ok(revision)
    }

    /// From here on every cursor for changes is unknown; those of listings too, if asked.
    pub fn expire_cursors(&mut self, with_listings: bool) {
        self.epoch += 1;
        self.listing_epoch += u64::from(with_listings);
    }

    pub(super) fn message_at(&self, folder: FolderId, uid: Uid) -> Result<MessageId, Refused> {
        let folder = self.folders.get(&folder).ok_or(Refused::NoFolder)?;
        folder.messages.get(&uid).copied().ok_or(Refused::NoMessage)
    }

    pub(super) fn flags_at(&self, folder: FolderId, uid: Uid) -> Result<(MessageId, Vec<String>), Refused> {
        let id = self.message_at(folder, uid)?;
        let place = self.find_place(id, folder, uid).ok_or(Refused::NoMessage)?;
        Ok((id, place.flags.clone()))
    }

    pub(super) fn find_place(&self, id: MessageId, folder: FolderId, uid: Uid) -> Option<&Place> {
        self.messages.get(&id)?.places.iter().find(|place| (place.folder, place.uid) == (folder, uid))
    }

    fn take_away(&mut self, folder: FolderId, uid: Uid) -> Result<(), Refused> {
        let from = self.folders.get_mut(&folder).ok_or(Refused::NoFolder)?;
        let id = from.messages.remove(&uid).ok_or(Refused::NoMessage)?;
        self.forget_place(id, folder, uid);
        Ok(())
    }

    /// A message without a place is deleted.
    fn forget_place(&mut self, id: MessageId, folder: FolderId, uid: Uid) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.places.retain(|place| (place.folder, place.uid) != (folder, uid));
        if message.places.is_empty()
            && let Some(message) = self.messages.remove(&id)
        {
            if self.deleted.len() == KEPT_DELETED {
                self.deleted.pop_front();
            }
            self.deleted.push_back((id, message));
        }
    }

    fn record(&mut self, change: Change) {
        if self.log.len() == KEPT_CHANGES {
            self.log.pop_front();
            self.first_change += 1;
        }
        self.log.push_back(change);
    }

    /// The number of the change that comes next.
    pub(super) fn next_change(&self) -> u64 {
        self.first_change + self.log.len() as u64
    }

    pub(super) fn next_message_number(&self) -> u64 {
        self.next_message
    }
}
