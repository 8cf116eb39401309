//! Changes as people and programs make them, drawn from the mailbox's own seed.

use jiff::Timestamp;

use super::account::{Account, FolderId, MessageId, Refused, Role, Uid};
use super::letters::Letters;

/// How often each kind of change comes, in the order of the match below.
const WEIGHTS: [u32; 12] = [36, 20, 14, 5, 8, 3, 3, 5, 2, 2, 1, 1];

/// Folders that people made; with so many, no more are made.
const FOLDERS: usize = 12;

const FLAGS: [&str; 4] = ["answered", "flagged", "forwarded", "seen"];

const NAMES: [&str; 8] = ["Projects", "Invoices", "Travel", "Müller & Söhne", "2024", "請求書", "To do", "Later"];

impl Account {
    /// One change that could happen in life. With nothing to change yet, mail comes.
    pub fn step(&mut self, letters: &Letters, now: Timestamp) {
        let done = match self.rng.weighted(WEIGHTS.into_iter()) {
            1 => self.step_flags(),
            2 => self.step_move(),
            3 => self.step_copy(),
            4 => self.step_delete(),
            5 => self.step_restore(),
            6 => self.draft(letters, now).map(|_| true),
            7 => self.step_edit(letters),
            8 => self.deliver(self.folder_with(Role::Inbox), 2, now, &[], letters).map(|_| true),
            9 => self.step_expunge(),
            10 => self.step_folder(),
            11 => self.step_delete_folder(),
            _ => Ok(false),
        };
        if !done.expect("a step chooses only what is there") {
            let folder = self.any_folder_for_mail();
            let delivered = self.deliver(folder, 1, now, &[], letters);
            delivered.expect("a step chooses only folders that are there");
        }
    }

    fn step_flags(&mut self) -> Result<bool, Refused> {
        let Some((_, folder, uid)) = self.any_place() else { return Ok(false) };
        let (_, mut flags) = self.flags_at(folder, uid)?;
        let flag = *self.rng.pick(&FLAGS);
        match flags.iter().position(|name| name == flag) {
            Some(at) => drop(flags.remove(at)),
            None => flags.push(flag.to_owned()),
        }
        self.set_flags(folder, uid, flags).map(|()| true)
    }

    fn step_move(&mut self) -> Result<bool, Refused> {
        let Some((_, folder, uid)) = self.any_place() else { return Ok(false) };
        let to = self.any_folder();
        if to == folder {
            return Ok(false);
        }
        self.move_message(folder, uid, to).map(|_| true)
    }

    fn step_copy(&mut self) -> Result<bool, Refused> {
        let Some((message, folder, uid)) = self.any_place() else { return Ok(false) };
        let (_, flags) = self.flags_at(folder, uid)?;
        let to = self.any_folder();
        self.place(message, to, flags).map(|_| true)
    }

    fn step_delete(&mut self) -> Result<bool, Refused> {
        let Some((_, folder, uid)) = self.any_place() else { return Ok(false) };
        self.delete(folder, uid).map(|()| true)
    }

    fn step_restore(&mut self) -> Result<bool, Refused> {
        let count = self.deleted.len();
        let Some((message, _)) = self.deleted.get(self.rng.below(count)) else { return Ok(false) };
        let message = *message;
        let to = self.any_folder();
        self.restore(message, to).map(|_| true)
    }

    fn step_edit(&mut self, letters: &Letters) -> Result<bool, Refused> {
        let drafts = &self.folders[&self.folder_with(Role::Drafts)].messages;
        // Mail that somebody moved there is no draft.
        let drafts: Vec<MessageId> =
            drafts.values().copied().filter(|message| self.messages[message].revision.is_some()).collect();
        if drafts.is_empty() {
            return Ok(false);
        }
        let draft = *self.rng.pick(&drafts);
        self.edit(draft, letters).map(|_| true)
    }

    fn step_expunge(&mut self) -> Result<bool, Refused> {
        let folder = self.any_folder();
        let skip = self.rng.below(self.folders[&folder].messages.len());
        let uids: Vec<Uid> = self.folders[&folder].messages.keys().skip(skip).take(2).copied().collect();
        self.expunge(folder, &uids).map(|()| true)
    }

    fn step_folder(&mut self) -> Result<bool, Refused> {
        let own = self.own_folders();
        let mut name = format!("{} {}", self.rng.pick(&NAMES), self.rng.below(1_000));
        if own.len() < FOLDERS && (own.is_empty() || self.rng.percent(50)) {
            if !own.is_empty() && self.rng.percent(30) {
                let parent = *self.rng.pick(&own);
                name = format!("{}/{name}", self.folders[&parent].name);
            }
            self.add_folder(name, None);
            return Ok(true);
        }
        let folder = *self.rng.pick(&own);
        self.rename_folder(folder, name).map(|()| true)
    }

    fn step_delete_folder(&mut self) -> Result<bool, Refused> {
        let own = self.own_folders();
        if own.is_empty() {
            return Ok(false);
        }
        let folder = *self.rng.pick(&own);
        self.delete_folder(folder).map(|()| true)
    }

    fn own_folders(&self) -> Vec<FolderId> {
        self.folders.iter().filter(|(_, folder)| folder.role.is_none()).map(|(id, _)| *id).collect()
    }

    fn any_folder(&mut self) -> FolderId {
        let at = self.rng.below(self.folders.len());
        *self.folders.keys().nth(at).expect("below their number")
    }

    /// Mostly the inbox.
    fn any_folder_for_mail(&mut self) -> FolderId {
        match self.rng.below(10) {
            0 => self.folder_with(Role::Sent),
            1 => self.folder_with(Role::Spam),
            2 => self.any_folder(),
            _ => self.folder_with(Role::Inbox),
        }
    }

    /// Without walking the whole mailbox: the first message at or after a number, lately come ones more often.
    fn any_place(&mut self) -> Option<(MessageId, FolderId, Uid)> {
        let last = self.next_message_number() as usize;
        let number = self.rng.below(last).max(self.rng.below(last)) as u64;
        let (id, message) =
            self.messages.range(MessageId(number)..).next().or_else(|| self.messages.first_key_value())?;
        let place = self.rng.pick(&message.places);
        Some((*id, place.folder, place.uid))
    }
}
