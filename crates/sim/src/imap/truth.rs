//! The ground truth of a mailbox, for comparison with what a client has synced.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::{ImapAccount, ImapMessage};
use super::folders::{ImapFolder, SpecialUse};
use crate::letter_pool::LetterPool;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImapTruth {
    /// By name.
    pub folders: BTreeMap<String, ImapFolderTruth>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImapFolderTruth {
    pub id: String,
    pub role: Option<SpecialUse>,
    pub uid_validity: u32,
    pub uid_next: u32,
    pub highest_modseq: u64,
    /// By UID.
    pub messages: BTreeMap<u32, ImapMessageTruth>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImapMessageTruth {
    pub email_id: String,
    pub flags: Vec<String>,
    /// Seconds since 1970.
    pub received: i64,
    pub size: usize,
    pub sha256: String,
}

impl ImapAccount {
    pub fn truth(&self, letters: &LetterPool) -> ImapTruth {
        let folders = self.folders.values();
        ImapTruth { folders: folders.map(|folder| (folder.name.clone(), self.folder_truth(folder, letters))).collect() }
    }

    fn folder_truth(&self, folder: &ImapFolder, letters: &LetterPool) -> ImapFolderTruth {
        let messages = folder.messages.iter();
        ImapFolderTruth {
            id: folder.id.clone(),
            role: folder.role,
            uid_validity: folder.uid_validity,
            uid_next: folder.uid_next,
            highest_modseq: folder.highest_modseq,
            messages: messages.map(|(uid, message)| (*uid, self.message_truth(message, letters))).collect(),
        }
    }

    fn message_truth(&self, message: &ImapMessage, letters: &LetterPool) -> ImapMessageTruth {
        ImapMessageTruth {
            email_id: self.email_id(message),
            flags: message.flags.iter().cloned().collect(),
            received: message.received,
            size: letters.size(&message.content),
            sha256: letters.sha256(&message.content),
        }
    }
}
