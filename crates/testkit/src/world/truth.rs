//! What really is in a mailbox, to compare what was stored with.

use std::collections::BTreeMap;

use domain::{FolderRole, Sha256};

use super::mailbox::WorldMailbox;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxTruth {
    /// By id.
    pub folders: BTreeMap<String, FolderTruth>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderTruth {
    pub name: String,
    pub role: Option<FolderRole>,
    pub placements: Vec<PlacementTruth>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementTruth {
    pub uid: String,
    pub message: String,
    pub flags: Vec<String>,
    pub sha256: String,
    pub size: usize,
    pub revision: Option<String>,
}

impl WorldMailbox {
    pub fn truth(&self) -> MailboxTruth {
        let mut folders: BTreeMap<String, FolderTruth> = BTreeMap::new();
        for (id, folder) in &self.folders {
            let truth = FolderTruth { name: folder.name.clone(), role: folder.role, placements: Vec::new() };
            folders.insert(id.to_string(), truth);
        }
        for (id, message) in &self.messages {
            let sha256 = Sha256::of(&message.raw).hex();
            for placement in &message.placements {
                let truth = PlacementTruth {
                    uid: placement.uid.to_string(),
                    message: id.to_string(),
                    flags: placement.flags.clone(),
                    sha256: sha256.clone(),
                    size: message.raw.len(),
                    revision: message.revision.map(|revision| revision.to_string()),
                };
                folders.get_mut(&placement.folder.to_string()).unwrap().placements.push(truth);
            }
        }
        MailboxTruth { folders }
    }
}
