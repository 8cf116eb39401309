//! A server's words in ours.

use domain::Flags;
use domain::connector::{Place, Seen};
use jiff::Timestamp;

use super::client::Metadata;

/// A message in a folder, taken out of the connection's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub uid: u32,
    id: Option<String>,
    flags: Flags,
    pub size_bytes: Option<u64>,
    pub received_at: Option<Timestamp>,
}

impl Found {
    pub fn new(metadata: &Metadata<'_>) -> Self {
        Self {
            uid: metadata.uid,
            id: id_of(metadata),
            flags: flags(metadata),
            size_bytes: metadata.size_bytes,
            received_at: metadata.received_at,
        }
    }

    pub fn seen(self, folder: &str, validity: u32) -> Seen {
        let place = place(folder, validity, self.uid);
        Seen {
            // Where messages have no ids of their own, a message is what is in a place.
            message: self.id.unwrap_or_else(|| format!("{folder}.{}", place.uid)),
            place,
            flags: self.flags,
            size_bytes: self.size_bytes,
            received_at: self.received_at,
            revision: None,
        }
    }

    /// For comparing what flags were with what they are.
    pub fn flags_text(&self) -> String {
        self.flags.names().join(" ")
    }
}

/// UIDs hold for as long as the folder's number does.
pub fn place(folder: &str, validity: u32, uid: u32) -> Place {
    Place { folder: folder.to_owned(), uid: uid_text(validity, uid) }
}

pub fn uid_text(validity: u32, uid: u32) -> String {
    format!("{validity}.{uid}")
}

/// The folder's number and the UID of a place.
pub fn uid_of(place: &Place) -> Option<(u32, u32)> {
    let (validity, uid) = place.uid.split_once('.')?;
    Some((validity.parse().ok()?, uid.parse().ok()?))
}

/// Its id in the account and for ever, where the server has one.
fn id_of(metadata: &Metadata<'_>) -> Option<String> {
    match (metadata.gmail_id, metadata.email_id) {
        (Some(id), _) => Some(format!("gm-{id:x}")),
        (None, Some(id)) => Some(format!("e-{id}")),
        (None, None) => None,
    }
}

/// `\Recent` says something about connections, not about the message. Labels of Gmail stand beside its flags.
fn flags(metadata: &Metadata<'_>) -> Flags {
    let flags = metadata.flags().into_iter().flatten().filter(|flag| !flag.eq_ignore_ascii_case("\\Recent"));
    let flags = flags.map(|flag| flag.trim_start_matches('\\').to_ascii_lowercase());
    let labels = metadata.labels().map(|label| format!("label:{label}"));
    Flags::from_names(flags.chain(labels))
}
