//! Random changes to an account: the initial mail, and what happens to it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::account::{JmapAccount, JmapMessage};
use super::folders::MailboxRole;
use crate::letter_pool::LetterPool;

/// The weight of each kind of change, in the order of the match below.
const CHANGE_WEIGHTS: [u32; 10] = [40, 20, 8, 12, 8, 6, 5, 3, 4, 2];

/// The maximum number of folders that random changes create.
const MAX_FOLDERS: usize = 20;

/// The time between two messages of the initial mail.
const INITIAL_MAIL_INTERVAL: SignedDuration = SignedDuration::from_mins(15);

const FOLDER_NAMES: [&str; 7] = ["Invoices", "Travel", "Größen & Maße", "Клиенты", "To do", "請求書", "a/b"];

impl JmapAccount {
    /// Adds the initial mail. Some of it came in the same second.
    pub fn fill(&mut self, count: usize, letters: &LetterPool, now: Timestamp) {
        for number in (1..=count).rev() {
            self.receive(letters, now - INITIAL_MAIL_INTERVAL * (number / 3) as i32);
        }
    }

    /// Applies one random, realistic change. If there is nothing to change, delivers mail.
    pub fn step(&mut self, letters: &LetterPool, now: Timestamp) {
        let kind = self.rng.weighted(CHANGE_WEIGHTS.into_iter());
        let is_done = match (kind, self.any_message()) {
            (1, Some(message)) => self.toggle(message, "$seen"),
            (2, Some(message)) => self.toggle(message, "$flagged"),
            (3, Some(message)) => {
                let to = BTreeSet::from([self.any_folder()]);
                self.update(message, |message| message.folders = to).is_ok()
            }
            (4, Some(message)) => {
                let trash = BTreeSet::from([self.with_role(MailboxRole::Trash)]);
                self.update(message, |message| message.folders = trash).is_ok()
            }
            (5, Some(message)) => self.destroy(message).is_ok(),
            (6, Some(message)) => {
                let also = self.any_folder();
                let copied = self.update(message, |message| {
                    message.folders.insert(also);
                });
                copied.is_ok()
            }
            (7, Some(message)) => self.toggle(message, "$Forwarded"),
            (8, _) => self.step_folder(),
            (9, _) => self.any_own_folder().is_some_and(|folder| self.delete_folder(folder).is_ok()),
            _ => false,
        };
        if !is_done {
            // Some mail is brought in from elsewhere and is older than what is here.
            let age = if self.rng.percent(10) { self.rng.below(100_000) } else { 0 };
            self.receive(letters, now - SignedDuration::from_secs(age as i64));
        }
    }

    /// Delivers a random letter, mostly to the inbox.
    fn receive(&mut self, letters: &LetterPool, at: Timestamp) {
        let folder = match self.rng.below(20) {
            0..=2 => self.with_role(MailboxRole::Sent),
            3 => self.with_role(MailboxRole::Junk),
            4 => self.with_role(MailboxRole::Trash),
            5 => self.with_role(MailboxRole::Archive),
            6 | 7 => self.any_folder(),
            _ => self.with_role(MailboxRole::Inbox),
        };
        let keywords = if self.rng.percent(60) { BTreeSet::from(["$seen".to_owned()]) } else { BTreeSet::new() };
        let content = self.write(letters);
        let message = JmapMessage { folders: BTreeSet::from([folder]), keywords, received: at.as_second(), content };
        self.add(message).expect("folders are chosen among those that are there");
    }

    fn toggle(&mut self, message: u64, keyword: &str) -> bool {
        let toggled = self.update(message, |message| {
            if !message.keywords.remove(keyword) {
                message.keywords.insert(keyword.to_owned());
            }
        });
        toggled.is_ok()
    }

    fn step_folder(&mut self) -> bool {
        let name = format!("{} {}", self.rng.pick(&FOLDER_NAMES), self.rng.below(1_000));
        let parent = if self.rng.percent(50) { Some(self.any_folder()) } else { None };
        match (self.rng.below(2), self.any_own_folder()) {
            (0, Some(folder)) => self.rename_folder(folder, &name, parent).is_ok(),
            _ => self.folders.len() < MAX_FOLDERS && self.create_folder(&name, parent).is_ok(),
        }
    }

    fn any_own_folder(&mut self) -> Option<u32> {
        let own: Vec<u32> =
            self.folders.iter().filter(|(_, folder)| folder.role.is_none()).map(|(number, _)| *number).collect();
        (!own.is_empty()).then(|| *self.rng.pick(&own))
    }

    fn any_folder(&mut self) -> u32 {
        let all: Vec<u32> = self.folders.keys().copied().collect();
        *self.rng.pick(&all)
    }

    /// Picks a random message, recent ones more often.
    fn any_message(&mut self) -> Option<u64> {
        let last = self.messages.last_key_value().map(|(number, _)| *number as usize)?;
        let number = self.rng.below(last).max(self.rng.below(last)) as u64;
        let found = self.messages.range(number..).next().or_else(|| self.messages.first_key_value());
        found.map(|(number, _)| *number)
    }
}
