//! Folders: names, numbers, and what is in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::Message;

/// What stands between the parts of a name.
pub const DELIMITER: char = '/';

/// Removals that a folder remembers; who knows it from before is told all that is not there.
const KEPT: usize = 10_000;

/// What a folder is for (RFC 6154).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Inbox,
    Sent,
    Drafts,
    Trash,
    Junk,
    Archive,
}

impl Role {
    /// Those that every mailbox has, and how they are called there.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Inbox, "INBOX"),
        (Self::Sent, "Sent"),
        (Self::Drafts, "Drafts"),
        (Self::Trash, "Trash"),
        (Self::Junk, "Junk"),
        (Self::Archive, "Archive"),
    ];

    /// The inbox has no attribute: it is known by its name.
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
pub struct Folder {
    /// From the top, with what stands between.
    pub name: String,
    pub role: Option<Role>,
    /// Stays the same when it is renamed (OBJECTID).
    pub id: String,
    pub uid_validity: u32,
    pub uid_next: u32,
    pub messages: BTreeMap<u32, Message>,
    pub highest_modseq: u64,
    /// What is no more, by when it went.
    removed: BTreeMap<u64, u32>,
    /// What went up to here is not remembered.
    forgotten: u64,
}

impl Folder {
    pub fn new(name: &str, role: Option<Role>, id: String, uid_validity: u32, modseq: u64) -> Self {
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

    /// Under the next number.
    pub fn put(&mut self, message: Message) -> u32 {
        let uid = self.uid_next;
        self.uid_next += 1;
        self.highest_modseq = message.modseq;
        self.messages.insert(uid, message);
        uid
    }

    pub fn take(&mut self, uid: u32, modseq: u64) -> Option<Message> {
        let message = self.messages.remove(&uid)?;
        self.highest_modseq = modseq;
        self.removed.insert(modseq, uid);
        if self.removed.len() > KEPT
            && let Some((at, _)) = self.removed.pop_first()
        {
            self.forgotten = at;
        }
        Some(message)
    }

    /// What went since; if that is not remembered, all numbers that are not there.
    pub fn vanished_since(&self, modseq: u64) -> Vec<u32> {
        if modseq < self.forgotten {
            return (1..self.uid_next).filter(|uid| !self.messages.contains_key(uid)).collect();
        }
        let mut uids: Vec<u32> = self.removed.range(modseq + 1..).map(|(_, uid)| *uid).collect();
        uids.sort_unstable();
        uids
    }

    /// All of it under other numbers: what was known of it does not hold any more.
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
    use crate::letters::Content;

    fn message(modseq: u64) -> Message {
        let content = Content::Own(bytes::Bytes::new());
        Message { email: modseq, thread: modseq, flags: Default::default(), received: 0, modseq, content }
    }

    #[test]
    fn what_went_is_told_since_any_time_that_is_remembered_and_all_gaps_before() {
        let mut folder = Folder::new("X", None, "x".to_owned(), 7, 10);
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
    fn under_other_numbers_everything_is_as_new() {
        let mut folder = Folder::new("X", None, "x".to_owned(), 7, 10);
        for modseq in 11..=13 {
            folder.put(message(modseq));
        }
        folder.take(1, 14);

        folder.renumber(8, 15);

        assert_eq!(folder.messages.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((folder.uid_validity, folder.uid_next, folder.highest_modseq), (8, 3, 15));
    }
}
