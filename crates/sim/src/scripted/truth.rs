//! What really is in a mailbox, for whoever wants to know whether all of it arrived.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::{Account, Role};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub messages: usize,
    /// By id.
    pub folders: BTreeMap<String, TruthFolder>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthFolder {
    pub name: String,
    pub role: Option<Role>,
    pub places: Vec<TruthPlace>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthPlace {
    pub uid: String,
    pub message: String,
    pub flags: Vec<String>,
    pub sha256: String,
    pub size: usize,
    pub revision: Option<String>,
}

impl Account {
    pub fn truth(&self) -> Truth {
        let hashes: BTreeMap<_, _> = self.messages.iter().map(|(id, message)| (*id, message.raw.sha256())).collect();
        let folder = |(id, folder): (&super::FolderId, &super::account::Folder)| {
            let place = |(uid, message): (&super::Uid, &super::MessageId)| {
                let found = &self.messages[message];
                let flags = self.find_place(*message, *id, *uid).map(|place| place.flags.clone());
                TruthPlace {
                    uid: uid.to_string(),
                    message: message.to_string(),
                    flags: flags.unwrap_or_default(),
                    sha256: hashes[message].clone(),
                    size: found.raw.size(),
                    revision: found.revision.map(|revision| revision.to_string()),
                }
            };
            let places = folder.messages.iter().map(place).collect();
            (id.to_string(), TruthFolder { name: folder.name.clone(), role: folder.role, places })
        };
        Truth { messages: self.messages.len(), folders: self.folders.iter().map(folder).collect() }
    }
}
