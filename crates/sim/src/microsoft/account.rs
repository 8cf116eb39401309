//! One mailbox: folders, the messages in them, and what changed when. Nothing here reads a clock or a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use super::folders::{Folder, tree};
use crate::letters::{Content, Letters};
use crate::mail::rng::Rng;

/// Removals that a folder remembers; a token from before them has expired.
const KEPT: usize = 100_000;

#[derive(Debug)]
pub struct Message {
    pub folder: u32,
    /// The number of the first message of its conversation.
    pub thread: u64,
    /// How often it went to another folder; its ordinary id tells it.
    pub moves: u16,
    pub is_read: bool,
    pub is_flagged: bool,
    pub is_draft: bool,
    /// In seconds since 1970, as all times here: Exchange tells no parts of them.
    pub received: i64,
    pub created: i64,
    pub modified: i64,
    /// When it last changed, counted in changes to the mailbox.
    pub changed_at: u64,
    /// When it came into its folder, counted likewise.
    pub entered_at: u64,
    pub content: Content,
}

/// A message that is not in a folder any more.
#[derive(Debug, Clone, Copy)]
pub struct Removal {
    pub number: u64,
    /// Of its ordinary id while it was there.
    pub moves: u16,
}

/// What subscriptions are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub number: u64,
    pub change: Change,
    pub moves: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Created { folder: u32 },
    Updated { folder: u32 },
    Moved { from: u32, to: u32 },
    Deleted { folder: u32 },
}

/// Why an operation cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    NoAccount,
    NoMessage,
    NoFolder,
    /// Well-known folders stay, and nothing goes into itself; a name is taken once beside its like.
    FolderStays,
    NotADraft,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAccount => "there is no such account",
            Self::NoMessage => "there is no such message",
            Self::NoFolder => "there is no such folder",
            Self::FolderStays => "there is a folder of that name, or it is Outlook's own",
            Self::NotADraft => "only a draft can be edited or sent",
        })
    }
}

impl std::error::Error for Refused {}

#[derive(Debug)]
pub struct Account {
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) folders: BTreeMap<u32, Folder>,
    pub(super) next_folder: u32,
    /// By number, in the order in which they came.
    pub(super) messages: BTreeMap<u64, Message>,
    pub(super) next_message: u64,
    /// Oldest first, over all folders.
    pub(super) by_date: BTreeSet<(i64, u64)>,
    /// How many changes there were.
    pub(super) changes: u64,
    /// Tokens from before this change have expired.
    pub(super) oldest: u64,
    /// Folders that are gone, by when they went.
    pub(super) gone_folders: BTreeMap<u64, u32>,
    /// What nobody was told yet.
    pub(super) events: Vec<Event>,
}

/// A message to be added.
#[derive(Debug)]
pub struct New {
    pub content: Content,
    pub folder: u32,
    pub is_read: bool,
    pub is_draft: bool,
    pub received: Timestamp,
    /// The conversation it belongs to; nothing: its own.
    pub thread: Option<u64>,
}

impl Account {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let changes = 1_000 + rng.below(100_000) as u64;
        let folders = tree(seed, changes);
        Self {
            seed,
            rng,
            next_folder: folders.len() as u32,
            folders,
            messages: BTreeMap::new(),
            next_message: 2,
            by_date: BTreeSet::new(),
            changes,
            oldest: 0,
            gone_folders: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// Some letter, under a Message-ID of this mailbox.
    pub(super) fn write(&mut self, letters: &Letters) -> Content {
        let message_id = format!("{:x}.{}.{}@mail.sim.example", self.seed, self.next_message, self.changes);
        letters.write(&mut self.rng, &message_id)
    }

    pub(super) fn add(&mut self, new: New, now: Timestamp) -> u64 {
        let number = self.next_message;
        self.next_message += 1;
        let at = self.tick();
        let message = Message {
            folder: new.folder,
            thread: new.thread.unwrap_or(number),
            moves: 0,
            is_read: new.is_read,
            is_flagged: false,
            is_draft: new.is_draft,
            received: new.received.as_second(),
            created: new.received.as_second(),
            modified: now.as_second(),
            changed_at: at,
            entered_at: at,
            content: new.content,
        };
        self.by_date.insert((message.received, number));
        self.enter(number, &message, at);
        self.messages.insert(number, message);
        self.events.push(Event { number, change: Change::Created { folder: new.folder }, moves: 0 });
        number
    }

    fn enter(&mut self, number: u64, message: &Message, at: u64) {
        let Some(folder) = self.folders.get_mut(&message.folder) else { return };
        folder.by_date.insert((message.received, number));
        folder.changed.insert(at, number);
        folder.unread += usize::from(!message.is_read);
    }

    /// From the folder that it is in, which remembers it.
    fn leave(&mut self, number: u64, at: u64) {
        let Some(message) = self.messages.get(&number) else { return };
        let Some(folder) = self.folders.get_mut(&message.folder) else { return };
        folder.by_date.remove(&(message.received, number));
        folder.changed.remove(&message.changed_at);
        folder.unread -= usize::from(!message.is_read);
        folder.removed.insert(at, Removal { number, moves: message.moves });
        if folder.removed.len() > KEPT
            && let Some((forgotten, _)) = folder.removed.pop_first()
        {
            folder.oldest = folder.oldest.max(forgotten);
        }
    }

    /// A change to the message where it lies.
    pub(super) fn touch(
        &mut self,
        number: u64,
        now: Timestamp,
        change: impl FnOnce(&mut Message),
    ) -> Result<(), Refused> {
        let at = self.tick();
        let message = self.messages.get_mut(&number).ok_or(Refused::NoMessage)?;
        let (before, was_unread, received) = (message.changed_at, !message.is_read, message.received);
        change(message);
        (message.changed_at, message.modified) = (at, now.as_second());
        let (is_unread, moves, now_received) = (!message.is_read, message.moves, message.received);
        let number_of_folder = message.folder;
        if let Some(folder) = self.folders.get_mut(&number_of_folder) {
            folder.changed.remove(&before);
            folder.changed.insert(at, number);
            folder.by_date.remove(&(received, number));
            folder.by_date.insert((now_received, number));
            folder.unread = folder.unread + usize::from(is_unread) - usize::from(was_unread);
        }
        self.by_date.remove(&(received, number));
        self.by_date.insert((now_received, number));
        self.events.push(Event { number, change: Change::Updated { folder: number_of_folder }, moves });
        Ok(())
    }

    pub(super) fn move_message(&mut self, number: u64, to: u32, now: Timestamp) -> Result<(), Refused> {
        let from = self.messages.get(&number).ok_or(Refused::NoMessage)?.folder;
        if !self.folders.get(&to).is_some_and(Folder::holds_mail) {
            return Err(Refused::NoFolder);
        }
        if from == to {
            return Ok(());
        }
        let left_at = self.tick();
        self.leave(number, left_at);
        let at = self.tick();
        let Some(mut message) = self.messages.remove(&number) else { return Err(Refused::NoMessage) };
        message.folder = to;
        message.moves = message.moves.wrapping_add(1);
        (message.changed_at, message.entered_at, message.modified) = (at, at, now.as_second());
        self.enter(number, &message, at);
        let moves = message.moves;
        self.messages.insert(number, message);
        self.events.push(Event { number, change: Change::Moved { from, to }, moves });
        Ok(())
    }

    /// For good.
    pub(super) fn purge(&mut self, number: u64) -> Result<(), Refused> {
        let at = self.tick();
        self.leave(number, at);
        let message = self.messages.remove(&number).ok_or(Refused::NoMessage)?;
        self.by_date.remove(&(message.received, number));
        let change = Change::Deleted { folder: message.folder };
        self.events.push(Event { number, change, moves: message.moves });
        Ok(())
    }

    /// What was so far is not told any more, and every token from before now has expired.
    pub(super) fn expire(&mut self, folder: Option<u32>) -> Result<(), Refused> {
        let at = self.tick();
        match folder {
            None => self.oldest = at,
            Some(folder) => self.folders.get_mut(&folder).ok_or(Refused::NoFolder)?.oldest = at,
        }
        Ok(())
    }

    /// Mail that lay there before anybody looked: nothing tells of how it came.
    pub(super) fn forget_past(&mut self) {
        self.events = Vec::new();
        for folder in self.folders.values_mut() {
            folder.removed = BTreeMap::new();
        }
    }

    /// Changes whenever anything does.
    pub fn change_key(&self, number: u64) -> String {
        let changed_at = self.messages.get(&number).map_or(0, |message| message.changed_at);
        format!("CQAAABYAAAB{:08x}AA{changed_at:010x}", self.mask_of_keys())
    }

    fn mask_of_keys(&self) -> u32 {
        (self.seed >> 7) as u32
    }
}
