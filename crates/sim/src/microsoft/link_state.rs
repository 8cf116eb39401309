//! The state in next and delta links, as an opaque token.

use serde::{Deserialize, Serialize};

use crate::opaque_token;

/// The state of a listing or delta round, with the options of its first request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// The listing that the link belongs to.
    pub of: String,
    /// Whether this is the initial round, which lists everything.
    #[serde(rename = "i")]
    pub is_initial: bool,
    /// The change counter at the start of the round.
    #[serde(rename = "s")]
    pub start: u64,
    /// The position of the last page: a time or change, and a number.
    #[serde(rename = "a")]
    pub at: Option<(i64, u64)>,
    /// The number of items reported in this round.
    #[serde(rename = "t")]
    pub reported: usize,
    /// Whether the last page was empty.
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
    /// The time of issue; some links expire.
    #[serde(rename = "d")]
    pub issued_ms: i64,
}

impl LinkState {
    pub fn write(&self, seed: u64) -> String {
        opaque_token::encode(seed, self)
    }

    /// Decodes a link. Returns `None` if it is forged, or belongs to another mailbox or listing.
    pub fn read(token: &str, seed: u64, of: &str) -> Option<Self> {
        opaque_token::decode::<Self>(seed, token).filter(|place| place.of == of)
    }

    /// Returns a number that depends only on the position.
    pub fn chance(&self, seed: u64) -> u64 {
        opaque_token::checksum(seed, &format!("{:?} {} {}", self.at, self.start, self.reported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_valid_only_for_its_own_listing() {
        let place = LinkState { of: "inbox".to_owned(), start: 7, at: Some((-3, 9)), ..LinkState::default() };
        let token = place.write(1);

        assert_eq!(LinkState::read(&token, 1, "inbox"), Some(place));
        assert_eq!(LinkState::read(&token, 2, "inbox"), None);
        assert_eq!(LinkState::read(&token, 1, "drafts"), None);
        assert_eq!(LinkState::read(&token[1..], 1, "inbox"), None);
    }
}
