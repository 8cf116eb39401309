//! One mailbox: folders, messages and the log of changes. No I/O and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use super::folders::{OutlookFolder, tree};
use super::operation::{OutlookOperation, OutlookOperationOutcome};
use super::truth::OutlookTruth;
use crate::letter_pool::{Content, LetterPool};
use crate::mail::rng::Rng;
use crate::world::sim_account;

/// The number of removals that a folder remembers; delta tokens before them have expired.
const MAX_REMEMBERED_REMOVALS: usize = 100_000;

#[derive(Debug)]
pub struct GraphMessage {
    pub folder: u32,
    /// The number of the first message of the conversation.
    pub thread: u64,
    /// The number of moves, which is part of the mutable id.
    pub moves: u16,
    pub is_read: bool,
    pub is_flagged: bool,
    pub is_draft: bool,
    /// Seconds since 1970, as all times here: Exchange has no fractions.
    pub received: i64,
    pub created: i64,
    pub modified: i64,
    /// The mailbox's change counter at the last change.
    pub changed_at: u64,
    /// The change counter when the message entered its folder.
    pub entered_at: u64,
    pub content: Content,
}

/// A message that was removed from a folder.
#[derive(Debug, Clone, Copy)]
pub struct RemovedMessage {
    pub number: u64,
    /// The number of moves in its mutable id at that time.
    pub moves: u16,
}

/// A change that subscriptions are notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailboxEvent {
    pub number: u64,
    pub change: MessageChange,
    pub moves: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageChange {
    Created { folder: u32 },
    Updated { folder: u32 },
    Moved { from: u32, to: u32 },
    Deleted { folder: u32 },
}

/// The reason why a scripted operation cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutlookOperationError {
    NoAccount,
    NoMessage,
    NoFolder,
    /// The folder is well-known, would be its own descendant, or has a sibling of that name.
    FolderStays,
    NotADraft,
}

impl fmt::Display for OutlookOperationError {
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

impl std::error::Error for OutlookOperationError {}

#[derive(Debug)]
pub struct OutlookAccount {
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) folders: BTreeMap<u32, OutlookFolder>,
    pub(super) next_folder: u32,
    /// By number, which is the order of arrival.
    pub(super) messages: BTreeMap<u64, GraphMessage>,
    pub(super) next_message: u64,
    /// Oldest first, over all folders.
    pub(super) by_date: BTreeSet<(i64, u64)>,
    /// The change counter.
    pub(super) changes: u64,
    /// Delta tokens before this change have expired.
    pub(super) oldest: u64,
    /// Deleted folders, by change counter.
    pub(super) gone_folders: BTreeMap<u64, u32>,
    /// Events that were not published yet.
    pub(super) events: Vec<MailboxEvent>,
}

/// A message to add to the mailbox.
#[derive(Debug)]
pub struct NewOutlookMessage {
    pub content: Content,
    pub folder: u32,
    pub is_read: bool,
    pub is_draft: bool,
    pub received: Timestamp,
    /// The conversation that the message belongs to. `None`: a new one.
    pub thread: Option<u64>,
}

sim_account! { OutlookAccount { OutlookOperation => Result<OutlookOperationOutcome, OutlookOperationError>, OutlookTruth } }

impl OutlookAccount {
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

    /// Picks a random letter and gives it a Message-ID of this mailbox.
    pub(super) fn write(&mut self, letters: &LetterPool) -> Content {
        let message_id = format!("{:x}.{}.{}@mail.sim.example", self.seed, self.next_message, self.changes);
        letters.write(&mut self.rng, &message_id)
    }

    pub(super) fn add(&mut self, new: NewOutlookMessage, now: Timestamp) -> u64 {
        let number = self.next_message;
        self.next_message += 1;
        let at = self.tick();
        let message = GraphMessage {
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
        self.events.push(MailboxEvent { number, change: MessageChange::Created { folder: new.folder }, moves: 0 });
        number
    }

    fn enter(&mut self, number: u64, message: &GraphMessage, at: u64) {
        let Some(folder) = self.folders.get_mut(&message.folder) else { return };
        folder.by_date.insert((message.received, number));
        folder.changed.insert(at, number);
        folder.unread += usize::from(!message.is_read);
    }

    /// Removes a message from its folder, which remembers the removal.
    fn leave(&mut self, number: u64, at: u64) {
        let Some(message) = self.messages.get(&number) else { return };
        let Some(folder) = self.folders.get_mut(&message.folder) else { return };
        folder.by_date.remove(&(message.received, number));
        folder.changed.remove(&message.changed_at);
        folder.unread -= usize::from(!message.is_read);
        folder.removed.insert(at, RemovedMessage { number, moves: message.moves });
        if folder.removed.len() > MAX_REMEMBERED_REMOVALS
            && let Some((forgotten, _)) = folder.removed.pop_first()
        {
            folder.oldest = folder.oldest.max(forgotten);
        }
    }

    /// Changes a message in place.
    pub(super) fn touch(
        &mut self,
        number: u64,
        now: Timestamp,
        change: impl FnOnce(&mut GraphMessage),
    ) -> Result<(), OutlookOperationError> {
        let at = self.tick();
        let message = self.messages.get_mut(&number).ok_or(OutlookOperationError::NoMessage)?;
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
        self.events.push(MailboxEvent { number, change: MessageChange::Updated { folder: number_of_folder }, moves });
        Ok(())
    }

    pub(super) fn move_message(&mut self, number: u64, to: u32, now: Timestamp) -> Result<(), OutlookOperationError> {
        let from = self.messages.get(&number).ok_or(OutlookOperationError::NoMessage)?.folder;
        if !self.folders.get(&to).is_some_and(OutlookFolder::holds_mail) {
            return Err(OutlookOperationError::NoFolder);
        }
        if from == to {
            return Ok(());
        }
        let left_at = self.tick();
        self.leave(number, left_at);
        let at = self.tick();
        let Some(mut message) = self.messages.remove(&number) else { return Err(OutlookOperationError::NoMessage) };
        message.folder = to;
        message.moves = message.moves.wrapping_add(1);
        (message.changed_at, message.entered_at, message.modified) = (at, at, now.as_second());
        self.enter(number, &message, at);
        let moves = message.moves;
        self.messages.insert(number, message);
        self.events.push(MailboxEvent { number, change: MessageChange::Moved { from, to }, moves });
        Ok(())
    }

    /// Deletes the message for good.
    pub(super) fn purge(&mut self, number: u64) -> Result<(), OutlookOperationError> {
        let at = self.tick();
        self.leave(number, at);
        let message = self.messages.remove(&number).ok_or(OutlookOperationError::NoMessage)?;
        self.by_date.remove(&(message.received, number));
        let change = MessageChange::Deleted { folder: message.folder };
        self.events.push(MailboxEvent { number, change, moves: message.moves });
        Ok(())
    }

    /// Expires every delta token up to now: of one folder, or of the mailbox.
    pub(super) fn expire(&mut self, folder: Option<u32>) -> Result<(), OutlookOperationError> {
        let at = self.tick();
        match folder {
            None => self.oldest = at,
            Some(folder) => self.folders.get_mut(&folder).ok_or(OutlookOperationError::NoFolder)?.oldest = at,
        }
        Ok(())
    }

    /// Drops events and removals of the initial mail.
    pub(super) fn drop_initial_events(&mut self) {
        self.events = Vec::new();
        for folder in self.folders.values_mut() {
            folder.removed = BTreeMap::new();
        }
    }

    /// Returns the change key, which changes with every change of the message.
    pub fn change_key(&self, number: u64) -> String {
        let changed_at = self.messages.get(&number).map_or(0, |message| message.changed_at);
        format!("CQAAABYAAAB{:08x}AA{changed_at:010x}", self.mask_of_keys())
    }

    fn mask_of_keys(&self) -> u32 {
        (self.seed >> 7) as u32
    }
}
