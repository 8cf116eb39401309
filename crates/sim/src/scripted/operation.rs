//! What can be done to a mailbox, as the control API takes it.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::account::{Account, FolderId, MessageId, Refused, Role, Uid};
use super::letters::Letters;

/// A folder is named by its id, or by its role when that is all that is known of it.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub enum Target {
    Id(FolderId),
    Role(Role),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// New mail, in the inbox unless said otherwise. More than one copy: so many messages with the same bytes.
    Deliver {
        folder: Option<Target>,
        #[serde(default = "one")]
        copies: usize,
        received_at: Option<Timestamp>,
        #[serde(default)]
        flags: Vec<String>,
    },
    Copy {
        folder: Target,
        uid: Uid,
        to: Target,
    },
    Move {
        folder: Target,
        uid: Uid,
        to: Target,
    },
    SetFlags {
        folder: Target,
        uid: Uid,
        flags: Vec<String>,
    },
    /// From one folder; the message is gone when that was its last.
    Delete {
        folder: Target,
        uid: Uid,
    },
    /// Like `Delete`, but told only by what is left in the folder.
    Expunge {
        folder: Target,
        uids: Vec<Uid>,
    },
    /// A deleted message comes back under its id.
    Restore {
        message: MessageId,
        to: Target,
    },
    /// A new draft, or with the id of one, another text for it.
    Draft {
        message: Option<MessageId>,
    },
    CreateFolder {
        name: String,
    },
    RenameFolder {
        folder: Target,
        name: String,
    },
    DeleteFolder {
        folder: Target,
    },
    ExpireCursors {
        /// Those of history and list too.
        #[serde(default)]
        listings: bool,
    },
}

fn one() -> usize {
    1
}

impl Account {
    /// Tells what came of it. What arrives, arrives `now`.
    pub fn apply(&mut self, operation: Operation, letters: &Letters, now: Timestamp) -> Result<Value, Refused> {
        match operation {
            Operation::Deliver { folder, copies, received_at, flags } => {
                let folder = self.find(folder.unwrap_or(Target::Role(Role::Inbox)));
                let messages = self.deliver(folder, copies, received_at.unwrap_or(now), &flags, letters)?;
                Ok(json!({"messages": messages}))
            }
            Operation::Copy { folder, uid, to } => {
                let (message, flags) = self.flags_at(self.find(folder), uid)?;
                Ok(json!({"message": message, "uid": self.place(message, self.find(to), flags)?}))
            }
            Operation::Move { folder, uid, to } => {
                Ok(json!({"uid": self.move_message(self.find(folder), uid, self.find(to))?}))
            }
            Operation::SetFlags { folder, uid, flags } => {
                self.set_flags(self.find(folder), uid, flags).map(|()| json!({}))
            }
            Operation::Delete { folder, uid } => self.delete(self.find(folder), uid).map(|()| json!({})),
            Operation::Expunge { folder, uids } => self.expunge(self.find(folder), &uids).map(|()| json!({})),
            Operation::Restore { message, to } => Ok(json!({"uid": self.restore(message, self.find(to))?})),
            Operation::Draft { message: None } => Ok(json!({"message": self.draft(letters, now)?})),
            Operation::Draft { message: Some(message) } => Ok(json!({"revision": self.edit(message, letters)?})),
            Operation::CreateFolder { name } => Ok(json!({"folder": self.add_folder(name, None)})),
            Operation::RenameFolder { folder, name } => self.rename_folder(self.find(folder), name).map(|()| json!({})),
            Operation::DeleteFolder { folder } => self.delete_folder(self.find(folder)).map(|()| json!({})),
            Operation::ExpireCursors { listings } => {
                self.expire_cursors(listings);
                Ok(json!({}))
            }
        }
    }

    /// A mailbox as it was found: so many messages, the last of them just now, one each quarter of an hour before.
    pub fn fill(&mut self, messages: usize, letters: &Letters, now: Timestamp) {
        for number in 0..messages {
            let age = jiff::SignedDuration::from_mins(15 * (messages - number) as i64);
            let at = now.checked_sub(age).unwrap_or(Timestamp::UNIX_EPOCH);
            let role = match self.rng.below(20) {
                0 => Role::Spam,
                1 => Role::Trash,
                2..4 => Role::Sent,
                4..8 => Role::Archive,
                _ => Role::Inbox,
            };
            let flags = if self.rng.percent(70) { vec!["seen".to_owned()] } else { Vec::new() };
            let delivered = self.deliver(self.folder_with(role), 1, at, &flags, letters);
            delivered.expect("folders with a role are always there");
        }
    }

    pub(super) fn deliver(
        &mut self,
        folder: FolderId,
        copies: usize,
        received_at: Timestamp,
        flags: &[String],
        letters: &Letters,
    ) -> Result<Vec<MessageId>, Refused> {
        let raw = self.write(letters);
        (0..copies).map(|_| self.add_message(folder, raw.clone(), received_at, flags.to_vec(), None)).collect()
    }

    pub(super) fn draft(&mut self, letters: &Letters, now: Timestamp) -> Result<MessageId, Refused> {
        let raw = self.write(letters);
        let flags = vec!["draft".to_owned(), "seen".to_owned()];
        self.add_message(self.folder_with(Role::Drafts), raw, now, flags, Some(1))
    }

    fn find(&self, target: Target) -> FolderId {
        match target {
            Target::Id(id) => id,
            Target::Role(role) => self.folder_with(role),
        }
    }
}
