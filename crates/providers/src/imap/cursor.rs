//! Cursors of a folder, as JSON with short keys.

use std::collections::BTreeMap;

use domain::ConnectorError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::client::{ExaminedFolder, FolderStatus};

/// Position in the changes of a folder: everything up to here was reported. Its numbers are of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderCursor {
    #[serde(rename = "v")]
    pub validity: u32,
    /// The first UID that was not reported.
    #[serde(rename = "n")]
    pub next: u32,
    /// Number of messages below that.
    #[serde(rename = "c")]
    pub messages: u32,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub modseq: Option<u64>,
    /// Flag changes are reported below this UID; `None` means all of them. Without `modseq`: the next window to scan.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub flags_done_below: Option<u32>,
    /// The modification sequence after all flag changes, while reporting them takes several pages.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub flags_end_modseq: Option<u64>,
    /// All messages are listed again, because the folder was replaced or its modification sequences went back.
    #[serde(rename = "a", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_relisting: bool,
    /// Without `modseq`: hashes of the flags, by window.
    #[serde(rename = "w", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub windows: BTreeMap<u32, u32>,
}

impl FolderCursor {
    /// Returns the start of a folder, with nothing reported.
    pub fn start(validity: u32) -> Self {
        Self { validity, next: 1, ..Self::default() }
    }

    /// Returns the position after everything in this status, or `None` if the status lacks an item.
    pub fn of_status(status: &FolderStatus) -> Option<Self> {
        let (next, messages) = (status.uid_next?, status.messages?);
        Some(Self {
            validity: status.uid_validity.unwrap_or(0),
            next,
            messages,
            modseq: status.highest_modseq,
            ..Self::default()
        })
    }

    /// Returns the position after everything in the opened folder.
    pub fn of_examined(examined: &ExaminedFolder, next: u32) -> Self {
        Self {
            validity: examined.uid_validity.unwrap_or(0),
            next,
            messages: examined.exists,
            modseq: examined.highest_modseq,
            ..Self::default()
        }
    }

    /// Returns whether the status shows no change since. Without modification sequences that cannot be known.
    pub fn is_current(&self, status: &FolderStatus) -> bool {
        self.modseq.is_some()
            && !self.is_relisting
            && self.flags_done_below.is_none()
            && Self::of_status(status).is_some_and(|now| {
                (now.next, now.messages, now.modseq) == (self.next, self.messages, self.modseq)
                    && (now.validity == self.validity || now.validity == 0)
            })
    }
}

/// Position in a listing from the newest message to the oldest: UIDs from `below` on are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingCursor {
    #[serde(rename = "v")]
    pub validity: u32,
    #[serde(rename = "b")]
    pub below: u32,
}

/// Serializes a cursor.
pub fn text(cursor: &impl Serialize) -> Result<String, ConnectorError> {
    serde_json::to_string(cursor).map_err(|e| ConnectorError::Protocol(format!("a cursor cannot be serialized: {e}")))
}

/// Parses a cursor; one that is not valid counts as expired.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, ConnectorError> {
    serde_json::from_str(text).map_err(|_| ConnectorError::CursorExpired)
}
