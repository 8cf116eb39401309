//! One mailbox: messages with labels, and the history of what happened to them. Nothing here reads a clock or a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::history::{Change, History};
use super::labels::{LabelId, Labels};
use crate::letters::{Content, Letters};
use crate::mail::rng::Rng;

/// How far apart the ids of two messages are at least; what lies between is taken by chance, so that nobody counts on
/// the next id.
const ID_STRIDE: u64 = 0x1000;

#[derive(Debug)]
pub struct Message {
    /// The number of the first message of its conversation.
    pub thread: u64,
    /// In order, without doubles.
    pub labels: Vec<LabelId>,
    /// Milliseconds since 1970.
    pub internal_date: i64,
    /// Of the last change to it.
    pub history_id: u64,
    pub content: Content,
}

/// Why an operation cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    NoAccount,
    NoMessage,
    NoLabel,
    /// System labels stay; a name is taken once.
    LabelStays,
    NotADraft,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAccount => "there is no such account",
            Self::NoMessage => "there is no such message",
            Self::NoLabel => "there is no such label",
            Self::LabelStays => "there is a label of that name, or it is the system's",
            Self::NotADraft => "only a draft can be edited",
        })
    }
}

impl std::error::Error for Refused {}

#[derive(Debug)]
pub struct Account {
    seed: u64,
    pub(super) rng: Rng,
    pub(super) labels: Labels,
    /// By number, in the order in which they came.
    pub(super) messages: BTreeMap<u64, Message>,
    /// Oldest first.
    pub(super) by_date: BTreeSet<(i64, u64)>,
    pub(super) next_message: u64,
    pub(super) history: History,
}

/// A message to be added.
#[derive(Debug)]
pub struct New {
    pub content: Content,
    pub labels: Vec<LabelId>,
    pub internal_date: i64,
    /// The conversation it belongs to; nothing: its own.
    pub thread: Option<u64>,
}

impl Account {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let first_history_id = 10_000 + rng.below(1_000_000) as u64;
        Self {
            seed,
            rng,
            labels: Labels::default(),
            messages: BTreeMap::new(),
            by_date: BTreeSet::new(),
            next_message: 1,
            history: History::new(first_history_id),
        }
    }

    /// As Gmail writes it: sixteen hexadecimal digits.
    pub fn id(&self, number: u64) -> String {
        format!("{:016x}", self.id_number(number))
    }

    /// The number of the message with this id, if it is there.
    pub fn find(&self, id: &str) -> Option<u64> {
        if id.len() != 16 || id.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        let given = u64::from_str_radix(id, 16).ok()?;
        let number = given.checked_sub(self.first_id())? / ID_STRIDE;
        (self.messages.contains_key(&number) && self.id_number(number) == given).then_some(number)
    }

    fn id_number(&self, number: u64) -> u64 {
        self.first_id() + number * ID_STRIDE + Rng::for_part(self.seed, number).next_u64() % ID_STRIDE
    }

    fn first_id(&self) -> u64 {
        0x1800_0000_0000_0000 + (self.seed & 0xFFFF_FF00) * ID_STRIDE
    }

    pub fn history_id(&self) -> u64 {
        self.history.last()
    }

    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn write(&mut self, letters: &Letters) -> Content {
        let message_id = format!("{:x}.{}@mail.sim.example", self.seed, self.next_message);
        letters.write(&mut self.rng, &message_id)
    }

    pub(super) fn add(&mut self, new: New) -> u64 {
        let number = self.next_message;
        self.next_message += 1;
        let labels = in_order(new.labels);
        let thread = new.thread.unwrap_or(number);
        let change = Change::Added;
        let history_id = self.history.record(&mut self.rng, number, thread, labels.clone(), change);
        self.by_date.insert((new.internal_date, number));
        let message = Message { thread, labels, internal_date: new.internal_date, history_id, content: new.content };
        self.messages.insert(number, message);
        number
    }

    /// Adds and takes away; what is there already, or is not, changes nothing. Whether anything changed.
    pub(super) fn modify(&mut self, number: u64, add: &[LabelId], remove: &[LabelId]) -> Result<bool, Refused> {
        if add.iter().any(|label| !self.labels.has(*label)) {
            return Err(Refused::NoLabel);
        }
        let message = self.messages.get_mut(&number).ok_or(Refused::NoMessage)?;
        let added: Vec<LabelId> =
            in_order(add.iter().filter(|label| !message.labels.contains(label)).copied().collect());
        let removed: Vec<LabelId> =
            in_order(remove.iter().filter(|label| message.labels.contains(label)).copied().collect());
        if added.is_empty() && removed.is_empty() {
            return Ok(false);
        }
        message.labels.retain(|label| !removed.contains(label));
        message.labels.extend(&added);
        message.labels.sort_unstable();
        let (thread, labels) = (message.thread, message.labels.clone());
        let change = Change::Labelled { added, removed };
        message.history_id = self.history.record(&mut self.rng, number, thread, labels, change);
        Ok(true)
    }

    /// For good.
    pub(super) fn delete(&mut self, number: u64) -> Result<(), Refused> {
        let message = self.messages.remove(&number).ok_or(Refused::NoMessage)?;
        self.by_date.remove(&(message.internal_date, number));
        self.history.record(&mut self.rng, number, message.thread, message.labels, Change::Deleted);
        Ok(())
    }

    /// Takes it off every message. Silently: without a word in the history.
    pub(super) fn delete_label(&mut self, label: LabelId, is_silent: bool) -> Result<(), Refused> {
        if !self.labels.has(label) {
            return Err(Refused::NoLabel);
        }
        let labelled = self.messages.iter().filter(|(_, message)| message.labels.contains(&label));
        for number in labelled.map(|(number, _)| *number).collect::<Vec<_>>() {
            if is_silent && let Some(message) = self.messages.get_mut(&number) {
                message.labels.retain(|other| *other != label);
            } else {
                self.modify(number, &[], &[label])?;
            }
        }
        if self.labels.delete(label) { Ok(()) } else { Err(Refused::LabelStays) }
    }
}

fn in_order(mut labels: Vec<LabelId>) -> Vec<LabelId> {
    labels.sort_unstable();
    labels.dedup();
    labels
}
