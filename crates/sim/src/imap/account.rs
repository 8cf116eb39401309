//! One mailbox: folders, the messages in them, and what changed when. Nothing here reads a clock or a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use super::folders::{DELIMITER, Folder, Role};
use crate::letters::{Content, Letters};
use crate::mail::rng::Rng;

#[derive(Debug, Clone)]
pub struct Message {
    /// The same for all copies of it (OBJECTID).
    pub email: u64,
    pub thread: u64,
    pub flags: BTreeSet<String>,
    /// Seconds since 1970.
    pub received: i64,
    /// When it last changed, counted in changes to the mailbox.
    pub modseq: u64,
    pub content: Content,
}

/// Why an operation cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    NoAccount,
    NoFolder,
    NoMessage,
    /// There is a folder of this name.
    Taken,
    /// Folders with a role stay, and stay what they are.
    HasRole,
}

impl fmt::Display for Refused {
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
pub struct Account {
    seed: u64,
    pub(super) rng: Rng,
    /// By a number that only we know.
    pub(super) folders: BTreeMap<u32, Folder>,
    next_folder: u32,
    next_validity: u32,
    next_email: u64,
    modseq: u64,
}

/// A message to be added.
#[derive(Debug)]
pub struct New {
    pub content: Content,
    pub flags: BTreeSet<String>,
    pub received: i64,
}

impl Account {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut account = Self {
            seed,
            next_folder: 1,
            // A time, as servers take it; each folder has another one.
            next_validity: 1_600_000_000 + rng.below(100_000_000) as u32,
            next_email: 1,
            modseq: 1_000 + rng.below(100_000) as u64,
            rng,
            folders: BTreeMap::new(),
        };
        for (role, name) in Role::ALL {
            account.insert_folder(name, Some(role));
        }
        account
    }

    pub fn message_count(&self) -> usize {
        self.folders.values().map(|folder| folder.messages.len()).sum()
    }

    pub fn email_id(&self, message: &Message) -> String {
        format!("M{:08x}{:012x}", self.seed as u32, message.email)
    }

    pub fn thread_id(&self, message: &Message) -> String {
        format!("T{:08x}{:012x}", self.seed as u32, message.thread)
    }

    /// One more change.
    pub(super) fn tick(&mut self) -> u64 {
        self.modseq += 1;
        self.modseq
    }

    pub fn modseq(&self) -> u64 {
        self.modseq
    }

    /// By name; the inbox in any case.
    pub fn find(&self, name: &str) -> Option<u32> {
        let is_it = |folder: &Folder| {
            folder.name == name || folder.role == Some(Role::Inbox) && name.eq_ignore_ascii_case("INBOX")
        };
        self.folders.iter().find(|(_, folder)| is_it(folder)).map(|(number, _)| *number)
    }

    pub fn with_role(&self, role: Role) -> u32 {
        let found = self.folders.iter().find(|(_, folder)| folder.role == Some(role));
        found.map_or(0, |(number, _)| *number)
    }

    pub(super) fn write(&mut self, letters: &Letters) -> Content {
        let message_id = format!("{:x}.{}.{}@mail.imap.example", self.seed, self.next_email, self.modseq);
        letters.write(&mut self.rng, &message_id)
    }

    pub(super) fn add(&mut self, folder: u32, new: New) -> Result<u32, Refused> {
        let (email, modseq) = (self.next_email, self.modseq + 1);
        let found = self.folders.get_mut(&folder).ok_or(Refused::NoFolder)?;
        let New { content, flags, received } = new;
        let uid = found.put(Message { email, thread: email, flags, received, modseq, content });
        self.next_email += 1;
        self.tick();
        Ok(uid)
    }

    pub(super) fn set_flags(
        &mut self,
        folder: u32,
        uid: u32,
        change: impl FnOnce(&mut BTreeSet<String>),
    ) -> Result<(), Refused> {
        let modseq = self.modseq + 1;
        let found = self.folders.get_mut(&folder).ok_or(Refused::NoFolder)?;
        let message = found.messages.get_mut(&uid).ok_or(Refused::NoMessage)?;
        let before = message.flags.clone();
        change(&mut message.flags);
        if message.flags != before {
            message.modseq = modseq;
            found.highest_modseq = modseq;
            self.tick();
        }
        Ok(())
    }

    pub(super) fn copy(&mut self, from: u32, uid: u32, to: u32) -> Result<u32, Refused> {
        let message = self.folders.get(&from).ok_or(Refused::NoFolder)?.messages.get(&uid);
        let mut message = message.ok_or(Refused::NoMessage)?.clone();
        message.modseq = self.modseq + 1;
        let uid = self.folders.get_mut(&to).ok_or(Refused::NoFolder)?.put(message);
        self.tick();
        Ok(uid)
    }

    pub(super) fn move_message(&mut self, from: u32, uid: u32, to: u32) -> Result<u32, Refused> {
        let copied = self.copy(from, uid, to)?;
        self.expunge(from, uid)?;
        Ok(copied)
    }

    pub(super) fn expunge(&mut self, folder: u32, uid: u32) -> Result<(), Refused> {
        let modseq = self.modseq + 1;
        let found = self.folders.get_mut(&folder).ok_or(Refused::NoFolder)?;
        found.take(uid, modseq).ok_or(Refused::NoMessage)?;
        self.tick();
        Ok(())
    }

    /// With those above it that are missing.
    pub(super) fn create_folder(&mut self, name: &str) -> Result<u32, Refused> {
        let name = name.trim_end_matches(DELIMITER);
        if name.is_empty() || self.find(name).is_some() {
            return Err(Refused::Taken);
        }
        for (at, _) in name.match_indices(DELIMITER) {
            if self.find(&name[..at]).is_none() {
                self.insert_folder(&name[..at], None);
            }
        }
        Ok(self.insert_folder(name, None))
    }

    /// With those below it.
    pub(super) fn rename_folder(&mut self, folder: u32, name: &str) -> Result<(), Refused> {
        let old = self.own(folder)?.name.clone();
        let is_inside = name.strip_prefix(&old).is_some_and(|rest| rest.starts_with(DELIMITER));
        if name.is_empty() || self.find(name).is_some() || is_inside {
            return Err(Refused::Taken);
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

    /// With what is in it; those below stay.
    pub(super) fn delete_folder(&mut self, folder: u32) -> Result<(), Refused> {
        self.own(folder)?;
        self.folders.remove(&folder);
        self.tick();
        Ok(())
    }

    pub(super) fn renumber(&mut self, folder: u32) -> Result<(), Refused> {
        let (validity, modseq) = (self.validity(), self.tick());
        self.folders.get_mut(&folder).ok_or(Refused::NoFolder)?.renumber(validity, modseq);
        Ok(())
    }

    fn own(&self, folder: u32) -> Result<&Folder, Refused> {
        let found = self.folders.get(&folder).ok_or(Refused::NoFolder)?;
        if found.role.is_some() { Err(Refused::HasRole) } else { Ok(found) }
    }

    fn validity(&mut self) -> u32 {
        self.next_validity += 1 + self.rng.below(1_000) as u32;
        self.next_validity
    }

    fn insert_folder(&mut self, name: &str, role: Option<Role>) -> u32 {
        let (number, validity, modseq) = (self.next_folder, self.validity(), self.tick());
        self.next_folder += 1;
        let id = format!("F{:08x}{number:06x}", self.seed as u32);
        self.folders.insert(number, Folder::new(name, role, id, validity, modseq));
        number
    }
}

/// A time as messages keep it.
pub fn seconds(at: Timestamp) -> i64 {
    at.as_second()
}
