//! Initial mail and random changes of a mailbox, drawn from its own seed.

use jiff::{SignedDuration, Timestamp};

use super::account::{NewOutlookMessage, OutlookAccount};
use super::folders::{ARCHIVE, DELETED, DRAFTS, INBOX, JUNK, ROOT, SENT};
use crate::letter_pool::LetterPool;

/// The weight of each kind of change, in the order of the match below.
const CHANGE_WEIGHTS: [u32; 10] = [40, 20, 8, 14, 6, 6, 2, 6, 3, 2];

/// The maximum number of folders that random changes create.
const MAX_FOLDERS: usize = 30;

/// The time between two messages of the initial mail.
const INITIAL_MAIL_INTERVAL: SignedDuration = SignedDuration::from_mins(15);

const FOLDER_NAMES: [&str; 6] = ["Invoices", "Travel", "Later", "Клиенты", "To do", "A/B"];

impl OutlookAccount {
    /// Adds the initial mail.
    pub fn fill(&mut self, count: usize, letters: &LetterPool, now: Timestamp) {
        for number in (1..=count).rev() {
            let at = now - INITIAL_MAIL_INTERVAL * number as i32;
            self.receive(letters, at, at);
        }
        self.drop_initial_events();
    }

    /// Applies one random, realistic change. If there is nothing to change, delivers mail.
    pub fn step(&mut self, letters: &LetterPool, now: Timestamp) {
        let kind = self.rng.weighted(CHANGE_WEIGHTS.into_iter());
        let is_done = match (kind, self.any_message()) {
            (1, Some(number)) => self.touch(number, now, |message| message.is_read = !message.is_read).is_ok(),
            (2, Some(number)) => self.touch(number, now, |message| message.is_flagged = !message.is_flagged).is_ok(),
            (3, Some(number)) => {
                let to = self.any_folder();
                self.move_message(number, to, now).is_ok()
            }
            (4, Some(number)) => self.move_message(number, DELETED, now).is_ok(),
            (5, Some(number)) => self.purge(number).is_ok(),
            (6, Some(number)) => {
                let to = self.any_folder();
                self.copy(number, to, now).is_ok()
            }
            (7, _) => self.step_draft(letters, now),
            (8, _) => self.step_folder(),
            (9, _) => self.step_folder_away(),
            _ => false,
        };
        if !is_done {
            self.receive(letters, now, now);
        }
    }

    /// Delivers a random letter, mostly to the inbox.
    fn receive(&mut self, letters: &LetterPool, received: Timestamp, now: Timestamp) {
        let folder = match self.rng.below(20) {
            0..=2 => SENT,
            3 => JUNK,
            4 => DELETED,
            5 => ARCHIVE,
            6..=8 => self.any_folder(),
            _ => INBOX,
        };
        let is_read = folder == SENT || self.rng.percent(60);
        let is_reply = self.rng.percent(30);
        let thread = self.any_message().filter(|_| is_reply).map(|number| self.messages[&number].thread);
        let content = self.write(letters);
        self.add(NewOutlookMessage { content, folder, is_read, is_draft: false, received, thread }, now);
    }

    fn step_draft(&mut self, letters: &LetterPool, now: Timestamp) -> bool {
        let drafts = self.folders[&DRAFTS].by_date.iter().rev();
        let draft = drafts.map(|(_, number)| *number).find(|number| self.messages[number].is_draft);
        let draft = draft.map(|number| self.message_id(number, true));
        match (self.rng.below(3), draft) {
            (0, Some(draft)) => self.send_draft(&draft, now).is_ok(),
            (1, Some(draft)) => self.draft(Some(&draft), None, letters, now).is_ok(),
            _ => self.draft(None, None, letters, now).is_ok(),
        }
    }

    fn step_folder(&mut self) -> bool {
        let name = format!("{} {}", self.rng.pick(&FOLDER_NAMES), self.rng.below(1_000));
        let (own, parent) = (self.any_own_folder(), self.any_folder());
        match (self.rng.below(3), own) {
            (0, Some(folder)) => self.rename_folder(folder, &name).is_ok(),
            (1, Some(folder)) => self.move_folder(folder, ROOT).is_ok(),
            _ => self.folders.len() < MAX_FOLDERS && self.create_folder(parent, &name).is_ok(),
        }
    }

    fn step_folder_away(&mut self) -> bool {
        let Some(folder) = self.any_own_folder() else { return false };
        if self.rng.percent(50) { self.move_folder(folder, DELETED).is_ok() } else { self.purge_folder(folder).is_ok() }
    }

    fn any_own_folder(&mut self) -> Option<u32> {
        let own: Vec<u32> = self.mail_folders().filter(|number| self.folders[number].well_known.is_none()).collect();
        (!own.is_empty()).then(|| *self.rng.pick(&own))
    }

    fn any_folder(&mut self) -> u32 {
        let all: Vec<u32> = self.mail_folders().collect();
        *self.rng.pick(&all)
    }

    fn mail_folders(&self) -> impl Iterator<Item = u32> {
        let visible = self.folders.iter().filter(|(_, folder)| folder.holds_mail() && !folder.is_hidden);
        visible.map(|(number, _)| *number)
    }

    /// Picks a random message, recent ones more often, without walking the mailbox.
    fn any_message(&mut self) -> Option<u64> {
        let last = self.next_message as usize;
        let number = self.rng.below(last).max(self.rng.below(last)) as u64;
        let found = self.messages.range(number..).next().or_else(|| self.messages.first_key_value());
        found.map(|(number, _)| *number)
    }
}
