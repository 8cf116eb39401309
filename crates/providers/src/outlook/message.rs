//! A message as Graph lists it.

use domain::connector::{Placement, SeenMessage};
use domain::{ConnectorError, Flags};
use jiff::Timestamp;
use serde::Deserialize;

use crate::provider_text::valid_id;

/// Properties that are requested of each message (`$select`).
pub const MESSAGE_FIELDS: &str =
    "id,changeKey,isRead,isDraft,flag,receivedDateTime,lastModifiedDateTime,parentFolderId";

/// Revision of a sent message, whose text no longer changes.
const FINAL_REVISION: &str = "final";

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphMessage {
    pub id: String,
    pub change_key: Option<String>,
    pub is_read: Option<bool>,
    pub is_draft: Option<bool>,
    pub flag: Option<FollowupFlag>,
    pub received_date_time: Option<Timestamp>,
    pub last_modified_date_time: Option<Timestamp>,
    pub parent_folder_id: Option<String>,
    /// Present in a delta if the message is no longer in the folder.
    #[serde(rename = "@removed")]
    pub removed: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowupFlag {
    pub flag_status: Option<String>,
}

impl GraphMessage {
    /// Returns the message with its placement in this folder.
    pub fn seen(&self, folder: &str) -> Result<SeenMessage, ConnectorError> {
        let is_flagged = self.flag.as_ref().is_some_and(|flag| flag.flag_status.as_deref() == Some("flagged"));
        let (is_read, is_draft) = (self.is_read.unwrap_or_default(), self.is_draft.unwrap_or_default());
        let flags = [(is_read, "seen"), (is_flagged, "flagged"), (is_draft, "draft")];
        let id = valid_id(self.id.clone())?;
        Ok(SeenMessage {
            placement: Placement { folder: folder.to_owned(), uid: id.clone() },
            message: id,
            flags: Flags::from_names(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name)),
            size_bytes: None,
            received_at: self.received_date_time,
            // Once it is sent, its text stays the same whatever else changes.
            revision: if is_draft { self.change_key.clone() } else { Some(FINAL_REVISION.to_owned()) },
        })
    }
}
