//! Ids as Exchange writes them: long, opaque, and different though they look alike but for the case of a letter.

use super::account::Account;

/// What ids begin with, by what they are of.
const MESSAGE: &str = "AAMkAD";
const IMMUTABLE: &str = "AAkALg";
const FOLDER: &str = "AQMkAD";
const CONVERSATION: &str = "AAQkAD";

/// Why there is nothing of this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSuch {
    /// It is no id at all.
    Malformed,
    Missing,
}

impl Account {
    /// The id that stays, or the one that a move changes.
    pub fn message_id(&self, number: u64, is_immutable: bool) -> String {
        match is_immutable {
            true => self.written(IMMUTABLE, number, 0),
            false => self.written(MESSAGE, number, self.messages.get(&number).map_or(0, |message| message.moves)),
        }
    }

    /// Of a message that is gone from a folder: as it was when it was there.
    pub fn id_before(&self, number: u64, moves: u16, is_immutable: bool) -> String {
        match is_immutable {
            true => self.written(IMMUTABLE, number, 0),
            false => self.written(MESSAGE, number, moves),
        }
    }

    pub fn folder_id(&self, number: u32) -> String {
        self.written(FOLDER, u64::from(number), 0)
    }

    pub fn conversation_id(&self, thread: u64) -> String {
        self.written(CONVERSATION, thread, 0)
    }

    /// Either kind of id.
    pub fn find_message(&self, id: &str) -> Result<u64, NoSuch> {
        if !id.starts_with(MESSAGE) && !id.starts_with(IMMUTABLE) {
            return Err(NoSuch::Malformed);
        }
        let number = self.read_number(id).ok_or(NoSuch::Missing)?;
        let is_there = self.messages.contains_key(&number)
            && (self.message_id(number, true) == id || self.message_id(number, false) == id);
        if is_there { Ok(number) } else { Err(NoSuch::Missing) }
    }

    /// An id, or a well-known name.
    pub fn find_folder(&self, id: &str) -> Result<u32, NoSuch> {
        let well_known = |name: &&'static str| name.eq_ignore_ascii_case(id);
        if let Some((number, _)) =
            self.folders.iter().find(|(_, folder)| folder.well_known.as_ref().is_some_and(well_known))
        {
            return Ok(*number);
        }
        if !id.starts_with(FOLDER) {
            return Err(NoSuch::Malformed);
        }
        let number = self.read_number(id).and_then(|number| u32::try_from(number).ok()).ok_or(NoSuch::Missing)?;
        let is_there = self.folders.contains_key(&number) && self.folder_id(number) == id;
        if is_there { Ok(number) } else { Err(NoSuch::Missing) }
    }

    /// Two numbers after each other differ in the case of one letter only.
    fn written(&self, begin: &str, number: u64, moves: u16) -> String {
        let mixed = ((number / 2) ^ self.mask()).rotate_left(23);
        let letter = if number.is_multiple_of(2) { 'Q' } else { 'q' };
        format!("{begin}{:08x}LTk{mixed:016X}Ag{moves:04x}{letter}AAA=", self.mask() as u32)
    }

    fn read_number(&self, id: &str) -> Option<u64> {
        let half = u64::from_str_radix(id.get(17..33)?, 16).ok()?.rotate_right(23) ^ self.mask();
        let is_odd = id.get(39..40)? == "q";
        half.checked_mul(2)?.checked_add(u64::from(is_odd))
    }

    fn mask(&self) -> u64 {
        self.seed >> 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn folders_are_found_by_their_ids_and_by_their_well_known_names() {
        let account = Account::new(77);

        let inbox = account.find_folder("inbox").unwrap();

        assert_eq!(account.find_folder(&account.folder_id(inbox)), Ok(inbox));
        assert_eq!(account.find_folder("Inbox"), Ok(inbox));
        assert_eq!(account.find_folder("nowhere"), Err(NoSuch::Malformed));
        assert_eq!(account.find_folder(&Account::new(78).folder_id(inbox)), Err(NoSuch::Missing));
    }

    #[test]
    fn some_ids_differ_in_case_only() {
        let account = Account::new(77);
        let ids: BTreeSet<String> = (2..10).map(|number| account.id_before(number, 0, true)).collect();

        let lower: BTreeSet<String> = ids.iter().map(|id| id.to_lowercase()).collect();

        assert_eq!((ids.len(), lower.len()), (8, 4));
    }
}
