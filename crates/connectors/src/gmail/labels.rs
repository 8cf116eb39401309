//! Labels as folders. A message of Gmail is once, with labels; here it is in a folder for each of them.
//!
//! What is in the trash or in spam, a draft or a chat is in that folder alone: its other labels are hidden from people too.
//! Everything else is in All Mail, as it is for people, so that what was archived without a label has a place.

use domain::connector::{Place, SeenFolder};
use domain::{Flags, FolderRole};

use super::api::Label;

/// Not a label of Gmail: what has none of the labels in [`APART`].
pub const ALL_MAIL: &str = "ALL_MAIL";

/// A message with one of these labels is in no other folder.
const APART: [(&str, FolderRole); 4] = [
    ("TRASH", FolderRole::Trash),
    ("SPAM", FolderRole::Spam),
    ("CHAT", FolderRole::Chats),
    ("DRAFT", FolderRole::Drafts),
];

/// These say how a message is marked, not where it is.
const UNREAD: &str = "UNREAD";
const STARRED: &str = "STARRED";

/// Every folder of the account.
pub fn folders(labels: &[Label]) -> Vec<SeenFolder> {
    let all = SeenFolder {
        id: ALL_MAIL.to_owned(),
        name: "All Mail".to_owned(),
        role: Some(FolderRole::All),
        delimiter: Some("/".to_owned()),
        uid_validity: None,
    };
    let is_folder = |label: &&Label| label.id != UNREAD && label.id != STARRED;
    let folder = |label: &Label| SeenFolder {
        id: label.id.clone(),
        name: label.name.clone(),
        role: role(&label.id),
        delimiter: Some("/".to_owned()),
        uid_validity: None,
    };
    std::iter::once(all).chain(labels.iter().filter(is_folder).map(folder)).collect()
}

/// Where a message with these labels is, and how it is marked there.
pub fn places(message: &str, labels: &[String]) -> Vec<(Place, Flags)> {
    let has = |wanted: &str| labels.iter().any(|label| label == wanted);
    let marks = [(!has(UNREAD), "seen"), (has(STARRED), "flagged"), (has("DRAFT"), "draft")];
    let flags = Flags::from_names(marks.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name));
    let place = |folder: &str| (Place { folder: folder.to_owned(), uid: message.to_owned() }, flags.clone());
    // As lists have it: they leave out what is hidden, whatever else it is.
    for are_hidden in [true, false] {
        let apart = APART.iter().filter(|(label, _)| is_hidden(label) == are_hidden && has(label));
        let places: Vec<_> = apart.map(|(label, _)| place(label)).collect();
        if !places.is_empty() {
            return places;
        }
    }
    let labels = labels.iter().map(String::as_str).filter(|label| *label != UNREAD && *label != STARRED);
    std::iter::once(ALL_MAIL).chain(labels).map(place).collect()
}

fn role(label: &str) -> Option<FolderRole> {
    match label {
        "INBOX" => Some(FolderRole::Inbox),
        "SENT" => Some(FolderRole::Sent),
        _ => APART.iter().find(|(apart, _)| *apart == label).map(|(_, role)| *role),
    }
}

/// How a folder is asked for: its label, and what it does not have.
pub fn query(folder: &str) -> (Option<&str>, &'static str) {
    /// What is in a folder of its own, by all names that it is known under. The trash and spam are in no list that does not
    /// ask for them.
    const APART_FROM: &str = "-label:draft -label:drafts -label:chat -label:chats";
    match folder {
        ALL_MAIL => (None, APART_FROM),
        _ if is_apart(folder) => (Some(folder), ""),
        _ => (Some(folder), APART_FROM),
    }
}

/// Whether what is in it is in no other folder.
pub fn is_apart(folder: &str) -> bool {
    APART.iter().any(|(apart, _)| *apart == folder)
}

/// Whether lists have it only when they are asked to.
pub fn is_hidden(folder: &str) -> bool {
    matches!(folder, "TRASH" | "SPAM")
}

#[cfg(test)]
mod tests {
    use domain::connector::KnownFolder;

    use super::*;
    use crate::folders::compare;

    fn at(labels: &[&str]) -> Vec<String> {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        places("m1", &labels)
            .into_iter()
            .map(|(place, flags)| format!("{} {:?}", place.folder, flags.names()))
            .collect()
    }

    #[test]
    fn labels_are_folders_and_marks() {
        assert_eq!(at(&["INBOX", "UNREAD", "STARRED"]), [r#"ALL_MAIL ["flagged"]"#, r#"INBOX ["flagged"]"#]);
        assert_eq!(at(&[]), [r#"ALL_MAIL ["seen"]"#]);
    }

    #[test]
    fn what_is_apart_is_in_one_folder_only() {
        assert_eq!(at(&["Label_1", "TRASH", "SPAM", "DRAFT", "UNREAD"]), [r#"TRASH ["draft"]"#, r#"SPAM ["draft"]"#]);
        assert_eq!(at(&["DRAFT", "Label_1"]), [r#"DRAFT ["draft", "seen"]"#]);
    }

    #[test]
    fn a_renamed_label_is_told_and_one_that_is_no_more_is_gone() {
        let known = |id: &str, name: &str| KnownFolder {
            id: id.into(),
            name: name.into(),
            role: folders(&[])
                .into_iter()
                .chain(folders(&[Label { id: id.into(), name: name.into() }]))
                .find(|folder| folder.id == id)
                .and_then(|folder| folder.role),
            delimiter: None,
            uid_validity: None,
            is_in_scope: true,
        };
        let labels = [("INBOX", "INBOX"), ("Label_1", "Taxes 2026")]
            .map(|(id, name)| Label { id: id.into(), name: name.into() });
        let known =
            [known(ALL_MAIL, "All Mail"), known("INBOX", "INBOX"), known("Label_1", "Taxes"), known("Label_2", "x")];

        let (told, gone) = compare(&known, folders(&labels));

        assert_eq!(told.iter().map(|folder| &*folder.name).collect::<Vec<_>>(), ["Taxes 2026"]);
        assert_eq!(gone, ["Label_2"]);
    }
}
