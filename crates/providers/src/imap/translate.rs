//! Translates IMAP metadata into placements and flags.

use domain::Flags;
use domain::connector::{Placement, SeenMessage};
use jiff::Timestamp;

use super::client::Metadata;

/// Metadata of a message that no longer borrows from the connection's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMessage {
    pub uid: u32,
    id: Option<String>,
    flags: Flags,
    pub size_bytes: Option<u64>,
    pub received_at: Option<Timestamp>,
}

impl ListedMessage {
    pub fn new(metadata: &Metadata<'_>) -> Self {
        Self {
            uid: metadata.uid,
            id: id_of(metadata),
            flags: flags(metadata),
            size_bytes: metadata.size_bytes,
            received_at: metadata.received_at,
        }
    }

    pub fn seen(self, folder: &str, validity: u32) -> SeenMessage {
        let place = place(folder, validity, self.uid);
        SeenMessage {
            // Without message ids, a placement is the message's id.
            message: self.id.unwrap_or_else(|| format!("{folder}.{}", place.uid)),
            placement: place,
            flags: self.flags,
            size_bytes: self.size_bytes,
            received_at: self.received_at,
            revision: None,
        }
    }

    /// Returns the flags as text, for comparisons.
    pub fn flags_text(&self) -> String {
        self.flags.names().join(" ")
    }
}

/// Returns the placement of a UID, which is valid as long as the folder's UIDVALIDITY.
pub fn place(folder: &str, validity: u32, uid: u32) -> Placement {
    Placement { folder: folder.to_owned(), uid: uid_text(validity, uid) }
}

pub fn uid_text(validity: u32, uid: u32) -> String {
    format!("{validity}.{uid}")
}

/// Returns the UIDVALIDITY and the UID of a placement.
pub fn uid_of(place: &Placement) -> Option<(u32, u32)> {
    let (validity, uid) = place.uid.split_once('.')?;
    Some((validity.parse().ok()?, uid.parse().ok()?))
}

/// Returns the message's permanent id in the account, if the server has one.
fn id_of(metadata: &Metadata<'_>) -> Option<String> {
    match (metadata.gmail_id, metadata.email_id) {
        (Some(id), _) => Some(format!("gm-{id:x}")),
        (None, Some(id)) => Some(format!("e-{id}")),
        (None, None) => None,
    }
}

/// Returns the flags, with Gmail's labels among them and without `\Recent`, which is a property of the session.
fn flags(metadata: &Metadata<'_>) -> Flags {
    let flags = metadata.flags().into_iter().flatten().filter(|flag| !flag.eq_ignore_ascii_case("\\Recent"));
    let flags = flags.map(|flag| flag.trim_start_matches('\\').to_ascii_lowercase());
    let labels = metadata.labels().map(|label| format!("label:{label}"));
    Flags::from_names(flags.chain(labels))
}
