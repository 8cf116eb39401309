//! One account: folders, messages and the logs of changes. No I/O and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use super::change_log::{ChangeOrder, JmapChangeLog, LoggedEvent};
use super::folders::{JmapFolder, MailboxRole};
use super::operation::{JmapOperation, JmapOperationOutcome};
use super::truth::JmapTruth;
use crate::letter_pool::{Content, LetterPool};
use crate::mail::rng::Rng;
use crate::world::sim_account;

#[derive(Debug, Clone)]
pub struct JmapMessage {
    /// The numbers of its folders, at least one.
    pub folders: BTreeSet<u32>,
    pub keywords: BTreeSet<String>,
    /// Seconds since 1970.
    pub received: i64,
    pub content: Content,
}

/// The reason why a scripted operation cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JmapOperationError {
    NoAccount,
    NoFolder,
    NoMessage,
    /// The name is in use there.
    Taken,
    /// A folder with a role cannot be changed.
    HasRole,
}

impl fmt::Display for JmapOperationError {
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
pub struct JmapAccount {
    seed: u64,
    pub(super) rng: Rng,
    pub(super) folders: BTreeMap<u32, JmapFolder>,
    pub(super) messages: BTreeMap<u64, JmapMessage>,
    next_folder: u32,
    next_message: u64,
    pub(super) folder_log: JmapChangeLog<u32>,
    pub(super) message_log: JmapChangeLog<u64>,
}

sim_account! { JmapAccount { JmapOperation => Result<JmapOperationOutcome, JmapOperationError>, JmapTruth } }

/// Returns the id by which clients know a message.
pub fn message_id(number: u64) -> String {
    format!("M{number}")
}

pub fn message_number(id: &str) -> Option<u64> {
    id.strip_prefix('M')?.parse().ok()
}

impl JmapAccount {
    pub fn new(seed: u64) -> Self {
        // Servers differ, and so do accounts.
        let order = if seed.is_multiple_of(2) { ChangeOrder::LastChange } else { ChangeOrder::Log };
        let mut account = Self {
            seed,
            rng: Rng::new(seed),
            folders: BTreeMap::new(),
            messages: BTreeMap::new(),
            next_folder: 1,
            next_message: 1,
            folder_log: JmapChangeLog::new(order),
            message_log: JmapChangeLog::new(order),
        };
        for (role, name) in MailboxRole::ALL {
            account.insert_folder(JmapFolder { name: name.to_owned(), parent: None, role: Some(role) });
        }
        account
    }

    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn with_role(&self, role: MailboxRole) -> u32 {
        let found = self.folders.iter().find(|(_, folder)| folder.role == Some(role));
        found.map_or(0, |(number, _)| *number)
    }

    pub(super) fn write(&mut self, letters: &LetterPool) -> Content {
        let message_id = format!("{:x}.{}@mail.jmap.example", self.seed, self.next_message);
        letters.write(&mut self.rng, &message_id)
    }

    pub(super) fn add(&mut self, message: JmapMessage) -> Result<u64, JmapOperationError> {
        if message.folders.is_empty() || message.folders.iter().any(|folder| !self.folders.contains_key(folder)) {
            return Err(JmapOperationError::NoFolder);
        }
        let number = self.next_message;
        self.next_message += 1;
        self.count(&message.folders);
        self.messages.insert(number, message);
        self.message_log.add(number, LoggedEvent::Created);
        Ok(number)
    }

    /// Changes folders or keywords of a message.
    pub(super) fn update(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut JmapMessage),
    ) -> Result<(), JmapOperationError> {
        let before = self.messages.get(&number).ok_or(JmapOperationError::NoMessage)?;
        let mut message = before.clone();
        change(&mut message);
        if message.folders.is_empty() || message.folders.iter().any(|folder| !self.folders.contains_key(folder)) {
            return Err(JmapOperationError::NoFolder);
        }
        let touched = before.folders.union(&message.folders).copied().collect();
        self.messages.insert(number, message);
        self.count(&touched);
        self.message_log.add(number, LoggedEvent::Updated);
        Ok(())
    }

    pub(super) fn destroy(&mut self, number: u64) -> Result<(), JmapOperationError> {
        let message = self.messages.remove(&number).ok_or(JmapOperationError::NoMessage)?;
        self.count(&message.folders);
        self.message_log.add(number, LoggedEvent::Destroyed);
        Ok(())
    }

    pub(super) fn create_folder(&mut self, name: &str, parent: Option<u32>) -> Result<u32, JmapOperationError> {
        self.check_name(name, parent)?;
        Ok(self.insert_folder(JmapFolder { name: name.to_owned(), parent, role: None }))
    }

    /// Gives a folder another name, and another place.
    pub(super) fn rename_folder(
        &mut self,
        number: u32,
        name: &str,
        parent: Option<u32>,
    ) -> Result<(), JmapOperationError> {
        self.check_own(number)?;
        self.check_name(name, parent)?;
        if self.above(parent).contains(&number) {
            return Err(JmapOperationError::Taken);
        }
        self.folders.insert(number, JmapFolder { name: name.to_owned(), parent, role: None });
        self.folder_log.add(number, LoggedEvent::Updated);
        Ok(())
    }

    /// Deletes a folder without folders below it. Messages that are in no other folder are destroyed.
    pub(super) fn delete_folder(&mut self, number: u32) -> Result<(), JmapOperationError> {
        self.check_own(number)?;
        if self.folders.values().any(|folder| folder.parent == Some(number)) {
            return Err(JmapOperationError::HasRole);
        }
        let held = self.messages.iter().filter(|(_, message)| message.folders.contains(&number));
        let held: Vec<(u64, usize)> = held.map(|(message, is)| (*message, is.folders.len())).collect();
        for (message, folders) in held {
            if folders == 1 {
                self.destroy(message)?;
            } else {
                self.update(message, |message| {
                    message.folders.remove(&number);
                })?;
            }
        }
        self.folders.remove(&number);
        self.folder_log.add(number, LoggedEvent::Destroyed);
        Ok(())
    }

    pub(super) fn expire_states(&mut self) {
        self.message_log.forget();
        self.folder_log.forget();
        // The states move on, so that those of new clients are later.
        let inbox = self.with_role(MailboxRole::Inbox);
        self.folder_log.add(inbox, LoggedEvent::Counted);
        if let Some(number) = self.messages.keys().next().copied() {
            self.message_log.add(number, LoggedEvent::Updated);
        }
    }

    /// Takes the states back, as those of a server that was restored from a backup. Folders and messages stay.
    pub(super) fn rewind_states(&mut self) {
        self.message_log.rewind();
        self.folder_log.rewind();
    }

    /// Returns the full name of a folder.
    pub(super) fn path(&self, number: u32) -> String {
        let above = self.above(Some(number));
        let names: Vec<&str> = above.iter().rev().map(|number| self.folders[number].name.as_str()).collect();
        names.join("/")
    }

    /// Returns a folder and all above it.
    fn above(&self, from: Option<u32>) -> Vec<u32> {
        std::iter::successors(from, |number| self.folders.get(number).and_then(|folder| folder.parent)).collect()
    }

    fn check_own(&self, number: u32) -> Result<(), JmapOperationError> {
        match self.folders.get(&number) {
            None => Err(JmapOperationError::NoFolder),
            Some(folder) if folder.role.is_some() => Err(JmapOperationError::HasRole),
            Some(_) => Ok(()),
        }
    }

    fn check_name(&self, name: &str, parent: Option<u32>) -> Result<(), JmapOperationError> {
        if parent.is_some_and(|parent| !self.folders.contains_key(&parent)) {
            return Err(JmapOperationError::NoFolder);
        }
        let is_taken = self.folders.values().any(|folder| folder.parent == parent && folder.name == name);
        if is_taken || name.is_empty() { Err(JmapOperationError::Taken) } else { Ok(()) }
    }

    fn insert_folder(&mut self, folder: JmapFolder) -> u32 {
        let number = self.next_folder;
        self.next_folder += 1;
        self.folders.insert(number, folder);
        self.folder_log.add(number, LoggedEvent::Created);
        number
    }

    fn count(&mut self, folders: &BTreeSet<u32>) {
        for folder in folders {
            self.folder_log.add(*folder, LoggedEvent::Counted);
        }
    }
}

/// Returns a time as JMAP has it.
pub fn utc_date(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}
