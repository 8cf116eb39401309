//! What a script does to a mailbox.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::{Account, New, Refused};
use super::labels::LabelId;
pub use crate::letters::RawBytes;
use crate::letters::{Content, Letters};

/// Labels are ids or names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Mail comes: to the inbox, unread, unless labels are given.
    Deliver {
        labels: Option<Vec<String>>,
        /// How many; one unless it is said.
        count: Option<usize>,
        /// A message whose conversation it continues.
        reply_to: Option<String>,
        /// The bytes; nothing: some letter.
        raw: Option<RawBytes>,
        received_at: Option<Timestamp>,
    },
    /// Labels come and go.
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
    /// A draft, or with a message another text for it. That is another message, as at Gmail: the old one is gone.
    Draft {
        message: Option<String>,
    },
    /// For good.
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
    /// It is taken off its messages; silently, if asked, so that only the list of labels tells it.
    DeleteLabel {
        label: String,
        #[serde(default)]
        silently: bool,
    },
    /// Every history id from before now has expired.
    ExpireHistory,
}

impl Operation {
    /// One letter to the inbox.
    pub fn deliver() -> Self {
        Self::Deliver { labels: None, count: None, reply_to: None, raw: None, received_at: None }
    }

    /// These bytes to the inbox.
    pub fn deliver_bytes(raw: impl Into<Bytes>) -> Self {
        Self::Deliver { labels: None, count: None, reply_to: None, raw: Some(RawBytes(raw.into())), received_at: None }
    }
}

/// What an operation made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Ids of messages that it added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The mailbox's, afterwards.
    pub history_id: String,
}

impl Account {
    pub fn apply(&mut self, operation: Operation, letters: &Letters, now: Timestamp) -> Result<Applied, Refused> {
        let mut applied = Applied::default();
        match operation {
            Operation::Deliver { labels, count, reply_to, raw, received_at } => {
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
                    let added =
                        self.add(New { content, labels: labels.clone(), internal_date: at.as_millisecond(), thread });
                    applied.messages.push(self.id(added));
                }
            }
            Operation::Draft { message } => applied.messages.push(self.draft(message.as_deref(), letters, now)?),
            Operation::CreateLabel { name } => {
                applied.label = Some(self.labels.create(name).ok_or(Refused::LabelStays)?.to_string());
            }
            Operation::RenameLabel { label, name } => {
                let label = self.labels.find(&label).ok_or(Refused::NoLabel)?;
                if self.labels.find(&name).is_some_and(|other| other != label) || !self.labels.rename(label, name) {
                    return Err(Refused::LabelStays);
                }
            }
            Operation::DeleteLabel { label, silently } => {
                let label = self.labels.find(&label).ok_or(Refused::NoLabel)?;
                self.delete_label(label, silently)?;
            }
            Operation::ExpireHistory => self.history.expire(&mut self.rng),
            Operation::Delete { message } => self.delete(self.number_of(&message)?)?,
            other => self.relabel(&other)?,
        }
        applied.history_id = self.history_id().to_string();
        Ok(applied)
    }

    /// What changes nothing but a message's labels.
    fn relabel(&mut self, operation: &Operation) -> Result<(), Refused> {
        let (message, add, remove) = match operation {
            Operation::Label { message, add, remove } => (message, self.labels_of(add)?, self.labels_of(remove)?),
            Operation::Trash { message } => (message, vec![LabelId::TRASH], vec![LabelId::INBOX, LabelId::SPAM]),
            Operation::Untrash { message } => (message, vec![LabelId::INBOX], vec![LabelId::TRASH]),
            Operation::Spam { message } => (message, vec![LabelId::SPAM], vec![LabelId::INBOX, LabelId::TRASH]),
            Operation::Unspam { message } => (message, vec![LabelId::INBOX], vec![LabelId::SPAM]),
            _ => return Ok(()),
        };
        let number = self.number_of(message)?;
        self.modify(number, &add, &remove).map(|_| ())
    }

    pub(super) fn draft(&mut self, old: Option<&str>, letters: &Letters, now: Timestamp) -> Result<String, Refused> {
        let mut thread = None;
        if let Some(old) = old {
            let number = self.number_of(old)?;
            if !self.messages[&number].labels.contains(&LabelId::DRAFT) {
                return Err(Refused::NotADraft);
            }
            thread = Some(self.messages[&number].thread);
            self.delete(number)?;
        }
        let content = self.write(letters);
        let labels = vec![LabelId::DRAFT];
        let added = self.add(New { content, labels, internal_date: now.as_millisecond(), thread });
        Ok(self.id(added))
    }

    fn number_of(&self, id: &str) -> Result<u64, Refused> {
        self.find(id).ok_or(Refused::NoMessage)
    }

    fn thread_of(&self, id: &str) -> Result<u64, Refused> {
        Ok(self.messages[&self.number_of(id)?].thread)
    }

    fn labels_of(&self, labels: &[String]) -> Result<Vec<LabelId>, Refused> {
        labels.iter().map(|label| self.labels.find(label).ok_or(Refused::NoLabel)).collect()
    }
}
