//! What a script does to a mailbox.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::{Account, New, Refused};
use super::folders::{DELETED, DRAFTS, INBOX, ROOT, SENT};
use crate::letters::{Content, Letters};

pub use crate::letters::RawBytes;

/// Folders are ids or well-known names; messages are ids of either kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Mail comes: to the inbox, unread, unless it is said.
    Deliver {
        folder: Option<String>,
        /// How many; one unless it is said.
        count: Option<usize>,
        /// A message whose conversation it continues.
        reply_to: Option<String>,
        /// The bytes; nothing: some letter.
        raw: Option<RawBytes>,
        received_at: Option<Timestamp>,
        #[serde(default)]
        is_read: bool,
    },
    Move {
        message: String,
        folder: String,
    },
    Copy {
        message: String,
        folder: String,
    },
    /// To the deleted items.
    Delete {
        message: String,
    },
    /// For good.
    Purge {
        message: String,
    },
    Mark {
        message: String,
        read: Option<bool>,
        flagged: Option<bool>,
    },
    /// A draft, or with a message another text for it, under the same id.
    Draft {
        message: Option<String>,
        raw: Option<RawBytes>,
    },
    /// To the sent items.
    SendDraft {
        message: String,
    },
    CreateFolder {
        name: String,
        /// Nothing: below the root.
        parent: Option<String>,
    },
    RenameFolder {
        folder: String,
        name: String,
    },
    MoveFolder {
        folder: String,
        /// Nothing: below the root.
        parent: Option<String>,
    },
    /// With what is in it: below the deleted items, or for good.
    DeleteFolder {
        folder: String,
        #[serde(default)]
        purge: bool,
    },
    /// For good.
    EmptyFolder {
        folder: String,
    },
    /// Tokens of delta queries from before now have expired: of one folder's messages, or all.
    ExpireDelta {
        folder: Option<String>,
    },
}

impl Operation {
    /// One letter to the inbox.
    pub fn deliver() -> Self {
        Self::deliver_to("inbox")
    }

    pub fn deliver_to(folder: &str) -> Self {
        let folder = Some(folder.to_owned());
        Self::Deliver { folder, count: None, reply_to: None, raw: None, received_at: None, is_read: false }
    }

    /// So many letters to the inbox.
    pub fn deliver_many(count: usize) -> Self {
        let count = Some(count);
        Self::Deliver { folder: None, count, reply_to: None, raw: None, received_at: None, is_read: false }
    }

    /// These bytes to the inbox.
    pub fn deliver_bytes(raw: impl Into<bytes::Bytes>) -> Self {
        let raw = Some(RawBytes(raw.into()));
        Self::Deliver { folder: None, count: None, reply_to: None, raw, received_at: None, is_read: false }
    }
}

/// What an operation made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Immutable ids of messages that it added or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl Account {
    pub fn apply(&mut self, operation: Operation, letters: &Letters, now: Timestamp) -> Result<Applied, Refused> {
        let mut touched: Vec<u64> = Vec::new();
        let mut folder = None;
        match operation {
            Operation::Deliver { folder, count, reply_to, raw, received_at, is_read } => {
                let folder = folder.map_or(Ok(INBOX), |folder| self.mail_folder(&folder))?;
                let thread = reply_to.map(|id| self.number(&id).map(|number| self.messages[&number].thread));
                let thread = thread.transpose()?;
                for _ in 0..count.unwrap_or(1) {
                    let content = self.content(raw.as_ref(), letters);
                    let received = received_at.unwrap_or(now);
                    touched.push(self.add(New { content, folder, is_read, is_draft: false, received, thread }, now));
                }
            }
            Operation::Move { message, folder } => {
                let (number, to) = (self.number(&message)?, self.mail_folder(&folder)?);
                self.move_message(number, to, now)?;
                touched.push(number);
            }
            Operation::Copy { message, folder } => {
                let (number, to) = (self.number(&message)?, self.mail_folder(&folder)?);
                touched.push(self.copy(number, to, now)?);
            }
            Operation::Delete { message } => {
                let number = self.number(&message)?;
                self.move_message(number, DELETED, now)?;
                touched.push(number);
            }
            Operation::Purge { message } => self.purge(self.number(&message)?)?,
            Operation::Mark { message, read, flagged } => {
                let number = self.number(&message)?;
                self.touch(number, now, |message| {
                    message.is_read = read.unwrap_or(message.is_read);
                    message.is_flagged = flagged.unwrap_or(message.is_flagged);
                })?;
                touched.push(number);
            }
            Operation::Draft { message, raw } => {
                touched.push(self.draft(message.as_deref(), raw.as_ref(), letters, now)?);
            }
            Operation::SendDraft { message } => touched.push(self.send_draft(&message, now)?),
            other => folder = self.apply_to_folder(&other)?,
        }
        Ok(Applied {
            messages: touched.into_iter().map(|number| self.message_id(number, true)).collect(),
            folder: folder.map(|number| self.folder_id(number)),
        })
    }

    /// What is done to folders.
    fn apply_to_folder(&mut self, operation: &Operation) -> Result<Option<u32>, Refused> {
        let parent_of = |account: &Self, parent: &Option<String>| {
            parent.as_deref().map_or(Ok(ROOT), |parent| account.folder(parent))
        };
        match operation {
            Operation::CreateFolder { name, parent } => {
                let parent = parent_of(self, parent)?;
                return self.create_folder(parent, name).map(Some);
            }
            Operation::RenameFolder { folder, name } => self.rename_folder(self.folder(folder)?, name)?,
            Operation::MoveFolder { folder, parent } => {
                let parent = parent_of(self, parent)?;
                self.move_folder(self.folder(folder)?, parent)?;
            }
            Operation::DeleteFolder { folder, purge: false } => self.move_folder(self.folder(folder)?, DELETED)?,
            Operation::DeleteFolder { folder, purge: true } => self.purge_folder(self.folder(folder)?)?,
            Operation::EmptyFolder { folder } => self.empty_folder(self.folder(folder)?)?,
            Operation::ExpireDelta { folder } => {
                let folder = folder.as_deref().map(|folder| self.folder(folder)).transpose()?;
                self.expire(folder)?;
            }
            _ => {}
        }
        Ok(None)
    }

    fn content(&mut self, raw: Option<&RawBytes>, letters: &Letters) -> Content {
        match raw {
            Some(raw) => Content::Own(raw.0.clone()),
            None => self.write(letters),
        }
    }

    pub(super) fn copy(&mut self, number: u64, to: u32, now: Timestamp) -> Result<u64, Refused> {
        let message = self.messages.get(&number).ok_or(Refused::NoMessage)?;
        let new = New {
            content: message.content.clone(),
            folder: to,
            is_read: message.is_read,
            is_draft: message.is_draft,
            received: Timestamp::from_second(message.received).unwrap_or(now),
            thread: Some(message.thread),
        };
        Ok(self.add(new, now))
    }

    pub(super) fn draft(
        &mut self,
        old: Option<&str>,
        raw: Option<&RawBytes>,
        letters: &Letters,
        now: Timestamp,
    ) -> Result<u64, Refused> {
        let content = self.content(raw, letters);
        let Some(old) = old else {
            let new = New { content, folder: DRAFTS, is_read: true, is_draft: true, received: now, thread: None };
            return Ok(self.add(new, now));
        };
        let number = self.drafted(old)?;
        self.touch(number, now, |message| message.content = content)?;
        Ok(number)
    }

    pub(super) fn send_draft(&mut self, message: &str, now: Timestamp) -> Result<u64, Refused> {
        let number = self.drafted(message)?;
        self.touch(number, now, |message| {
            message.is_draft = false;
            message.received = now.as_second();
        })?;
        self.move_message(number, SENT, now)?;
        Ok(number)
    }

    fn drafted(&self, id: &str) -> Result<u64, Refused> {
        let number = self.number(id)?;
        if self.messages[&number].is_draft { Ok(number) } else { Err(Refused::NotADraft) }
    }

    fn number(&self, id: &str) -> Result<u64, Refused> {
        self.find_message(id).map_err(|_| Refused::NoMessage)
    }

    fn folder(&self, id: &str) -> Result<u32, Refused> {
        self.find_folder(id).map_err(|_| Refused::NoFolder)
    }

    fn mail_folder(&self, id: &str) -> Result<u32, Refused> {
        let number = self.folder(id)?;
        if self.folders[&number].holds_mail() { Ok(number) } else { Err(Refused::NoFolder) }
    }
}
