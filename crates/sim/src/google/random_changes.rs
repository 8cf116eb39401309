//! Initial mail and random changes of a mailbox, drawn from its own seed.

use jiff::{SignedDuration, Timestamp};

use super::account::{GmailAccount, NewGmailMessage};
use super::labels::LabelId;
use crate::letter_pool::LetterPool;

/// The weight of each kind of change, in the order of the match below.
const CHANGE_WEIGHTS: [u32; 10] = [40, 20, 10, 6, 4, 4, 4, 6, 4, 2];

/// The maximum number of user labels that random changes create.
const MAX_USER_LABELS: usize = 12;

/// The time between two messages of the initial mail.
const INITIAL_MAIL_INTERVAL: SignedDuration = SignedDuration::from_mins(15);

const LABEL_NAMES: [&str; 8] =
    ["Projects", "Invoices", "Travel", "Müller & Söhne", "2024", "請求書", "To do", "Later/Maybe"];

impl GmailAccount {
    /// Adds the initial mail; the history does not record it.
    pub fn fill(&mut self, count: usize, letters: &LetterPool, now: Timestamp) {
        for name in &LABEL_NAMES[..if count > 0 { 3 } else { 0 }] {
            self.labels.create((*name).to_owned());
        }
        for number in (1..=count).rev() {
            self.receive(letters, now - INITIAL_MAIL_INTERVAL * number as i32);
        }
        self.history.drop_records();
    }

    /// Applies one random, realistic change. If there is nothing to change, delivers mail.
    pub fn step(&mut self, letters: &LetterPool, now: Timestamp) {
        let kind = self.rng.weighted(CHANGE_WEIGHTS.into_iter());
        let is_done = match (kind, self.any_message()) {
            (1, Some(message)) => self.toggle(message, LabelId::UNREAD),
            (2, Some(message)) => self.step_label(message),
            (3, Some(message)) => self.modify(message, &[LabelId::TRASH], &[LabelId::INBOX, LabelId::SPAM]) == Ok(true),
            (4, Some(message)) => self.modify(message, &[LabelId::INBOX], &[LabelId::TRASH, LabelId::SPAM]) == Ok(true),
            (5, Some(message)) => self.modify(message, &[LabelId::SPAM], &[LabelId::INBOX]) == Ok(true),
            (6, _) => self.step_draft(letters, now),
            (7, Some(message)) => self.delete(message).is_ok(),
            (8, Some(message)) => self.toggle(message, LabelId::STARRED),
            (9, _) => self.step_label_list(),
            _ => false,
        };
        if !is_done {
            self.receive(letters, now);
        }
    }

    /// Delivers a random letter, mostly to the inbox.
    fn receive(&mut self, letters: &LetterPool, at: Timestamp) {
        let mut labels = match self.rng.below(20) {
            0..=2 => vec![LabelId::SENT],
            3 => vec![LabelId::SPAM, LabelId::UNREAD],
            4 => vec![LabelId::TRASH],
            // Archived: no label but those that follow.
            5 | 6 => Vec::new(),
            7 => vec![LabelId::CHAT],
            _ => vec![LabelId::INBOX, *self.rng.pick(&LabelId::CATEGORIES)],
        };
        if labels.contains(&LabelId::INBOX) {
            if self.rng.percent(40) {
                labels.push(LabelId::UNREAD);
            }
            if self.rng.percent(25) {
                labels.push(LabelId::IMPORTANT);
            }
            labels.extend(self.any_own_label().filter(|_| self.rng.percent(20)));
        }
        let is_reply = self.rng.percent(30);
        let thread = self.any_message().filter(|_| is_reply).map(|number| self.messages[&number].thread);
        let content = self.write(letters);
        self.add(NewGmailMessage { content, labels, internal_date: at.as_millisecond(), thread });
    }

    fn toggle(&mut self, message: u64, label: LabelId) -> bool {
        let changed = if self.messages[&message].labels.contains(&label) {
            self.modify(message, &[], &[label])
        } else {
            self.modify(message, &[label], &[])
        };
        changed == Ok(true)
    }

    fn step_label(&mut self, message: u64) -> bool {
        self.any_own_label().is_some_and(|label| self.toggle(message, label))
    }

    fn step_draft(&mut self, letters: &LetterPool, now: Timestamp) -> bool {
        let latest = self.messages.iter().rev().take(50);
        let draft =
            latest.filter(|(_, message)| message.labels.contains(&LabelId::DRAFT)).map(|(number, _)| *number).next();
        let edited = draft.filter(|_| self.rng.percent(60)).map(|number| self.id(number));
        self.draft(edited.as_deref(), letters, now).is_ok()
    }

    fn step_label_list(&mut self) -> bool {
        let name = format!("{} {}", self.rng.pick(&LABEL_NAMES), self.rng.below(1_000));
        let own = self.labels.own().count();
        match (self.rng.below(3), self.any_own_label()) {
            (0, Some(label)) => self.labels.find(&name).is_none() && self.labels.rename(label, name),
            (1, Some(label)) => self.delete_label(label, false).is_ok(),
            _ => own < MAX_USER_LABELS && self.labels.create(name).is_some(),
        }
    }

    fn any_own_label(&mut self) -> Option<LabelId> {
        let count = self.labels.own().count();
        let at = self.rng.below(count);
        self.labels.own().nth(at)
    }

    /// Picks a random message, recent ones more often, without walking the mailbox.
    fn any_message(&mut self) -> Option<u64> {
        let last = self.next_message as usize;
        let number = self.rng.below(last).max(self.rng.below(last)) as u64;
        let found = self.messages.range(number..).next().or_else(|| self.messages.first_key_value());
        found.map(|(number, _)| *number)
    }
}
