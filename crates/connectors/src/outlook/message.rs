//! A message as Graph lists it, and what it says to us.

use domain::connector::{Place, Seen};
use domain::{ConnectorError, Flags};
use jiff::Timestamp;
use serde::Deserialize;

use crate::names::name;

/// What is asked for of each message.
pub const FIELDS: &str = "id,changeKey,isRead,isDraft,flag,receivedDateTime,lastModifiedDateTime,parentFolderId";

/// Of a text that does not change any more.
const FINAL: &str = "final";

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub id: String,
    pub change_key: Option<String>,
    pub is_read: Option<bool>,
    pub is_draft: Option<bool>,
    pub flag: Option<Flag>,
    pub received_date_time: Option<Timestamp>,
    pub last_modified_date_time: Option<Timestamp>,
    pub parent_folder_id: Option<String>,
    /// It is not there any more.
    #[serde(rename = "@removed")]
    pub removed: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flag {
    pub flag_status: Option<String>,
}

impl Message {
    /// In this folder.
    pub fn seen(&self, folder: &str) -> Result<Seen, ConnectorError> {
        let is_flagged = self.flag.as_ref().is_some_and(|flag| flag.flag_status.as_deref() == Some("flagged"));
        let (is_read, is_draft) = (self.is_read.unwrap_or_default(), self.is_draft.unwrap_or_default());
        let marks = [(is_read, "seen"), (is_flagged, "flagged"), (is_draft, "draft")];
        let id = name(self.id.clone())?;
        Ok(Seen {
            place: Place { folder: folder.to_owned(), uid: id.clone() },
            message: id,
            flags: Flags::from_names(marks.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name)),
            size_bytes: None,
            received_at: self.received_date_time,
            // Once it is sent the text stays what it is, whatever else happens to it.
            revision: if is_draft { self.change_key.clone() } else { Some(FINAL.to_owned()) },
        })
    }
}
