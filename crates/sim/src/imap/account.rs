//! One mailbox: folders, messages and the log of changes. No I/O and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use super::folders::{DELIMITER, ImapFolder, SpecialUse};
use super::operation::{ImapOperation, ImapOperationOutcome};
use super::truth::ImapTruth;
use crate::letter_pool::{Content, LetterPool};
use crate::mail::rng::Rng;
use crate::world::sim_account;

#[derive(Debug, Clone)]
pub struct ImapMessage {
    /// The email id, shared by all copies (OBJECTID).
    pub email: u64,
    pub thread: u64,
    pub flags: BTreeSet<String>,
    /// Seconds since 1970.
    pub received: i64,
    /// The mailbox's change counter at the last change.
    pub modseq: u64,
    pub content: Content,
}

/// The reason why a scripted operation cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImapOperationError {
    NoAccount,
    NoFolder,
    NoMessage,
    /// The folder name is in use.
    Taken,
    /// A special-use folder cannot be changed.
    HasRole,
}

impl fmt::Display for ImapOperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAccount => "there is no such account",
            Self::NoFolder => "there is no such folder",
            Self::NoMessage => "there is no such message",
            Self::Taken => "there is a folder of this name",
            Self::HasRole => "this folder stays as it is",
        })
    }
}

#[derive(Debug)]
pub struct ImapAccount {
    seed: u64,
    pub(super) rng: Rng,
    /// By internal number.
    pub(super) folders: BTreeMap<u32, ImapFolder>,
    next_folder: u32,
    next_validity: u32,
    next_email: u64,
    modseq: u64,
}

/// A message to add to the mailbox.
#[derive(Debug)]
pub struct NewImapMessage {
    pub content: Content,
    pub flags: BTreeSet<String>,
    pub received: i64,
}

sim_account! { ImapAccount { ImapOperation => Result<ImapOperationOutcome, ImapOperationError>, ImapTruth } }

impl ImapAccount {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut account = Self {
            seed,
            next_folder: 1,
            // UIDVALIDITY looks like a timestamp, and differs for each folder.
            next_validity: 1_600_000_000 + rng.below(100_000_000) as u32,
            next_email: 1,
            modseq: 1_000 + rng.below(100_000) as u64,
            rng,
            folders: BTreeMap::new(),
        };
        for (role, name) in SpecialUse::ALL {
            account.insert_folder(name, Some(role));
        }
        account
    }

    pub fn message_count(&self) -> usize {
        self.folders.values().map(|folder| folder.messages.len()).sum()
    }

    pub fn email_id(&self, message: &ImapMessage) -> String {
        format!("M{:08x}{:012x}", self.seed as u32, message.email)
    }

    pub fn thread_id(&self, message: &ImapMessage) -> String {
        format!("T{:08x}{:012x}", self.seed as u32, message.thread)
    }

    /// Increments the change counter.
    pub(super) fn tick(&mut self) -> u64 {
        self.modseq += 1;
        self.modseq
    }

    pub fn modseq(&self) -> u64 {
        self.modseq
    }

    /// Finds a folder by name; INBOX is case-insensitive.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.folders.iter().find(|(_, folder)| folder.is_named(name)).map(|(number, _)| *number)
    }

    pub fn with_role(&self, role: SpecialUse) -> u32 {
        let found = self.folders.iter().find(|(_, folder)| folder.role == Some(role));
        found.map_or(0, |(number, _)| *number)
    }

    pub(super) fn write(&mut self, letters: &LetterPool) -> Content {
        let message_id = format!("{:x}.{}.{}@mail.imap.example", self.seed, self.next_email, self.modseq);
        letters.write(&mut self.rng, &message_id)
    }

    pub(super) fn add(&mut self, folder: u32, new: NewImapMessage) -> Result<u32, ImapOperationError> {
        let (email, modseq) = (self.next_email, self.modseq + 1);
        let found = self.folders.get_mut(&folder).ok_or(ImapOperationError::NoFolder)?;
        let NewImapMessage { content, flags, received } = new;
        let uid = found.put(ImapMessage { email, thread: email, flags, received, modseq, content });
        self.next_email += 1;
        self.tick();
        Ok(uid)
    }

    pub(super) fn set_flags(
        &mut self,
        folder: u32,
        uid: u32,
        change: impl FnOnce(&mut BTreeSet<String>),
    ) -> Result<(), ImapOperationError> {
        let modseq = self.modseq + 1;
        let found = self.folders.get_mut(&folder).ok_or(ImapOperationError::NoFolder)?;
        let message = found.messages.get_mut(&uid).ok_or(ImapOperationError::NoMessage)?;
        let before = message.flags.clone();
        change(&mut message.flags);
        if message.flags != before {
            message.modseq = modseq;
            found.highest_modseq = modseq;
            self.tick();
        }
        Ok(())
    }

    pub(super) fn copy(&mut self, from: u32, uid: u32, to: u32) -> Result<u32, ImapOperationError> {
        let message = self.folders.get(&from).ok_or(ImapOperationError::NoFolder)?.messages.get(&uid);
        let mut message = message.ok_or(ImapOperationError::NoMessage)?.clone();
        message.modseq = self.modseq + 1;
        let uid = self.folders.get_mut(&to).ok_or(ImapOperationError::NoFolder)?.put(message);
        self.tick();
        Ok(uid)
    }

    pub(super) fn move_message(&mut self, from: u32, uid: u32, to: u32) -> Result<u32, ImapOperationError> {
        let copied = self.copy(from, uid, to)?;
        self.expunge(from, uid)?;
        Ok(copied)
    }

    pub(super) fn expunge(&mut self, folder: u32, uid: u32) -> Result<(), ImapOperationError> {
        let modseq = self.modseq + 1;
        let found = self.folders.get_mut(&folder).ok_or(ImapOperationError::NoFolder)?;
        found.take(uid, modseq).ok_or(ImapOperationError::NoMessage)?;
        self.tick();
        Ok(())
    }

    /// Creates a folder and its missing parents.
    pub(super) fn create_folder(&mut self, name: &str) -> Result<u32, ImapOperationError> {
        let name = name.trim_end_matches(DELIMITER);
        if name.is_empty() || self.find(name).is_some() {
            return Err(ImapOperationError::Taken);
        }
        for (at, _) in name.match_indices(DELIMITER) {
            if self.find(&name[..at]).is_none() {
                self.insert_folder(&name[..at], None);
            }
        }
        Ok(self.insert_folder(name, None))
    }

    /// Renames a folder and its descendants.
    pub(super) fn rename_folder(&mut self, folder: u32, name: &str) -> Result<(), ImapOperationError> {
        let old = self.own(folder)?.name.clone();
        let is_inside = name.strip_prefix(&old).is_some_and(|rest| rest.starts_with(DELIMITER));
        if name.is_empty() || self.find(name).is_some() || is_inside {
            return Err(ImapOperationError::Taken);
        }
        self.tick();
        for found in self.folders.values_mut() {
            let rest = found.name.strip_prefix(&old).filter(|rest| rest.is_empty() || rest.starts_with(DELIMITER));
            if let Some(rest) = rest {
                found.name = format!("{name}{rest}");
            }
        }
        Ok(())
    }

    /// Deletes a folder with its messages; its descendants stay.
    pub(super) fn delete_folder(&mut self, folder: u32) -> Result<(), ImapOperationError> {
        self.own(folder)?;
        self.folders.remove(&folder);
        self.tick();
        Ok(())
    }

    pub(super) fn renumber(&mut self, folder: u32) -> Result<(), ImapOperationError> {
        let (validity, modseq) = (self.validity(), self.tick());
        self.folders.get_mut(&folder).ok_or(ImapOperationError::NoFolder)?.renumber(validity, modseq);
        Ok(())
    }

    fn own(&self, folder: u32) -> Result<&ImapFolder, ImapOperationError> {
        let found = self.folders.get(&folder).ok_or(ImapOperationError::NoFolder)?;
        if found.role.is_some() { Err(ImapOperationError::HasRole) } else { Ok(found) }
    }

    fn validity(&mut self) -> u32 {
        self.next_validity += 1 + self.rng.below(1_000) as u32;
        self.next_validity
    }

    fn insert_folder(&mut self, name: &str, role: Option<SpecialUse>) -> u32 {
        let (number, validity, modseq) = (self.next_folder, self.validity(), self.tick());
        self.next_folder += 1;
        let id = format!("F{:08x}{number:06x}", self.seed as u32);
        self.folders.insert(number, ImapFolder::new(name, role, id, validity, modseq));
        number
    }
}

/// Converts an instant to the unit that messages store.
pub fn seconds(at: Timestamp) -> i64 {
    at.as_second()
}
