//! What a script does to a mailbox.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::{Account, New, Refused, seconds};
use super::folders::Role;
use crate::letters::{Content, Letters, RawBytes};

/// Folders are named as people see them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Mail comes: to the inbox, unless it is said.
    Deliver {
        folder: Option<String>,
        /// How many; one unless it is said.
        count: Option<usize>,
        /// The bytes; nothing: some letter.
        raw: Option<RawBytes>,
        received_at: Option<Timestamp>,
        #[serde(default)]
        flags: Vec<String>,
    },
    Move {
        folder: String,
        uid: u32,
        to: String,
    },
    Copy {
        folder: String,
        uid: u32,
        to: String,
    },
    /// These and no others.
    SetFlags {
        folder: String,
        uid: u32,
        flags: Vec<String>,
    },
    /// For good.
    Expunge {
        folder: String,
        uid: u32,
    },
    CreateFolder {
        name: String,
    },
    RenameFolder {
        folder: String,
        name: String,
    },
    DeleteFolder {
        folder: String,
    },
    /// Another UIDVALIDITY, and everything in it under other UIDs.
    Renumber {
        folder: String,
    },
}

impl Operation {
    /// One letter to the inbox.
    pub fn deliver() -> Self {
        Self::Deliver { folder: None, count: None, raw: None, received_at: None, flags: Vec::new() }
    }

    /// These bytes to the inbox.
    pub fn deliver_bytes(raw: impl Into<bytes::Bytes>) -> Self {
        let raw = Some(RawBytes(raw.into()));
        Self::Deliver { folder: None, count: None, raw, received_at: None, flags: Vec::new() }
    }
}

/// What an operation made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// UIDs of messages that it added, where it added them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uids: Vec<u32>,
}

impl Account {
    pub fn apply(&mut self, operation: Operation, letters: &Letters, now: Timestamp) -> Result<Applied, Refused> {
        let mut uids = Vec::new();
        match operation {
            Operation::Deliver { folder, count, raw, received_at, flags } => {
                let folder = folder.map_or(Ok(self.with_role(Role::Inbox)), |folder| self.named(&folder))?;
                for _ in 0..count.unwrap_or(1) {
                    let content = match &raw {
                        Some(raw) => Content::Own(raw.0.clone()),
                        None => self.write(letters),
                    };
                    let received = seconds(received_at.unwrap_or(now));
                    let flags: BTreeSet<String> = flags.iter().cloned().collect();
                    uids.push(self.add(folder, New { content, flags, received })?);
                }
            }
            Operation::Move { folder, uid, to } => {
                let (from, to) = (self.named(&folder)?, self.named(&to)?);
                uids.push(self.move_message(from, uid, to)?);
            }
            Operation::Copy { folder, uid, to } => {
                let (from, to) = (self.named(&folder)?, self.named(&to)?);
                uids.push(self.copy(from, uid, to)?);
            }
            Operation::SetFlags { folder, uid, flags } => {
                self.set_flags(self.named(&folder)?, uid, |own| *own = flags.into_iter().collect())?;
            }
            Operation::Expunge { folder, uid } => self.expunge(self.named(&folder)?, uid)?,
            Operation::CreateFolder { name } => drop(self.create_folder(&name)?),
            Operation::RenameFolder { folder, name } => self.rename_folder(self.named(&folder)?, &name)?,
            Operation::DeleteFolder { folder } => self.delete_folder(self.named(&folder)?)?,
            Operation::Renumber { folder } => self.renumber(self.named(&folder)?)?,
        }
        Ok(Applied { uids })
    }

    fn named(&self, name: &str) -> Result<u32, Refused> {
        self.find(name).ok_or(Refused::NoFolder)
    }
}
