//! Pages, folders and messages as a connector lists them, in one line each.

use domain::connector::{Cursors, ListedFolder, ListingPage, Placement, SeenMessage};
use domain::{Flags, FolderRole};

/// A folder whose name is its id.
pub fn folder(id: &str, role: Option<FolderRole>) -> ListedFolder {
    ListedFolder { id: id.into(), name: id.into(), role, delimiter: Some("/".into()), uid_validity: None }
}

/// A message of 100 bytes, which is called in its folder what it is called everywhere.
pub fn seen_message(id: &str, folder: &str, flags: &[&str]) -> SeenMessage {
    SeenMessage {
        message: id.into(),
        placement: placement(id, folder),
        flags: Flags::from_names(flags.iter().copied()),
        size_bytes: Some(100),
        received_at: Some("2026-05-01T10:00:00Z".parse().unwrap()),
        revision: None,
    }
}

pub fn placement(message: &str, folder: &str) -> Placement {
    Placement { folder: folder.into(), uid: message.into() }
}

/// A last page with these messages and a cursor.
pub fn page(messages: Vec<SeenMessage>) -> ListingPage {
    ListingPage {
        seen: messages,
        is_last: true,
        cursors: Cursors::from([(String::new(), "1".into())]),
        ..ListingPage::default()
    }
}
