//! Scripted operations on a mailbox.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::{NewOutlookMessage, OutlookAccount, OutlookOperationError};
use super::folders::{DELETED, DRAFTS, INBOX, ROOT, SENT};
use crate::letter_pool::{Content, LetterPool};

pub use crate::letter_pool::RawBytes;

/// A scripted operation on a mailbox. Folders are given by id or well-known name, messages by either kind of id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum OutlookOperation {
    /// Delivers mail: by default to the inbox, unread.
    Deliver {
        folder: Option<String>,
        /// The number of messages; by default one.
        count: Option<usize>,
        /// A message whose conversation the new one continues.
        reply_to: Option<String>,
        /// The raw message. `None`: a random letter of the pool.
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
    /// Moves a message to the deleted items.
    Delete {
        message: String,
    },
    /// Deletes the message for good.
    Purge {
        message: String,
    },
    Mark {
        message: String,
        read: Option<bool>,
        flagged: Option<bool>,
    },
    /// Creates a draft, or replaces the text of one under the same id.
    Draft {
        message: Option<String>,
        raw: Option<RawBytes>,
    },
    /// Sends a draft: moves it to the sent items.
    SendDraft {
        message: String,
    },
    CreateFolder {
        name: String,
        /// `None`: the root.
        parent: Option<String>,
    },
    RenameFolder {
        folder: String,
        name: String,
    },
    MoveFolder {
        folder: String,
        /// `None`: the root.
        parent: Option<String>,
    },
    /// Deletes a folder with its messages: into the deleted items, or for good.
    DeleteFolder {
        folder: String,
        #[serde(default)]
        purge: bool,
    },
    /// Deletes all messages of the folder for good.
    EmptyFolder {
        folder: String,
    },
    /// Expires all delta tokens up to now: of one folder, or of the mailbox.
    ExpireDelta {
        folder: Option<String>,
    },
}

impl OutlookOperation {
    /// Delivers one letter to the inbox.
    pub fn deliver() -> Self {
        Self::deliver_to("inbox")
    }

    pub fn deliver_to(folder: &str) -> Self {
        let folder = Some(folder.to_owned());
        Self::Deliver { folder, count: None, reply_to: None, raw: None, received_at: None, is_read: false }
    }

    /// Delivers `count` letters to the inbox.
    pub fn deliver_many(count: usize) -> Self {
        let count = Some(count);
        Self::Deliver { folder: None, count, reply_to: None, raw: None, received_at: None, is_read: false }
    }

    /// Delivers these bytes to the inbox.
    pub fn deliver_bytes(raw: impl Into<bytes::Bytes>) -> Self {
        let raw = Some(RawBytes(raw.into()));
        Self::Deliver { folder: None, count: None, reply_to: None, raw, received_at: None, is_read: false }
    }
}

/// The result of a scripted operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutlookOperationOutcome {
    /// Immutable ids of added and changed messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl OutlookAccount {
    pub fn apply(
        &mut self,
        operation: OutlookOperation,
        letters: &LetterPool,
        now: Timestamp,
    ) -> Result<OutlookOperationOutcome, OutlookOperationError> {
        let mut touched: Vec<u64> = Vec::new();
        let mut folder = None;
        match operation {
            OutlookOperation::Deliver { folder, count, reply_to, raw, received_at, is_read } => {
                let folder = folder.map_or(Ok(INBOX), |folder| self.mail_folder(&folder))?;
                let thread = reply_to.map(|id| self.number(&id).map(|number| self.messages[&number].thread));
                let thread = thread.transpose()?;
                for _ in 0..count.unwrap_or(1) {
                    let content = self.content(raw.as_ref(), letters);
                    let received = received_at.unwrap_or(now);
                    touched.push(
                        self.add(
                            NewOutlookMessage { content, folder, is_read, is_draft: false, received, thread },
                            now,
                        ),
                    );
                }
            }
            OutlookOperation::Move { message, folder } => {
                let (number, to) = (self.number(&message)?, self.mail_folder(&folder)?);
                self.move_message(number, to, now)?;
                touched.push(number);
            }
            OutlookOperation::Copy { message, folder } => {
                let (number, to) = (self.number(&message)?, self.mail_folder(&folder)?);
                touched.push(self.copy(number, to, now)?);
            }
            OutlookOperation::Delete { message } => {
                let number = self.number(&message)?;
                self.move_message(number, DELETED, now)?;
                touched.push(number);
            }
            OutlookOperation::Purge { message } => self.purge(self.number(&message)?)?,
            OutlookOperation::Mark { message, read, flagged } => {
                let number = self.number(&message)?;
                self.touch(number, now, |message| {
                    message.is_read = read.unwrap_or(message.is_read);
                    message.is_flagged = flagged.unwrap_or(message.is_flagged);
                })?;
                touched.push(number);
            }
            OutlookOperation::Draft { message, raw } => {
                touched.push(self.draft(message.as_deref(), raw.as_ref(), letters, now)?);
            }
            OutlookOperation::SendDraft { message } => touched.push(self.send_draft(&message, now)?),
            other => folder = self.apply_to_folder(&other)?,
        }
        Ok(OutlookOperationOutcome {
            messages: touched.into_iter().map(|number| self.message_id(number, true)).collect(),
            folder: folder.map(|number| self.folder_id(number)),
        })
    }

    /// Applies operations on folders.
    fn apply_to_folder(&mut self, operation: &OutlookOperation) -> Result<Option<u32>, OutlookOperationError> {
        match operation {
            OutlookOperation::CreateFolder { name, parent } => {
                let parent = self.folder_or_root(parent.as_deref())?;
                return self.create_folder(parent, name).map(Some);
            }
            OutlookOperation::RenameFolder { folder, name } => self.rename_folder(self.folder(folder)?, name)?,
            OutlookOperation::MoveFolder { folder, parent } => {
                let parent = self.folder_or_root(parent.as_deref())?;
                self.move_folder(self.folder(folder)?, parent)?;
            }
            OutlookOperation::DeleteFolder { folder, purge: false } => {
                self.move_folder(self.folder(folder)?, DELETED)?;
            }
            OutlookOperation::DeleteFolder { folder, purge: true } => self.purge_folder(self.folder(folder)?)?,
            OutlookOperation::EmptyFolder { folder } => self.empty_folder(self.folder(folder)?)?,
            OutlookOperation::ExpireDelta { folder } => {
                let folder = folder.as_deref().map(|folder| self.folder(folder)).transpose()?;
                self.expire(folder)?;
            }
            _ => {}
        }
        Ok(None)
    }

    fn content(&mut self, raw: Option<&RawBytes>, letters: &LetterPool) -> Content {
        match raw {
            Some(raw) => Content::Own(raw.0.clone()),
            None => self.write(letters),
        }
    }

    pub(super) fn copy(&mut self, number: u64, to: u32, now: Timestamp) -> Result<u64, OutlookOperationError> {
        let message = self.messages.get(&number).ok_or(OutlookOperationError::NoMessage)?;
        let new = NewOutlookMessage {
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
        letters: &LetterPool,
        now: Timestamp,
    ) -> Result<u64, OutlookOperationError> {
        let content = self.content(raw, letters);
        let Some(old) = old else {
            let new = NewOutlookMessage {
                content,
                folder: DRAFTS,
                is_read: true,
                is_draft: true,
                received: now,
                thread: None,
            };
            return Ok(self.add(new, now));
        };
        let number = self.drafted(old)?;
        self.touch(number, now, |message| message.content = content)?;
        Ok(number)
    }

    pub(super) fn send_draft(&mut self, message: &str, now: Timestamp) -> Result<u64, OutlookOperationError> {
        let number = self.drafted(message)?;
        self.touch(number, now, |message| {
            message.is_draft = false;
            message.received = now.as_second();
        })?;
        self.move_message(number, SENT, now)?;
        Ok(number)
    }

    fn drafted(&self, id: &str) -> Result<u64, OutlookOperationError> {
        let number = self.number(id)?;
        if self.messages[&number].is_draft { Ok(number) } else { Err(OutlookOperationError::NotADraft) }
    }

    fn number(&self, id: &str) -> Result<u64, OutlookOperationError> {
        self.find_message(id).map_err(|_| OutlookOperationError::NoMessage)
    }

    fn folder(&self, id: &str) -> Result<u32, OutlookOperationError> {
        self.find_folder(id).map_err(|_| OutlookOperationError::NoFolder)
    }

    fn folder_or_root(&self, id: Option<&str>) -> Result<u32, OutlookOperationError> {
        id.map_or(Ok(ROOT), |id| self.folder(id))
    }

    fn mail_folder(&self, id: &str) -> Result<u32, OutlookOperationError> {
        let number = self.folder(id)?;
        if self.folders[&number].holds_mail() { Ok(number) } else { Err(OutlookOperationError::NoFolder) }
    }
}
