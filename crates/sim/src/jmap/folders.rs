//! Mailboxes, which JMAP calls what other protocols call folders.

use serde::{Deserialize, Serialize};

/// What a mailbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailboxRole {
    Inbox,
    Sent,
    Drafts,
    Trash,
    Junk,
    Archive,
}

impl MailboxRole {
    /// The mailboxes that every account has, with their names.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Inbox, "Inbox"),
        (Self::Sent, "Sent Items"),
        (Self::Drafts, "Drafts"),
        (Self::Trash, "Deleted Items"),
        (Self::Junk, "Junk Mail"),
        (Self::Archive, "Archive"),
    ];
}

#[derive(Debug, Clone)]
pub struct JmapFolder {
    /// Its own name, without those above it.
    pub name: String,
    pub parent: Option<u32>,
    pub role: Option<MailboxRole>,
}

/// Returns the id by which clients know a folder.
pub fn folder_id(number: u32) -> String {
    format!("P{number}")
}

pub fn folder_number(id: &str) -> Option<u32> {
    id.strip_prefix('P')?.parse().ok()
}
