//! One mailbox: what is in it, and the log of what happened to it. Nothing here reads a clock or a socket.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use domain::FolderRole;
use jiff::{SignedDuration, Timestamp};

use super::letters::LetterStock;
use super::random::SeededRandom;

/// Deleted messages that can still be restored; older ones are lost, so that a mailbox under change stays small.
const MAX_DELETED: usize = 100;

macro_rules! ids {
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
    )*};
}

ids! {
    /// Stays the same when the folder is renamed, and is never used again.
    WorldFolderId, "f";
    /// Stays the same in whatever folders the message is.
    WorldMessageId, "m";
    /// Identifies a message in one folder; never used there again.
    WorldUid, "";
}

#[derive(Debug)]
pub(super) struct WorldFolder {
    pub name: String,
    pub role: Option<FolderRole>,
    next_uid: u64,
    pub messages: BTreeMap<WorldUid, WorldMessageId>,
}

#[derive(Debug)]
pub(super) struct WorldMessage {
    pub raw: Arc<[u8]>,
    pub received_at: Timestamp,
    /// Of a draft: grows when its text changes.
    pub revision: Option<u32>,
    pub placements: Vec<WorldPlacement>,
}

#[derive(Debug)]
pub(super) struct WorldPlacement {
    pub folder: WorldFolderId,
    pub uid: WorldUid,
    pub flags: Vec<String>,
}

/// A change in the log. It says which thing changed, and a page lists how that thing is now: as real providers do, and so
/// that no page lists two states of one placement.
#[derive(Debug, Clone, Copy)]
pub(super) enum LoggedChange {
    Folder(WorldFolderId),
    FolderRemoved(WorldFolderId),
    Placed(WorldMessageId, WorldFolderId, WorldUid),
    Removed(WorldFolderId, WorldUid),
    /// Something was removed from a folder; a page lists what is left there.
    Recounted(WorldFolderId),
}

/// The reason why an operation cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorldRefusal {
    NoFolder,
    NoMessage,
    /// Folders with a role are neither renamed nor deleted.
    HasRole,
    NotADraft,
}

#[derive(Debug)]
pub struct WorldMailbox {
    seed: u64,
    pub(super) random: SeededRandom,
    pub(super) folders: BTreeMap<WorldFolderId, WorldFolder>,
    pub(super) messages: BTreeMap<WorldMessageId, WorldMessage>,
    pub(super) deleted: VecDeque<(WorldMessageId, WorldMessage)>,
    next_folder: u64,
    next_message: u64,
    pub(super) log: Vec<LoggedChange>,
    /// Grows when cursors expire; a cursor carries the epoch in which it was given.
    pub(super) epoch: u64,
    pub(super) listing_epoch: u64,
}

impl WorldMailbox {
    /// Creates a mailbox with the usual folders and no mail.
    pub fn new(seed: u64) -> Self {
        let mut mailbox = Self {
            seed,
            random: SeededRandom::new(seed),
            folders: BTreeMap::new(),
            messages: BTreeMap::new(),
            deleted: VecDeque::new(),
            next_folder: 1,
            next_message: 1,
            log: Vec::new(),
            epoch: 1,
            listing_epoch: 1,
        };
        let usual = [
            ("INBOX", FolderRole::Inbox),
            ("Sent", FolderRole::Sent),
            ("Archive", FolderRole::Archive),
            ("Drafts", FolderRole::Drafts),
            ("Spam", FolderRole::Spam),
            ("Trash", FolderRole::Trash),
        ];
        for (name, role) in usual {
            mailbox.add_folder(name.to_owned(), Some(role));
        }
        mailbox
    }

    /// Adds so many messages, one each quarter of an hour up to now.
    pub fn fill(&mut self, messages: usize, letters: &LetterStock, now: Timestamp) {
        for number in 0..messages {
            let age = SignedDuration::from_mins(15 * (messages - number) as i64);
            let role = match self.random.below(20) {
                0 => FolderRole::Spam,
                1 => FolderRole::Trash,
                2..4 => FolderRole::Sent,
                4..8 => FolderRole::Archive,
                _ => FolderRole::Inbox,
            };
            let flags = if self.random.chance(0.7) { vec!["seen".to_owned()] } else { Vec::new() };
            self.deliver(self.folder_with(role), 1, now - age, &flags, letters).unwrap();
        }
    }

    pub fn folder_with(&self, role: FolderRole) -> WorldFolderId {
        let found = self.folders.iter().find(|(_, folder)| folder.role == Some(role));
        *found.expect("folders with a role are never deleted").0
    }

    /// Returns the bytes of a message, when it came, and its revision.
    pub fn raw(&self, message: WorldMessageId) -> Option<(Arc<[u8]>, Timestamp, Option<u32>)> {
        let message = self.messages.get(&message)?;
        Some((message.raw.clone(), message.received_at, message.revision))
    }

    /// Delivers new mail: so many messages with the same bytes.
    pub fn deliver(
        &mut self,
        folder: WorldFolderId,
        copies: usize,
        received_at: Timestamp,
        flags: &[String],
        letters: &LetterStock,
    ) -> Result<Vec<WorldMessageId>, WorldRefusal> {
        let raw = self.write(letters);
        (0..copies).map(|_| self.add_message(folder, raw.clone(), received_at, flags.to_vec(), None)).collect()
    }

    /// Adds a new draft.
    pub fn draft(&mut self, letters: &LetterStock, now: Timestamp) -> Result<WorldMessageId, WorldRefusal> {
        let raw = self.write(letters);
        let flags = vec!["draft".to_owned(), "seen".to_owned()];
        self.add_message(self.folder_with(FolderRole::Drafts), raw, now, flags, Some(1))
    }

    fn write(&mut self, letters: &LetterStock) -> Arc<[u8]> {
        let message_id = self.message_id(self.next_message);
        letters.write(&mut self.random, &message_id, None).into()
    }

    fn message_id(&self, number: u64) -> String {
        format!("{:x}.{number}@world.example", self.seed)
    }

    pub fn add_folder(&mut self, name: String, role: Option<FolderRole>) -> WorldFolderId {
        let id = WorldFolderId(self.next_folder);
        self.next_folder += 1;
        self.folders.insert(id, WorldFolder { name, role, next_uid: 1, messages: BTreeMap::new() });
        self.log.push(LoggedChange::Folder(id));
        id
    }

    /// Renames a folder, and the folders below it.
    pub fn rename_folder(&mut self, id: WorldFolderId, name: String) -> Result<(), WorldRefusal> {
        let folder = self.folders.get_mut(&id).ok_or(WorldRefusal::NoFolder)?;
        if folder.role.is_some() {
            return Err(WorldRefusal::HasRole);
        }
        let (old, new) = (format!("{}/", folder.name), format!("{name}/"));
        folder.name = name;
        self.log.push(LoggedChange::Folder(id));
        for (id, folder) in &mut self.folders {
            if let Some(rest) = folder.name.strip_prefix(&old) {
                folder.name = format!("{new}{rest}");
                self.log.push(LoggedChange::Folder(*id));
            }
        }
        Ok(())
    }

    pub fn delete_folder(&mut self, id: WorldFolderId) -> Result<(), WorldRefusal> {
        if self.folders.get(&id).ok_or(WorldRefusal::NoFolder)?.role.is_some() {
            return Err(WorldRefusal::HasRole);
        }
        let folder = self.folders.remove(&id).ok_or(WorldRefusal::NoFolder)?;
        for (uid, message) in folder.messages {
            self.forget_placement(message, id, uid);
        }
        self.log.push(LoggedChange::FolderRemoved(id));
        Ok(())
    }

    fn add_message(
        &mut self,
        folder: WorldFolderId,
        raw: Arc<[u8]>,
        received_at: Timestamp,
        flags: Vec<String>,
        revision: Option<u32>,
    ) -> Result<WorldMessageId, WorldRefusal> {
        let id = WorldMessageId(self.next_message);
        self.messages.insert(id, WorldMessage { raw, received_at, revision, placements: Vec::new() });
        match self.place(id, folder, flags) {
            Ok(_) => self.next_message += 1,
            Err(refusal) => {
                self.messages.remove(&id);
                return Err(refusal);
            }
        }
        Ok(id)
    }

    /// Puts a message into one more folder, under a uid of its own.
    pub fn place(
        &mut self,
        id: WorldMessageId,
        folder: WorldFolderId,
        flags: Vec<String>,
    ) -> Result<WorldUid, WorldRefusal> {
        let message = self.messages.get_mut(&id).ok_or(WorldRefusal::NoMessage)?;
        let target = self.folders.get_mut(&folder).ok_or(WorldRefusal::NoFolder)?;
        let uid = WorldUid(target.next_uid);
        target.next_uid += 1;
        target.messages.insert(uid, id);
        message.placements.push(WorldPlacement { folder, uid, flags });
        self.log.push(LoggedChange::Placed(id, folder, uid));
        Ok(uid)
    }

    /// Moves a message to another folder, where it has another uid. Which half is logged first is left to chance.
    pub fn move_message(
        &mut self,
        folder: WorldFolderId,
        uid: WorldUid,
        to: WorldFolderId,
    ) -> Result<WorldUid, WorldRefusal> {
        let (id, flags) = self.flags_at(folder, uid)?;
        if !self.folders.contains_key(&to) {
            return Err(WorldRefusal::NoFolder);
        }
        let is_removed_first = self.random.chance(0.5);
        if is_removed_first {
            self.log.push(LoggedChange::Removed(folder, uid));
        }
        let placed = self.place(id, to, flags)?;
        self.take_away(folder, uid)?;
        if !is_removed_first {
            self.log.push(LoggedChange::Removed(folder, uid));
        }
        Ok(placed)
    }

    pub fn set_flags(
        &mut self,
        folder: WorldFolderId,
        uid: WorldUid,
        mut flags: Vec<String>,
    ) -> Result<(), WorldRefusal> {
        let id = self.message_at(folder, uid)?;
        flags.sort();
        flags.dedup();
        let message = self.messages.get_mut(&id).ok_or(WorldRefusal::NoMessage)?;
        let placements = message.placements.iter_mut();
        for placement in placements.filter(|placement| (placement.folder, placement.uid) == (folder, uid)) {
            placement.flags = flags.clone();
        }
        self.log.push(LoggedChange::Placed(id, folder, uid));
        Ok(())
    }

    /// Removes a message from a folder; it is deleted when that was its last.
    pub fn delete(&mut self, folder: WorldFolderId, uid: WorldUid) -> Result<(), WorldRefusal> {
        self.take_away(folder, uid)?;
        self.log.push(LoggedChange::Removed(folder, uid));
        Ok(())
    }

    /// Deletes messages; a page lists what is left in the folder only.
    pub fn expunge(&mut self, folder: WorldFolderId, uids: &[WorldUid]) -> Result<(), WorldRefusal> {
        if !self.folders.contains_key(&folder) {
            return Err(WorldRefusal::NoFolder);
        }
        let taken = uids.iter().try_for_each(|uid| self.take_away(folder, *uid));
        self.log.push(LoggedChange::Recounted(folder));
        taken
    }

    /// Brings a deleted message back under its id.
    pub fn restore(&mut self, id: WorldMessageId, folder: WorldFolderId) -> Result<WorldUid, WorldRefusal> {
        if !self.folders.contains_key(&folder) {
            return Err(WorldRefusal::NoFolder);
        }
        let at = self.deleted.iter().position(|(deleted, _)| *deleted == id).ok_or(WorldRefusal::NoMessage)?;
        let (_, message) = self.deleted.remove(at).ok_or(WorldRefusal::NoMessage)?;
        self.messages.insert(id, message);
        self.place(id, folder, vec!["seen".to_owned()])
    }

    /// Gives a draft another text under the same Message-ID.
    pub fn edit(&mut self, id: WorldMessageId, letters: &LetterStock) -> Result<u32, WorldRefusal> {
        let message_id = self.message_id(id.0);
        let message = self.messages.get_mut(&id).ok_or(WorldRefusal::NoMessage)?;
        let revision = message.revision.ok_or(WorldRefusal::NotADraft)? + 1;
        message.revision = Some(revision);
        message.raw = letters.write(&mut self.random, &message_id, Some(revision)).into();
        let placed = message.placements.iter().map(|at| LoggedChange::Placed(id, at.folder, at.uid));
        self.log.extend(placed);
        Ok(revision)
    }

    /// Expires every cursor of changes; those of listings too, if asked.
    pub fn expire_cursors(&mut self, with_listings: bool) {
        self.epoch += 1;
        self.listing_epoch += u64::from(with_listings);
    }

    pub(super) fn message_at(&self, folder: WorldFolderId, uid: WorldUid) -> Result<WorldMessageId, WorldRefusal> {
        let folder = self.folders.get(&folder).ok_or(WorldRefusal::NoFolder)?;
        folder.messages.get(&uid).copied().ok_or(WorldRefusal::NoMessage)
    }

    pub(super) fn flags_at(
        &self,
        folder: WorldFolderId,
        uid: WorldUid,
    ) -> Result<(WorldMessageId, Vec<String>), WorldRefusal> {
        let id = self.message_at(folder, uid)?;
        let placement = self.find_placement(id, folder, uid).ok_or(WorldRefusal::NoMessage)?;
        Ok((id, placement.flags.clone()))
    }

    pub(super) fn find_placement(
        &self,
        id: WorldMessageId,
        folder: WorldFolderId,
        uid: WorldUid,
    ) -> Option<&WorldPlacement> {
        self.messages.get(&id)?.placements.iter().find(|at| (at.folder, at.uid) == (folder, uid))
    }

    fn take_away(&mut self, folder: WorldFolderId, uid: WorldUid) -> Result<(), WorldRefusal> {
        let from = self.folders.get_mut(&folder).ok_or(WorldRefusal::NoFolder)?;
        let id = from.messages.remove(&uid).ok_or(WorldRefusal::NoMessage)?;
        self.forget_placement(id, folder, uid);
        Ok(())
    }

    /// Forgets a placement; a message without any is deleted.
    fn forget_placement(&mut self, id: WorldMessageId, folder: WorldFolderId, uid: WorldUid) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.placements.retain(|at| (at.folder, at.uid) != (folder, uid));
        if message.placements.is_empty()
            && let Some(message) = self.messages.remove(&id)
        {
            if self.deleted.len() == MAX_DELETED {
                self.deleted.pop_front();
            }
            self.deleted.push_back((id, message));
        }
    }

    pub(super) fn next_message_number(&self) -> u64 {
        self.next_message
    }
}
