//! Links to the next page and to what changes later: opaque, and good for nothing else.

use serde::{Deserialize, Serialize};

use crate::opaque;

/// What a link remembers. Options of the first request are part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// What it is a list of.
    pub of: String,
    /// A round of changes that began with all that there is.
    #[serde(rename = "i")]
    pub is_initial: bool,
    /// How many changes the mailbox had when the round began, or when the last one ended.
    #[serde(rename = "s")]
    pub start: u64,
    /// Where the last page ended: a time or a change, and a number.
    #[serde(rename = "a")]
    pub at: Option<(i64, u64)>,
    /// How many were told in this round.
    #[serde(rename = "t")]
    pub told: usize,
    /// The last page was an empty one.
    #[serde(rename = "e")]
    pub was_empty: bool,
    #[serde(rename = "n")]
    pub size: usize,
    #[serde(rename = "f")]
    pub select: Option<Vec<String>>,
    #[serde(rename = "q")]
    pub filter: Option<String>,
    #[serde(rename = "o")]
    pub order: Option<String>,
    #[serde(rename = "c")]
    pub change_type: Option<String>,
    /// Some links are good for a while only.
    #[serde(rename = "d")]
    pub issued_ms: i64,
}

impl Place {
    pub fn write(&self, seed: u64) -> String {
        opaque::write(seed, self)
    }

    /// Nothing: somebody else wrote it, or it is another mailbox's.
    pub fn read(token: &str, seed: u64, of: &str) -> Option<Self> {
        opaque::read::<Self>(seed, token).filter(|place| place.of == of)
    }

    /// Something that is the same each time for this place, and different for others.
    pub fn chance(&self, seed: u64) -> u64 {
        opaque::sum(seed, &format!("{:?} {} {}", self.at, self.start, self.told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_by_its_own_mailbox_for_its_own_list_only() {
        let place = Place { of: "inbox".to_owned(), start: 7, at: Some((-3, 9)), ..Place::default() };
        let token = place.write(1);

        assert_eq!(Place::read(&token, 1, "inbox"), Some(place));
        assert_eq!(Place::read(&token, 2, "inbox"), None);
        assert_eq!(Place::read(&token, 1, "drafts"), None);
        assert_eq!(Place::read(&token[1..], 1, "inbox"), None);
    }
}
