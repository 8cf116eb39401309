//! Their pages into ours. What could not be stored is refused here, where it can still be told whose fault it is.

use domain::connector::{Cursors, Page, Place, Present, Seen, SeenFolder};
use domain::{ConnectorError, Flags, FolderRole};

use super::api;
use crate::names::{name, shown};

/// What is kept of a cursor after the last page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There will be more from here on.
    Follow,
    /// The next listing begins anew.
    EndOnce,
}

pub fn page(page: api::Page, next: Next) -> Result<Page, ConnectorError> {
    let cursor = match next {
        Next::EndOnce if page.is_last => String::new(),
        _ => name(page.cursor)?,
    };
    Ok(Page {
        again: Vec::new(),
        folders: page.folders.into_iter().map(folder).collect::<Result<_, _>>()?,
        gone_folders: page.gone_folders.into_iter().map(name).collect::<Result<_, _>>()?,
        messages: page.messages.into_iter().map(seen).collect::<Result<_, _>>()?,
        marked: Vec::new(),
        named: Vec::new(),
        whole: Vec::new(),
        there: Vec::new(),
        vanished: page.vanished.into_iter().map(|p| place(p.folder, p.uid)).collect::<Result<_, _>>()?,
        present: page.present.into_iter().map(present).collect::<Result<_, _>>()?,
        cursors: Cursors::from([(api::SCOPE.to_owned(), cursor)]),
        is_last: page.is_last,
    })
}

fn folder(folder: api::Folder) -> Result<SeenFolder, ConnectorError> {
    Ok(SeenFolder {
        id: name(folder.id)?,
        name: shown(&folder.name),
        role: folder.role.as_deref().and_then(role),
        delimiter: folder.delimiter.map(name).transpose()?,
        uid_validity: None,
    })
}

/// A role that we do not know makes an ordinary folder.
fn role(text: &str) -> Option<FolderRole> {
    serde_json::from_value(serde_json::Value::from(text)).ok()
}

fn seen(message: api::Message) -> Result<Seen, ConnectorError> {
    Ok(Seen {
        message: name(message.id)?,
        place: place(message.folder, message.uid)?,
        flags: Flags::from_names(message.flags.into_iter().map(name).collect::<Result<Vec<_>, _>>()?),
        size_bytes: Some(message.size),
        received_at: Some(message.received_at),
        revision: message.revision.map(name).transpose()?,
    })
}

fn present(present: api::Present) -> Result<Present, ConnectorError> {
    let uids = present.uids.into_iter().map(name).collect::<Result<_, _>>()?;
    Ok(Present { folder: name(present.folder)?, uids })
}

fn place(folder: String, uid: String) -> Result<Place, ConnectorError> {
    Ok(Place { folder: name(folder)?, uid: name(uid)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ours_or_none() {
        assert_eq!(role("inbox"), Some(FolderRole::Inbox));
        assert_eq!(role("trash"), Some(FolderRole::Trash));
        assert_eq!(role("important"), None);
    }

    #[test]
    fn a_listing_that_is_over_forgets_its_cursor_and_one_that_follows_keeps_it() {
        let told = |is_last| api::Page {
            folders: Vec::new(),
            gone_folders: Vec::new(),
            messages: Vec::new(),
            vanished: Vec::new(),
            present: Vec::new(),
            cursor: "c1-2".to_owned(),
            is_last,
        };
        let cursor = |is_last, next| page(told(is_last), next).unwrap().cursors[api::SCOPE].clone();

        assert_eq!((cursor(true, Next::EndOnce), cursor(false, Next::EndOnce)), (String::new(), "c1-2".to_owned()));
        assert_eq!(cursor(true, Next::Follow), "c1-2");
    }
}
