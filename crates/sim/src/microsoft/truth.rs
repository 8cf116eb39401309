//! The ground truth of a mailbox, for comparison with what a client has synced.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::{GraphMessage, OutlookAccount};
use super::folders::OutlookFolder;
use crate::letter_pool::LetterPool;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutlookTruth {
    /// By id, the root excluded.
    pub folders: BTreeMap<String, OutlookFolderTruth>,
    /// By immutable id.
    pub messages: BTreeMap<String, OutlookMessageTruth>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutlookFolderTruth {
    /// The path below the root, separated by slashes.
    pub path: String,
    pub well_known: Option<String>,
    pub is_hidden: bool,
    /// Whether the folder is a search folder, which shows messages of other folders.
    pub is_search: bool,
    pub messages: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutlookMessageTruth {
    pub folder_id: String,
    pub folder: String,
    pub is_read: bool,
    pub is_flagged: bool,
    pub is_draft: bool,
    /// Seconds since 1970.
    pub received: i64,
    pub conversation_id: String,
    pub change_key: String,
    pub size: usize,
    /// SHA-256 of the raw message, as `$value` returns it.
    pub sha256: String,
}

impl OutlookAccount {
    pub fn truth(&self, letters: &LetterPool) -> OutlookTruth {
        let paths: FolderPaths = self.folders.keys().map(|number| (*number, self.path(*number))).collect();
        let folders = self.folders.iter().filter(|(_, folder)| folder.parent.is_some());
        let messages = self.messages.iter();
        OutlookTruth {
            folders: folders
                .map(|(number, folder)| (self.folder_id(*number), folder_truth(paths[number].clone(), folder)))
                .collect(),
            messages: messages
                .map(|(number, message)| {
                    (self.message_id(*number, true), self.message_truth(*number, message, &paths, letters))
                })
                .collect(),
        }
    }

    fn message_truth(
        &self,
        number: u64,
        message: &GraphMessage,
        paths: &FolderPaths,
        letters: &LetterPool,
    ) -> OutlookMessageTruth {
        OutlookMessageTruth {
            folder_id: self.folder_id(message.folder),
            folder: paths.get(&message.folder).cloned().unwrap_or_default(),
            is_read: message.is_read,
            is_flagged: message.is_flagged,
            is_draft: message.is_draft,
            received: message.received,
            conversation_id: self.conversation_id(message.thread),
            change_key: self.change_key(number),
            size: letters.size(&message.content),
            sha256: letters.sha256(&message.content),
        }
    }
}

/// Paths of folders by number.
type FolderPaths = BTreeMap<u32, String>;

fn folder_truth(path: String, folder: &OutlookFolder) -> OutlookFolderTruth {
    OutlookFolderTruth {
        path,
        well_known: folder.well_known.map(str::to_owned),
        is_hidden: folder.is_hidden,
        is_search: folder.is_search,
        messages: folder.by_date.len(),
    }
}
