//! Initial mail and random changes of a mailbox, drawn from its own seed.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::account::{ImapAccount, NewImapMessage, seconds};
use super::folders::SpecialUse;
use crate::letter_pool::LetterPool;

/// The weight of each kind of change, in the order of the match below.
const CHANGE_WEIGHTS: [u32; 10] = [40, 20, 8, 12, 8, 6, 4, 3, 2, 2];

/// The maximum number of folders that random changes create.
const MAX_FOLDERS: usize = 20;

/// The time between two messages of the initial mail.
const INITIAL_MAIL_INTERVAL: SignedDuration = SignedDuration::from_mins(15);

const FOLDER_NAMES: [&str; 7] = ["Invoices", "Travel", "Größen & Maße", "Клиенты", "To do", "請求書", "Later/Maybe"];

const SEEN: &str = "\\Seen";
const FLAGGED: &str = "\\Flagged";

impl ImapAccount {
    /// Adds the initial mail.
    pub fn fill(&mut self, count: usize, letters: &LetterPool, now: Timestamp) {
        for number in (1..=count).rev() {
            self.receive(letters, now - INITIAL_MAIL_INTERVAL * number as i32);
        }
    }

    /// Applies one random, realistic change. If there is nothing to change, delivers mail.
    pub fn step(&mut self, letters: &LetterPool, now: Timestamp) {
        let kind = self.rng.weighted(CHANGE_WEIGHTS.into_iter());
        let is_done = match (kind, self.any_message()) {
            (1, Some((folder, uid))) => self.toggle(folder, uid, SEEN),
            (2, Some((folder, uid))) => self.toggle(folder, uid, FLAGGED),
            (3, Some((folder, uid))) => {
                let to = self.any_folder();
                to != folder && self.move_message(folder, uid, to).is_ok()
            }
            (4, Some((folder, uid))) => {
                let trash = self.with_role(SpecialUse::Trash);
                trash != folder && self.move_message(folder, uid, trash).is_ok()
            }
            (5, Some((folder, uid))) => self.expunge(folder, uid).is_ok(),
            (6, Some((folder, uid))) => {
                let to = self.any_folder();
                self.copy(folder, uid, to).is_ok()
            }
            (7, Some((folder, uid))) => self.toggle(folder, uid, "$Label1"),
            (8, _) => self.step_folder(),
            (9, _) => self.any_own_folder().is_some_and(|folder| self.delete_folder(folder).is_ok()),
            _ => false,
        };
        if !is_done {
            self.receive(letters, now);
        }
    }

    /// Delivers a random letter, mostly to the inbox.
    fn receive(&mut self, letters: &LetterPool, at: Timestamp) {
        let folder = match self.rng.below(20) {
            0..=2 => self.with_role(SpecialUse::Sent),
            3 => self.with_role(SpecialUse::Junk),
            4 => self.with_role(SpecialUse::Trash),
            5 => self.with_role(SpecialUse::Archive),
            6 | 7 => self.any_folder(),
            _ => self.with_role(SpecialUse::Inbox),
        };
        let mut flags = BTreeSet::new();
        if self.rng.percent(60) {
            flags.insert(SEEN.to_owned());
        }
        let content = self.write(letters);
        let added = self.add(folder, NewImapMessage { content, flags, received: seconds(at) });
        added.expect("folders are chosen among those that are there");
    }

    fn toggle(&mut self, folder: u32, uid: u32, flag: &str) -> bool {
        let toggled = self.set_flags(folder, uid, |flags| {
            if !flags.remove(flag) {
                flags.insert(flag.to_owned());
            }
        });
        toggled.is_ok()
    }

    fn step_folder(&mut self) -> bool {
        let name = format!("{} {}", self.rng.pick(&FOLDER_NAMES), self.rng.below(1_000));
        match (self.rng.below(3), self.any_own_folder()) {
            (0, Some(folder)) => self.rename_folder(folder, &name).is_ok(),
            (1, Some(folder)) => self.renumber(folder).is_ok(),
            _ => self.folders.len() < MAX_FOLDERS && self.create_folder(&name).is_ok(),
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
    fn any_message(&mut self) -> Option<(u32, u32)> {
        let full: Vec<u32> =
            self.folders.iter().filter(|(_, folder)| !folder.messages.is_empty()).map(|(number, _)| *number).collect();
        if full.is_empty() {
            return None;
        }
        let folder = *self.rng.pick(&full);
        let last = self.folders[&folder].uid_next as usize;
        let uid = self.rng.below(last).max(self.rng.below(last)) as u32;
        let messages = &self.folders[&folder].messages;
        let found = messages.range(uid..).next().or_else(|| messages.first_key_value());
        found.map(|(uid, _)| (folder, *uid))
    }
}
