//! Changes as people and programs make them, drawn from the seed of the mailbox.

use domain::FolderRole;
use jiff::Timestamp;

use super::letters::LetterStock;
use super::mailbox::{WorldFolderId, WorldMailbox, WorldMessageId, WorldRefusal, WorldUid};

/// How often each kind of change comes, in the order of the match in `step`.
const WEIGHTS: [usize; 12] = [36, 20, 14, 5, 8, 3, 3, 5, 2, 2, 1, 1];

/// Folders without a role beyond which no more are made.
const MAX_OWN_FOLDERS: usize = 12;

const FLAGS: [&str; 4] = ["answered", "flagged", "forwarded", "seen"];

const FOLDER_NAMES: [&str; 8] =
    ["Projects", "Invoices", "Travel", "Müller & Söhne", "2024", "請求書", "To do", "Later"];

impl WorldMailbox {
    /// Applies one random change. Mail comes if there is nothing to change yet.
    pub fn step(&mut self, letters: &LetterStock, now: Timestamp) {
        let is_changed = match self.random.weighted(&WEIGHTS) {
            1 => self.step_flags(),
            2 => self.step_move(),
            3 => self.step_copy(),
            4 => self.step_delete(),
            5 => self.step_restore(),
            6 => self.draft(letters, now).map(|_| true),
            7 => self.step_edit(letters),
            8 => self.deliver(self.folder_with(FolderRole::Inbox), 2, now, &[], letters).map(|_| true),
            9 => self.step_expunge(),
            10 => self.step_folder(),
            11 => self.step_delete_folder(),
            _ => Ok(false),
        };
        if !is_changed.expect("a step chooses only what is there") {
            let folder = self.any_folder_for_mail();
            self.deliver(folder, 1, now, &[], letters).expect("a step chooses only folders that are there");
        }
    }

    fn step_flags(&mut self) -> Result<bool, WorldRefusal> {
        let Some((_, folder, uid)) = self.any_placement() else { return Ok(false) };
        let (_, mut flags) = self.flags_at(folder, uid)?;
        let flag = *self.random.pick(&FLAGS);
        match flags.iter().position(|name| name == flag) {
            Some(at) => drop(flags.remove(at)),
            None => flags.push(flag.to_owned()),
        }
        self.set_flags(folder, uid, flags).map(|()| true)
    }

    fn step_move(&mut self) -> Result<bool, WorldRefusal> {
        let Some((_, folder, uid)) = self.any_placement() else { return Ok(false) };
        let to = self.any_folder();
        if to == folder {
            return Ok(false);
        }
        self.move_message(folder, uid, to).map(|_| true)
    }

    fn step_copy(&mut self) -> Result<bool, WorldRefusal> {
        let Some((message, folder, uid)) = self.any_placement() else { return Ok(false) };
        let (_, flags) = self.flags_at(folder, uid)?;
        let to = self.any_folder();
        self.place(message, to, flags).map(|_| true)
    }

    fn step_delete(&mut self) -> Result<bool, WorldRefusal> {
        let Some((_, folder, uid)) = self.any_placement() else { return Ok(false) };
        self.delete(folder, uid).map(|()| true)
    }

    fn step_restore(&mut self) -> Result<bool, WorldRefusal> {
        let at = self.random.below(self.deleted.len());
        let Some((message, _)) = self.deleted.get(at) else { return Ok(false) };
        let message = *message;
        let to = self.any_folder();
        self.restore(message, to).map(|_| true)
    }

    fn step_edit(&mut self, letters: &LetterStock) -> Result<bool, WorldRefusal> {
        let messages = self.folders[&self.folder_with(FolderRole::Drafts)].messages.values().copied();
        // Mail that was moved there is no draft.
        let drafts: Vec<WorldMessageId> =
            messages.filter(|message| self.messages[message].revision.is_some()).collect();
        if drafts.is_empty() {
            return Ok(false);
        }
        let draft = *self.random.pick(&drafts);
        self.edit(draft, letters).map(|_| true)
    }

    fn step_expunge(&mut self) -> Result<bool, WorldRefusal> {
        let folder = self.any_folder();
        let skip = self.random.below(self.folders[&folder].messages.len());
        let uids: Vec<WorldUid> = self.folders[&folder].messages.keys().skip(skip).take(2).copied().collect();
        self.expunge(folder, &uids).map(|()| true)
    }

    fn step_folder(&mut self) -> Result<bool, WorldRefusal> {
        let own = self.own_folders();
        let mut name = format!("{} {}", self.random.pick(&FOLDER_NAMES), self.random.below(1_000));
        if own.len() < MAX_OWN_FOLDERS && (own.is_empty() || self.random.chance(0.5)) {
            if !own.is_empty() && self.random.chance(0.3) {
                let parent = *self.random.pick(&own);
                name = format!("{}/{name}", self.folders[&parent].name);
            }
            self.add_folder(name, None);
            return Ok(true);
        }
        let folder = *self.random.pick(&own);
        self.rename_folder(folder, name).map(|()| true)
    }

    fn step_delete_folder(&mut self) -> Result<bool, WorldRefusal> {
        let own = self.own_folders();
        if own.is_empty() {
            return Ok(false);
        }
        let folder = *self.random.pick(&own);
        self.delete_folder(folder).map(|()| true)
    }

    fn own_folders(&self) -> Vec<WorldFolderId> {
        self.folders.iter().filter(|(_, folder)| folder.role.is_none()).map(|(id, _)| *id).collect()
    }

    fn any_folder(&mut self) -> WorldFolderId {
        let at = self.random.below(self.folders.len());
        *self.folders.keys().nth(at).expect("below their number")
    }

    /// Mostly the inbox.
    fn any_folder_for_mail(&mut self) -> WorldFolderId {
        match self.random.below(10) {
            0 => self.folder_with(FolderRole::Sent),
            1 => self.folder_with(FolderRole::Spam),
            2 => self.any_folder(),
            _ => self.folder_with(FolderRole::Inbox),
        }
    }

    /// Draws a placement, of new messages more often.
    fn any_placement(&mut self) -> Option<(WorldMessageId, WorldFolderId, WorldUid)> {
        let last = self.next_message_number() as usize;
        let number = self.random.below(last).max(self.random.below(last)) as u64;
        let mut following = self.messages.range(WorldMessageId(number)..);
        let (id, message) = following.next().or_else(|| self.messages.first_key_value())?;
        let placement = self.random.pick(&message.placements);
        Some((*id, placement.folder, placement.uid))
    }
}
