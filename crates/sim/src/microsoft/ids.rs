//! Exchange-like ids: long, opaque and case-sensitive.

use super::account::OutlookAccount;

/// Id prefixes by kind of object.
const MESSAGE: &str = "AAMkAD";
const IMMUTABLE: &str = "AAkALg";
const FOLDER: &str = "AQMkAD";
const CONVERSATION: &str = "AAQkAD";

/// The reason why an id finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdError {
    /// The text is not an id.
    Malformed,
    Missing,
}

impl OutlookAccount {
    /// Returns the immutable id, or the one that changes with a move.
    pub fn message_id(&self, number: u64, is_immutable: bool) -> String {
        if is_immutable {
            self.written(IMMUTABLE, number, 0)
        } else {
            self.written(MESSAGE, number, self.messages.get(&number).map_or(0, |message| message.moves))
        }
    }

    /// Returns the id that a message had before it left a folder.
    pub fn id_before(&self, number: u64, moves: u16, is_immutable: bool) -> String {
        if is_immutable { self.written(IMMUTABLE, number, 0) } else { self.written(MESSAGE, number, moves) }
    }

    pub fn folder_id(&self, number: u32) -> String {
        self.written(FOLDER, u64::from(number), 0)
    }

    pub fn conversation_id(&self, thread: u64) -> String {
        self.written(CONVERSATION, thread, 0)
    }

    /// Finds a message by either kind of id.
    pub fn find_message(&self, id: &str) -> Result<u64, IdError> {
        if !id.starts_with(MESSAGE) && !id.starts_with(IMMUTABLE) {
            return Err(IdError::Malformed);
        }
        let number = self.read_number(id).ok_or(IdError::Missing)?;
        let is_there = self.messages.contains_key(&number)
            && (self.message_id(number, true) == id || self.message_id(number, false) == id);
        if is_there { Ok(number) } else { Err(IdError::Missing) }
    }

    /// Finds a folder by id or well-known name.
    pub fn find_folder(&self, id: &str) -> Result<u32, IdError> {
        if let Some((number, _)) = self.folders.iter().find(|(_, folder)| {
            folder.well_known.as_ref().is_some_and(|name: &&'static str| name.eq_ignore_ascii_case(id))
        }) {
            return Ok(*number);
        }
        if !id.starts_with(FOLDER) {
            return Err(IdError::Malformed);
        }
        let number = self.read_number(id).and_then(|number| u32::try_from(number).ok()).ok_or(IdError::Missing)?;
        let is_there = self.folders.contains_key(&number) && self.folder_id(number) == id;
        if is_there { Ok(number) } else { Err(IdError::Missing) }
    }

    /// Encodes an id. Consecutive numbers differ only in the case of one letter.
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
    fn folders_are_found_by_id_and_well_known_name() {
        let account = OutlookAccount::new(77);

        let inbox = account.find_folder("inbox").unwrap();

        assert_eq!(account.find_folder(&account.folder_id(inbox)), Ok(inbox));
        assert_eq!(account.find_folder("Inbox"), Ok(inbox));
        assert_eq!(account.find_folder("nowhere"), Err(IdError::Malformed));
        assert_eq!(account.find_folder(&OutlookAccount::new(78).folder_id(inbox)), Err(IdError::Missing));
    }

    #[test]
    fn ids_may_differ_only_in_case() {
        let account = OutlookAccount::new(77);
        let ids: BTreeSet<String> = (2..10).map(|number| account.id_before(number, 0, true)).collect();

        let lower: BTreeSet<String> = ids.iter().map(|id| id.to_lowercase()).collect();

        assert_eq!((ids.len(), lower.len()), (8, 4));
    }
}
