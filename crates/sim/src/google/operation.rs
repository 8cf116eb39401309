//! Scripted operations on a mailbox.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::{GmailAccount, GmailOperationError, NewGmailMessage};
use super::labels::LabelId;
pub use crate::letter_pool::RawBytes;
use crate::letter_pool::{Content, LetterPool};

/// A scripted operation on a mailbox. Labels are given by id or name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum GmailOperation {
    /// Delivers mail: to the inbox, unread, unless labels are given.
    Deliver {
        labels: Option<Vec<String>>,
        /// The number of messages; by default one.
        count: Option<usize>,
        /// A message whose conversation the new one continues.
        reply_to: Option<String>,
        /// The raw message. `None`: a random letter of the pool.
        raw: Option<RawBytes>,
        received_at: Option<Timestamp>,
    },
    /// Adds and removes labels.
    Label {
        message: String,
        #[serde(default)]
        add: Vec<String>,
        #[serde(default)]
        remove: Vec<String>,
    },
    Trash {
        message: String,
    },
    Untrash {
        message: String,
    },
    Spam {
        message: String,
    },
    Unspam {
        message: String,
    },
    /// Creates a draft, or replaces one. As at Gmail, an edited draft is a new message and the old one is deleted.
    Draft {
        message: Option<String>,
    },
    /// Deletes the message for good.
    Delete {
        message: String,
    },
    CreateLabel {
        name: String,
    },
    RenameLabel {
        label: String,
        name: String,
    },
    /// Deletes a label and removes it from its messages; if `silently`, the history does not show it.
    DeleteLabel {
        label: String,
        #[serde(default)]
        silently: bool,
    },
    /// Expires every history id up to now.
    ExpireHistory,
}

impl GmailOperation {
    /// Delivers one letter to the inbox.
    pub fn deliver() -> Self {
        Self::Deliver { labels: None, count: None, reply_to: None, raw: None, received_at: None }
    }

    /// Delivers these bytes to the inbox.
    pub fn deliver_bytes(raw: impl Into<Bytes>) -> Self {
        Self::Deliver { labels: None, count: None, reply_to: None, raw: Some(RawBytes(raw.into())), received_at: None }
    }
}

/// The result of a scripted operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GmailOperationOutcome {
    /// Ids of added messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The mailbox's history id after the operation.
    pub history_id: String,
}

impl GmailAccount {
    pub fn apply(
        &mut self,
        operation: GmailOperation,
        letters: &LetterPool,
        now: Timestamp,
    ) -> Result<GmailOperationOutcome, GmailOperationError> {
        let mut applied = GmailOperationOutcome::default();
        match operation {
            GmailOperation::Deliver { labels, count, reply_to, raw, received_at } => {
                let labels = match labels {
                    Some(labels) => self.labels_of(&labels)?,
                    None => vec![LabelId::INBOX, LabelId::UNREAD],
                };
                let thread = reply_to.map(|id| self.thread_of(&id)).transpose()?;
                let at = received_at.unwrap_or(now);
                for _ in 0..count.unwrap_or(1) {
                    let content = match &raw {
                        Some(raw) => Content::Own(raw.0.clone()),
                        None => self.write(letters),
                    };
                    let added = self.add(NewGmailMessage {
                        content,
                        labels: labels.clone(),
                        internal_date: at.as_millisecond(),
                        thread,
                    });
                    applied.messages.push(self.id(added));
                }
            }
            GmailOperation::Draft { message } => applied.messages.push(self.draft(message.as_deref(), letters, now)?),
            GmailOperation::CreateLabel { name } => {
                applied.label = Some(self.labels.create(name).ok_or(GmailOperationError::LabelStays)?.to_string());
            }
            GmailOperation::RenameLabel { label, name } => {
                let label = self.labels.find(&label).ok_or(GmailOperationError::NoLabel)?;
                if self.labels.find(&name).is_some_and(|other| other != label) || !self.labels.rename(label, name) {
                    return Err(GmailOperationError::LabelStays);
                }
            }
            GmailOperation::DeleteLabel { label, silently } => {
                let label = self.labels.find(&label).ok_or(GmailOperationError::NoLabel)?;
                self.delete_label(label, silently)?;
            }
            GmailOperation::ExpireHistory => self.history.expire(&mut self.rng),
            GmailOperation::Delete { message } => self.delete(self.number_of(&message)?)?,
            other => self.relabel(&other)?,
        }
        applied.history_id = self.history_id().to_string();
        Ok(applied)
    }

    /// Applies operations that change only a message's labels.
    fn relabel(&mut self, operation: &GmailOperation) -> Result<(), GmailOperationError> {
        let (message, add, remove) = match operation {
            GmailOperation::Label { message, add, remove } => (message, self.labels_of(add)?, self.labels_of(remove)?),
            GmailOperation::Trash { message } => (message, vec![LabelId::TRASH], vec![LabelId::INBOX, LabelId::SPAM]),
            GmailOperation::Untrash { message } => (message, vec![LabelId::INBOX], vec![LabelId::TRASH]),
            GmailOperation::Spam { message } => (message, vec![LabelId::SPAM], vec![LabelId::INBOX, LabelId::TRASH]),
            GmailOperation::Unspam { message } => (message, vec![LabelId::INBOX], vec![LabelId::SPAM]),
            _ => return Ok(()),
        };
        let number = self.number_of(message)?;
        self.modify(number, &add, &remove).map(|_| ())
    }

    pub(super) fn draft(
        &mut self,
        old: Option<&str>,
        letters: &LetterPool,
        now: Timestamp,
    ) -> Result<String, GmailOperationError> {
        let mut thread = None;
        if let Some(old) = old {
            let number = self.number_of(old)?;
            if !self.messages[&number].labels.contains(&LabelId::DRAFT) {
                return Err(GmailOperationError::NotADraft);
            }
            thread = Some(self.messages[&number].thread);
            self.delete(number)?;
        }
        let content = self.write(letters);
        let labels = vec![LabelId::DRAFT];
        let added = self.add(NewGmailMessage { content, labels, internal_date: now.as_millisecond(), thread });
        Ok(self.id(added))
    }

    fn number_of(&self, id: &str) -> Result<u64, GmailOperationError> {
        self.find(id).ok_or(GmailOperationError::NoMessage)
    }

    fn thread_of(&self, id: &str) -> Result<u64, GmailOperationError> {
        Ok(self.messages[&self.number_of(id)?].thread)
    }

    fn labels_of(&self, labels: &[String]) -> Result<Vec<LabelId>, GmailOperationError> {
        labels.iter().map(|label| self.labels.find(label).ok_or(GmailOperationError::NoLabel)).collect()
    }
}
