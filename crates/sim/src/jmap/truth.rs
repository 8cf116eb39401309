//! The ground truth of an account, for comparison with what a client has synced.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::{JmapAccount, JmapMessage, message_id};
use super::folders::{MailboxRole, folder_id};
use crate::letter_pool::LetterPool;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JmapTruth {
    /// By id.
    pub folders: BTreeMap<String, JmapFolderTruth>,
    /// By id.
    pub messages: BTreeMap<String, JmapMessageTruth>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JmapFolderTruth {
    /// With those above it.
    pub name: String,
    pub role: Option<MailboxRole>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JmapMessageTruth {
    /// Ids of its folders.
    pub folders: Vec<String>,
    pub keywords: Vec<String>,
    /// Seconds since 1970.
    pub received: i64,
    pub size: usize,
    pub sha256: String,
}

impl JmapAccount {
    pub fn truth(&self, letters: &LetterPool) -> JmapTruth {
        let folders = self.folders.iter().map(|(number, folder)| {
            (folder_id(*number), JmapFolderTruth { name: self.path(*number), role: folder.role })
        });
        let messages = self.messages.iter();
        JmapTruth {
            folders: folders.collect(),
            messages: messages
                .map(|(number, message)| (message_id(*number), message_truth(message, letters)))
                .collect(),
        }
    }
}

fn message_truth(message: &JmapMessage, letters: &LetterPool) -> JmapMessageTruth {
    JmapMessageTruth {
        folders: message.folders.iter().map(|folder| folder_id(*folder)).collect(),
        keywords: message.keywords.iter().cloned().collect(),
        received: message.received,
        size: letters.size(&message.content),
        sha256: letters.sha256(&message.content),
    }
}
