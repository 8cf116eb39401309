//! What really is in a mailbox, for whoever wants to know whether all of it arrived.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::{Account, Message};
use crate::letters::Letters;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// By id, without the root.
    pub folders: BTreeMap<String, TruthFolder>,
    /// By immutable id.
    pub messages: BTreeMap<String, TruthMessage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthFolder {
    /// Names from below the root, with slashes between them.
    pub path: String,
    pub well_known: Option<String>,
    pub is_hidden: bool,
    /// It shows what lies elsewhere.
    pub is_search: bool,
    pub messages: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthMessage {
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
    /// Of the bytes that `$value` gives.
    pub sha256: String,
}

impl Account {
    pub fn truth(&self, letters: &Letters) -> Truth {
        let paths: BTreeMap<u32, String> = self.folders.keys().map(|number| (*number, self.path(*number))).collect();
        let folder = |(number, folder): (&u32, &super::folders::Folder)| {
            let truth = TruthFolder {
                path: paths[number].clone(),
                well_known: folder.well_known.map(str::to_owned),
                is_hidden: folder.is_hidden,
                is_search: folder.is_search,
                messages: folder.by_date.len(),
            };
            (self.folder_id(*number), truth)
        };
        let message = |(number, message): (&u64, &Message)| {
            let truth = TruthMessage {
                folder_id: self.folder_id(message.folder),
                folder: paths.get(&message.folder).cloned().unwrap_or_default(),
                is_read: message.is_read,
                is_flagged: message.is_flagged,
                is_draft: message.is_draft,
                received: message.received,
                conversation_id: self.conversation_id(message.thread),
                change_key: self.change_key(*number),
                size: letters.size(&message.content),
                sha256: letters.sha256(&message.content),
            };
            (self.message_id(*number, true), truth)
        };
        Truth {
            folders: self.folders.iter().filter(|(_, folder)| folder.parent.is_some()).map(folder).collect(),
            messages: self.messages.iter().map(message).collect(),
        }
    }
}
