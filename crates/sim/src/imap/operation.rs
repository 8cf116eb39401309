//! Scripted operations on a mailbox.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::{ImapAccount, ImapOperationError, NewImapMessage, seconds};
use super::folders::SpecialUse;
use crate::letter_pool::{Content, LetterPool, RawBytes};

/// A scripted operation on a mailbox. Folders are given by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum ImapOperation {
    /// Delivers mail, by default to the inbox.
    Deliver {
        folder: Option<String>,
        /// The number of messages; by default one.
        count: Option<usize>,
        /// The raw message. `None`: a random letter of the pool.
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
    /// Replaces the flags.
    SetFlags {
        folder: String,
        uid: u32,
        flags: Vec<String>,
    },
    /// Deletes the message for good.
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
    /// Changes UIDVALIDITY and all UIDs.
    Renumber {
        folder: String,
    },
}

impl ImapOperation {
    /// Delivers one letter to the inbox.
    pub fn deliver() -> Self {
        Self::Deliver { folder: None, count: None, raw: None, received_at: None, flags: Vec::new() }
    }

    /// Delivers these bytes to the inbox.
    pub fn deliver_bytes(raw: impl Into<bytes::Bytes>) -> Self {
        let raw = Some(RawBytes(raw.into()));
        Self::Deliver { folder: None, count: None, raw, received_at: None, flags: Vec::new() }
    }
}

/// The result of a scripted operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImapOperationOutcome {
    /// UIDs of added messages, in the target folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uids: Vec<u32>,
}

impl ImapAccount {
    pub fn apply(
        &mut self,
        operation: ImapOperation,
        letters: &LetterPool,
        now: Timestamp,
    ) -> Result<ImapOperationOutcome, ImapOperationError> {
        let mut uids = Vec::new();
        match operation {
            ImapOperation::Deliver { folder, count, raw, received_at, flags } => {
                let folder = folder.map_or(Ok(self.with_role(SpecialUse::Inbox)), |folder| self.named(&folder))?;
                for _ in 0..count.unwrap_or(1) {
                    let content = match &raw {
                        Some(raw) => Content::Own(raw.0.clone()),
                        None => self.write(letters),
                    };
                    let received = seconds(received_at.unwrap_or(now));
                    let flags: BTreeSet<String> = flags.iter().cloned().collect();
                    uids.push(self.add(folder, NewImapMessage { content, flags, received })?);
                }
            }
            ImapOperation::Move { folder, uid, to } => {
                let (from, to) = (self.named(&folder)?, self.named(&to)?);
                uids.push(self.move_message(from, uid, to)?);
            }
            ImapOperation::Copy { folder, uid, to } => {
                let (from, to) = (self.named(&folder)?, self.named(&to)?);
                uids.push(self.copy(from, uid, to)?);
            }
            ImapOperation::SetFlags { folder, uid, flags } => {
                self.set_flags(self.named(&folder)?, uid, |own| *own = flags.into_iter().collect())?;
            }
            ImapOperation::Expunge { folder, uid } => self.expunge(self.named(&folder)?, uid)?,
            ImapOperation::CreateFolder { name } => drop(self.create_folder(&name)?),
            ImapOperation::RenameFolder { folder, name } => self.rename_folder(self.named(&folder)?, &name)?,
            ImapOperation::DeleteFolder { folder } => self.delete_folder(self.named(&folder)?)?,
            ImapOperation::Renumber { folder } => self.renumber(self.named(&folder)?)?,
        }
        Ok(ImapOperationOutcome { uids })
    }

    fn named(&self, name: &str) -> Result<u32, ImapOperationError> {
        self.find(name).ok_or(ImapOperationError::NoFolder)
    }
}
