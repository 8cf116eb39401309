//! Scripted operations on an account.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::{JmapAccount, JmapMessage, JmapOperationError, message_id, message_number};
use super::folders::{MailboxRole, folder_id, folder_number};
use crate::letter_pool::{Content, LetterPool, RawBytes};

/// A scripted operation on an account. Folders and messages are given by id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum JmapOperation {
    /// Delivers mail, by default to the inbox.
    Deliver {
        folder: Option<String>,
        /// The number of messages; by default one.
        count: Option<usize>,
        /// The raw message. `None`: a random letter of the pool.
        raw: Option<RawBytes>,
        received_at: Option<Timestamp>,
        #[serde(default)]
        keywords: Vec<String>,
    },
    /// Replaces the folders of a message.
    SetFolders {
        message: String,
        folders: Vec<String>,
    },
    /// Replaces the keywords of a message.
    SetKeywords {
        message: String,
        keywords: Vec<String>,
    },
    Destroy {
        message: String,
    },
    CreateFolder {
        name: String,
        parent: Option<String>,
    },
    RenameFolder {
        folder: String,
        name: String,
        parent: Option<String>,
    },
    /// Deletes a folder with its messages.
    DeleteFolder {
        folder: String,
    },
    /// Makes the server forget which changes there were since any state.
    ExpireStates,
    /// Takes the states back, as those of a server that was restored from a backup.
    RewindStates,
}

impl JmapOperation {
    /// Delivers letters of the pool to the inbox.
    pub fn deliver(count: usize) -> Self {
        Self::Deliver { folder: None, count: Some(count), raw: None, received_at: None, keywords: Vec::new() }
    }
}

/// The result of a scripted operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JmapOperationOutcome {
    /// Ids of added messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// Id of the added folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl JmapAccount {
    pub fn apply(
        &mut self,
        operation: JmapOperation,
        letters: &LetterPool,
        now: Timestamp,
    ) -> Result<JmapOperationOutcome, JmapOperationError> {
        let mut outcome = JmapOperationOutcome::default();
        match operation {
            JmapOperation::Deliver { folder, count, raw, received_at, keywords } => {
                let inbox = self.with_role(MailboxRole::Inbox);
                let folder = folder.map_or(Ok(inbox), |folder| numbered_folder(&folder))?;
                for _ in 0..count.unwrap_or(1) {
                    let content = match &raw {
                        Some(raw) => Content::Own(raw.0.clone()),
                        None => self.write(letters),
                    };
                    let number = self.add(JmapMessage {
                        folders: BTreeSet::from([folder]),
                        keywords: keywords.iter().cloned().collect(),
                        received: received_at.unwrap_or(now).as_second(),
                        content,
                    })?;
                    outcome.messages.push(message_id(number));
                }
            }
            JmapOperation::SetFolders { message, folders } => {
                let folders = folders.iter().map(|folder| numbered_folder(folder)).collect::<Result<_, _>>()?;
                self.update(numbered_message(&message)?, |message| message.folders = folders)?;
            }
            JmapOperation::SetKeywords { message, keywords } => {
                self.update(numbered_message(&message)?, |message| message.keywords = keywords.into_iter().collect())?;
            }
            JmapOperation::Destroy { message } => self.destroy(numbered_message(&message)?)?,
            JmapOperation::CreateFolder { name, parent } => {
                let parent = parent.as_deref().map(numbered_folder).transpose()?;
                outcome.folder = Some(folder_id(self.create_folder(&name, parent)?));
            }
            JmapOperation::RenameFolder { folder, name, parent } => {
                let parent = parent.as_deref().map(numbered_folder).transpose()?;
                self.rename_folder(numbered_folder(&folder)?, &name, parent)?;
            }
            JmapOperation::DeleteFolder { folder } => self.delete_folder(numbered_folder(&folder)?)?,
            JmapOperation::ExpireStates => self.expire_states(),
            JmapOperation::RewindStates => self.rewind_states(),
        }
        Ok(outcome)
    }
}

fn numbered_folder(id: &str) -> Result<u32, JmapOperationError> {
    folder_number(id).ok_or(JmapOperationError::NoFolder)
}

fn numbered_message(id: &str) -> Result<u64, JmapOperationError> {
    message_number(id).ok_or(JmapOperationError::NoMessage)
}
