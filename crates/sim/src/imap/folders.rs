//! An IMAP folder: name, UIDs, messages and removals.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::ImapMessage;

/// The hierarchy delimiter.
pub const DELIMITER: char = '/';

/// The number of removals remembered; for an older modseq, all missing UIDs are reported.
const MAX_REMEMBERED_REMOVALS: usize = 10_000;

/// A folder's special use (RFC 6154).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecialUse {
    Inbox,
    Sent,
    Drafts,
    Trash,
    Junk,
    Archive,
}

impl SpecialUse {
    /// The special-use folders of every mailbox, with their names.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Inbox, "INBOX"),
        (Self::Sent, "Sent"),
        (Self::Drafts, "Drafts"),
        (Self::Trash, "Trash"),
        (Self::Junk, "Junk"),
        (Self::Archive, "Archive"),
    ];

    /// Returns the LIST attribute. INBOX has none: it is known by its name.
    pub fn attribute(self) -> Option<&'static str> {
        Some(match self {
            Self::Inbox => return None,
            Self::Sent => "\\Sent",
            Self::Drafts => "\\Drafts",
            Self::Trash => "\\Trash",
            Self::Junk => "\\Junk",
            Self::Archive => "\\Archive",
        })
    }
}

#[derive(Debug)]
pub struct ImapFolder {
    /// The full name, with delimiters.
    pub name: String,
    pub role: Option<SpecialUse>,
    /// The mailbox id, which stays when the folder is renamed (OBJECTID).
    pub id: String,
    pub uid_validity: u32,
    pub uid_next: u32,
    pub messages: BTreeMap<u32, ImapMessage>,
    pub highest_modseq: u64,
    /// Removed UIDs by modseq.
    removed: BTreeMap<u64, u32>,
    /// The modseq up to which removals are forgotten.
    forgotten: u64,
}

impl ImapFolder {
    pub fn new(name: &str, role: Option<SpecialUse>, id: String, uid_validity: u32, modseq: u64) -> Self {
        Self {
            name: name.to_owned(),
            role,
            id,
            uid_validity,
            uid_next: 1,
            messages: BTreeMap::new(),
            highest_modseq: modseq,
            removed: BTreeMap::new(),
            forgotten: modseq,
        }
    }

    /// Returns whether this is the folder's name; INBOX is case-insensitive.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.role == Some(SpecialUse::Inbox) && name.eq_ignore_ascii_case("INBOX")
    }

    /// Returns the number of unseen messages.
    pub fn unseen(&self) -> usize {
        self.messages.values().filter(|message| !message.flags.contains("\\Seen")).count()
    }

    /// Adds a message under the next UID.
    pub fn put(&mut self, message: ImapMessage) -> u32 {
        let uid = self.uid_next;
        self.uid_next += 1;
        self.highest_modseq = message.modseq;
        self.messages.insert(uid, message);
        uid
    }

    pub fn take(&mut self, uid: u32, modseq: u64) -> Option<ImapMessage> {
        let message = self.messages.remove(&uid)?;
        self.highest_modseq = modseq;
        self.removed.insert(modseq, uid);
        if self.removed.len() > MAX_REMEMBERED_REMOVALS
            && let Some((at, _)) = self.removed.pop_first()
        {
            self.forgotten = at;
        }
        Some(message)
    }

    /// Returns the UIDs removed since, or all missing UIDs if that is no longer remembered.
    pub fn vanished_since(&self, modseq: u64) -> Vec<u32> {
        if modseq < self.forgotten {
            return (1..self.uid_next).filter(|uid| !self.messages.contains_key(uid)).collect();
        }
        let mut uids: Vec<u32> = self.removed.range(modseq + 1..).map(|(_, uid)| *uid).collect();
        uids.sort_unstable();
        uids
    }

    /// Changes UIDVALIDITY and gives all messages new UIDs.
    pub fn renumber(&mut self, uid_validity: u32, modseq: u64) {
        self.uid_validity = uid_validity;
        self.uid_next = 1;
        (self.removed, self.forgotten) = (BTreeMap::new(), modseq);
        for (_, mut message) in std::mem::take(&mut self.messages) {
            message.modseq = modseq;
            self.put(message);
        }
        self.highest_modseq = modseq;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter_pool::Content;

    fn message(modseq: u64) -> ImapMessage {
        let content = Content::Own(bytes::Bytes::new());
        ImapMessage { email: modseq, thread: modseq, flags: Default::default(), received: 0, modseq, content }
    }

    #[test]
    fn vanished_uids_since_a_modseq_are_reported() {
        let mut folder = ImapFolder::new("X", None, "x".to_owned(), 7, 10);
        for modseq in 11..=15 {
            folder.put(message(modseq));
        }
        folder.take(2, 16);
        folder.take(4, 17);

        assert_eq!(folder.vanished_since(16), [4]);
        assert_eq!(folder.vanished_since(10), [2, 4]);
        assert_eq!(folder.vanished_since(3), [2, 4], "it was not there then");
        assert_eq!((folder.uid_next, folder.highest_modseq), (6, 17));
    }

    #[test]
    fn renumbered_folder_starts_over() {
        let mut folder = ImapFolder::new("X", None, "x".to_owned(), 7, 10);
        for modseq in 11..=13 {
            folder.put(message(modseq));
        }
        folder.take(1, 14);

        folder.renumber(8, 15);

        assert_eq!(folder.messages.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((folder.uid_validity, folder.uid_next, folder.highest_modseq), (8, 3, 15));
    }
}
