//! Where a listing stands in a folder, as text that only we read.

use std::collections::BTreeMap;

use domain::ConnectorError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::client::{Examined, FolderStatus};

/// Everything up to here is told. One moment of the folder: its numbers belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    #[serde(rename = "v")]
    pub validity: u32,
    /// The first UID that is not told.
    #[serde(rename = "n")]
    pub next: u32,
    /// How many messages were there below that.
    #[serde(rename = "c")]
    pub messages: u32,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub modseq: Option<u64>,
    /// Changes of flags are told up to below this UID; nothing: all of them.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub told_below: Option<u32>,
    /// Where telling the changes of flags leads to, while it takes several pages.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<u64>,
    /// The folder is another one under its name, or cannot say what has changed: all of it is told anew.
    #[serde(rename = "a", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_anew: bool,
    /// Where flags have to be looked at to see a change: what they were, by window.
    #[serde(rename = "w", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub windows: BTreeMap<u32, u32>,
}

impl Standing {
    /// Nothing of the folder is told yet.
    pub fn nothing(validity: u32) -> Self {
        Self { validity, next: 1, ..Self::default() }
    }

    /// All of it is told, as of this moment; nothing if the server does not say enough.
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

    pub fn of_examined(examined: &Examined, next: u32) -> Self {
        Self {
            validity: examined.uid_validity.unwrap_or(0),
            next,
            messages: examined.exists,
            modseq: examined.highest_modseq,
            ..Self::default()
        }
    }

    /// Whether the folder has not changed since, as far as its numbers tell. Without modification numbers they do not.
    pub fn is_as_in(&self, status: &FolderStatus) -> bool {
        self.modseq.is_some()
            && !self.is_anew
            && self.told_below.is_none()
            && Self::of_status(status).is_some_and(|now| {
                (now.next, now.messages, now.modseq) == (self.next, self.messages, self.modseq)
                    && (now.validity == self.validity || now.validity == 0)
            })
    }
}

/// Everything from here on up is told: a listing goes from the newest to the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    #[serde(rename = "v")]
    pub validity: u32,
    #[serde(rename = "b")]
    pub below: u32,
}

pub fn text(cursor: &impl Serialize) -> Result<String, ConnectorError> {
    serde_json::to_string(cursor).map_err(|e| ConnectorError::Protocol(format!("a cursor cannot be written: {e}")))
}

/// One that cannot be read is one that does not hold any more.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, ConnectorError> {
    serde_json::from_str(text).map_err(|_| ConnectorError::CursorExpired)
}
