//! A message as JMAP lists it (RFC 8621, section 4).

use std::collections::{BTreeMap, HashSet};

use domain::connector::{Placement, SeenMessage};
use domain::{ConnectorError, Flags};
use jiff::Timestamp;
use serde::Deserialize;

use crate::provider_text::{printable, valid_id};

/// Properties that are requested of each message. All but the mailboxes and keywords never change.
pub const EMAIL_PROPERTIES: [&str; 7] = ["id", "blobId", "threadId", "mailboxIds", "keywords", "size", "receivedAt"];

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JmapEmail {
    pub id: String,
    pub blob_id: String,
    pub thread_id: Option<String>,
    pub mailbox_ids: BTreeMap<String, bool>,
    #[serde(default)]
    pub keywords: BTreeMap<String, bool>,
    /// Size of the bytes of the blob, exactly.
    pub size: u64,
    pub received_at: Timestamp,
}

impl JmapEmail {
    /// Returns its placements in these folders, or in all of them. It has the same flags in each.
    pub fn seen(&self, folders: Option<&HashSet<String>>) -> Result<Vec<SeenMessage>, ConnectorError> {
        let id = valid_id(self.id.clone())?;
        let placed = self.mailbox_ids.iter().filter(|(_, is_in)| **is_in);
        let placed = placed.filter(|(folder, _)| folders.is_none_or(|folders| folders.contains(*folder)));
        let seen = placed.map(|(folder, _)| SeenMessage {
            message: id.clone(),
            placement: Placement { folder: folder.clone(), uid: id.clone() },
            flags: self.flags(),
            size_bytes: Some(self.size),
            received_at: Some(self.received_at),
            // A message never changes: another draft has another id.
            revision: None,
        });
        Ok(seen.collect())
    }

    fn flags(&self) -> Flags {
        let keywords = self.keywords.iter().filter(|(_, is_set)| **is_set);
        Flags::from_names(keywords.map(|(keyword, _)| flag(keyword)))
    }
}

/// Returns the flag that a keyword is, by the name that IMAP has for it.
fn flag(keyword: &str) -> String {
    let keyword = printable(keyword).to_ascii_lowercase();
    match keyword.as_str() {
        "$seen" | "$flagged" | "$answered" | "$draft" => keyword[1..].to_owned(),
        _ => keyword,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mailboxes_become_placements_and_keywords_flags() {
        let email: JmapEmail = serde_json::from_value(json!({
            "id": "M1", "blobId": "G1", "threadId": "T1", "size": 7, "receivedAt": "2026-02-01T12:00:00Z",
            "mailboxIds": {"P1": true, "P2": true, "P3": true},
            "keywords": {"$seen": true, "$Forwarded": true, "urgent": true, "$draft": false},
        }))
        .unwrap();

        let seen = email.seen(Some(&HashSet::from(["P1".to_owned(), "P3".to_owned()]))).unwrap();

        let folders: Vec<&str> = seen.iter().map(|seen| seen.placement.folder.as_str()).collect();
        assert_eq!(folders, ["P1", "P3"]);
        assert_eq!(seen[0].flags.names(), ["$forwarded", "seen", "urgent"]);
        assert_eq!((seen[0].message.as_str(), seen[0].size_bytes), ("M1", Some(7)));
    }
}
