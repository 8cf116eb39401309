//! What really is in a mailbox, for whoever wants to know whether all of it arrived.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::{Account, Message};
use super::folders::{Folder, Role};
use crate::letters::Letters;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// By name.
    pub folders: BTreeMap<String, TruthFolder>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthFolder {
    pub id: String,
    pub role: Option<Role>,
    pub uid_validity: u32,
    pub uid_next: u32,
    pub highest_modseq: u64,
    /// By UID.
    pub messages: BTreeMap<u32, TruthMessage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthMessage {
    pub email_id: String,
    pub flags: Vec<String>,
    /// Seconds since 1970.
    pub received: i64,
    pub size: usize,
    pub sha256: String,
}

impl Account {
    pub fn truth(&self, letters: &Letters) -> Truth {
        let message = |(uid, message): (&u32, &Message)| {
            let truth = TruthMessage {
                email_id: self.email_id(message),
                flags: message.flags.iter().cloned().collect(),
                received: message.received,
                size: letters.size(&message.content),
                sha256: letters.sha256(&message.content),
            };
            (*uid, truth)
        };
        let folder = |folder: &Folder| {
            let truth = TruthFolder {
                id: folder.id.clone(),
                role: folder.role,
                uid_validity: folder.uid_validity,
                uid_next: folder.uid_next,
                highest_modseq: folder.highest_modseq,
                messages: folder.messages.iter().map(message).collect(),
            };
            (folder.name.clone(), truth)
        };
        Truth { folders: self.folders.values().map(folder).collect() }
    }
}
