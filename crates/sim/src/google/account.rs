//! One Gmail mailbox: messages with labels, and the history of their changes. No I/O and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::history::{History, HistoryChange};
use super::labels::{LabelId, Labels};
use super::operation::{GmailOperation, GmailOperationOutcome};
use super::truth::GmailTruth;
use crate::letter_pool::{Content, LetterPool};
use crate::mail::rng::Rng;
use crate::world::sim_account;

/// The range of ids that one message takes its id from at random, so that no client can predict the next id.
const ID_STRIDE: u64 = 0x1000;

#[derive(Debug)]
pub struct GmailMessage {
    /// The number of the first message of the conversation.
    pub thread: u64,
    /// Sorted, without duplicates.
    pub labels: Vec<LabelId>,
    /// Milliseconds since 1970.
    pub internal_date: i64,
    /// The history id of the last change to the message.
    pub history_id: u64,
    pub content: Content,
}

/// The reason why a scripted operation cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GmailOperationError {
    NoAccount,
    NoMessage,
    NoLabel,
    /// The label is a system label, or the name is in use.
    LabelStays,
    NotADraft,
}

impl fmt::Display for GmailOperationError {
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

impl std::error::Error for GmailOperationError {}

#[derive(Debug)]
pub struct GmailAccount {
    seed: u64,
    pub(super) rng: Rng,
    pub(super) labels: Labels,
    /// By number, which is the order of arrival.
    pub(super) messages: BTreeMap<u64, GmailMessage>,
    /// Oldest first.
    pub(super) by_date: BTreeSet<(i64, u64)>,
    pub(super) next_message: u64,
    pub(super) history: History,
}

/// A message to add to the mailbox.
#[derive(Debug)]
pub struct NewGmailMessage {
    pub content: Content,
    pub labels: Vec<LabelId>,
    pub internal_date: i64,
    /// The conversation that the message belongs to. `None`: a new one.
    pub thread: Option<u64>,
}

sim_account! { GmailAccount { GmailOperation => Result<GmailOperationOutcome, GmailOperationError>, GmailTruth } }

impl GmailAccount {
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

    /// Returns the message's id as Gmail writes it: sixteen hexadecimal digits.
    pub fn id(&self, number: u64) -> String {
        format!("{:016x}", self.id_number(number))
    }

    /// Finds the number of the message with this id.
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

    pub(super) fn write(&mut self, letters: &LetterPool) -> Content {
        let message_id = format!("{:x}.{}@mail.sim.example", self.seed, self.next_message);
        letters.write(&mut self.rng, &message_id)
    }

    pub(super) fn add(&mut self, new: NewGmailMessage) -> u64 {
        let number = self.next_message;
        self.next_message += 1;
        let labels = in_order(new.labels);
        let thread = new.thread.unwrap_or(number);
        let change = HistoryChange::Added;
        let history_id = self.history.record(&mut self.rng, number, thread, labels.clone(), change);
        self.by_date.insert((new.internal_date, number));
        let message =
            GmailMessage { thread, labels, internal_date: new.internal_date, history_id, content: new.content };
        self.messages.insert(number, message);
        number
    }

    /// Adds and removes labels. Returns whether anything changed.
    pub(super) fn modify(
        &mut self,
        number: u64,
        add: &[LabelId],
        remove: &[LabelId],
    ) -> Result<bool, GmailOperationError> {
        if add.iter().any(|label| !self.labels.has(*label)) {
            return Err(GmailOperationError::NoLabel);
        }
        let message = self.messages.get_mut(&number).ok_or(GmailOperationError::NoMessage)?;
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
        let change = HistoryChange::Labelled { added, removed };
        message.history_id = self.history.record(&mut self.rng, number, thread, labels, change);
        Ok(true)
    }

    /// Deletes the message for good.
    pub(super) fn delete(&mut self, number: u64) -> Result<(), GmailOperationError> {
        let message = self.messages.remove(&number).ok_or(GmailOperationError::NoMessage)?;
        self.by_date.remove(&(message.internal_date, number));
        self.history.record(&mut self.rng, number, message.thread, message.labels, HistoryChange::Deleted);
        Ok(())
    }

    /// Deletes a label and removes it from every message. If `is_silent`, the history does not record the removals.
    pub(super) fn delete_label(&mut self, label: LabelId, is_silent: bool) -> Result<(), GmailOperationError> {
        if !self.labels.has(label) {
            return Err(GmailOperationError::NoLabel);
        }
        let labelled = self.messages.iter().filter(|(_, message)| message.labels.contains(&label));
        for number in labelled.map(|(number, _)| *number).collect::<Vec<_>>() {
            if is_silent && let Some(message) = self.messages.get_mut(&number) {
                message.labels.retain(|other| *other != label);
            } else {
                self.modify(number, &[], &[label])?;
            }
        }
        if self.labels.delete(label) { Ok(()) } else { Err(GmailOperationError::LabelStays) }
    }
}

fn in_order(mut labels: Vec<LabelId>) -> Vec<LabelId> {
    labels.sort_unstable();
    labels.dedup();
    labels
}
