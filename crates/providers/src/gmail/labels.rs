//! Maps Gmail labels to folders. A Gmail message exists once and has labels; here it has a placement for each of them.
//!
//! A message in the trash or in spam, a draft and a chat are in that folder only: Gmail hides their other labels from
//! people too. Everything else is also in All Mail, as in Gmail's own interface, so that an archived message without a
//! label has a placement.

use domain::connector::{ListedFolder, Placement};
use domain::{Flags, FolderRole};

use super::api::Label;

/// Id of a folder that is no Gmail label: it has every message without one of the [`EXCLUSIVE_LABELS`].
pub const ALL_MAIL: &str = "ALL_MAIL";

/// Labels whose messages are in no other folder.
const EXCLUSIVE_LABELS: [(&str, FolderRole); 4] = [
    ("TRASH", FolderRole::Trash),
    ("SPAM", FolderRole::Spam),
    ("CHAT", FolderRole::Chats),
    ("DRAFT", FolderRole::Drafts),
];

/// Labels that become flags, not folders.
const UNREAD: &str = "UNREAD";
const STARRED: &str = "STARRED";

/// Returns every folder of the account.
pub fn folders(labels: &[Label]) -> Vec<ListedFolder> {
    let all = ListedFolder {
        id: ALL_MAIL.to_owned(),
        name: "All Mail".to_owned(),
        role: Some(FolderRole::All),
        delimiter: Some("/".to_owned()),
        uid_validity: None,
    };
    let folders = labels.iter().filter(|label| !is_flag(&label.id)).map(|label| ListedFolder {
        id: label.id.clone(),
        name: label.name.clone(),
        role: role(&label.id),
        delimiter: Some("/".to_owned()),
        uid_validity: None,
    });
    std::iter::once(all).chain(folders).collect()
}

/// Returns the placements of a message with these labels, each with its flags.
pub fn placements(message: &str, labels: &[String]) -> Vec<(Placement, Flags)> {
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let flags = [
        (!labels.contains(&UNREAD), "seen"),
        (labels.contains(&STARRED), "flagged"),
        (labels.contains(&"DRAFT"), "draft"),
    ];
    let flags = Flags::from_names(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name));
    let places = folders_of(&labels).into_iter();
    places.map(|folder| (Placement { folder: folder.to_owned(), uid: message.to_owned() }, flags.clone())).collect()
}

fn folders_of<'a>(labels: &[&'a str]) -> Vec<&'a str> {
    // Trash and spam first, as `messages.list` does: it leaves them out whatever other labels they have.
    for are_hidden in [true, false] {
        let exclusive = EXCLUSIVE_LABELS.iter().map(|(label, _)| *label).filter(|label| is_hidden(label) == are_hidden);
        let folders: Vec<&str> = exclusive.filter(|label| labels.contains(label)).collect();
        if !folders.is_empty() {
            return folders;
        }
    }
    std::iter::once(ALL_MAIL).chain(labels.iter().copied().filter(|label| !is_flag(label))).collect()
}

fn is_flag(label: &str) -> bool {
    label == UNREAD || label == STARRED
}

fn role(label: &str) -> Option<FolderRole> {
    match label {
        "INBOX" => Some(FolderRole::Inbox),
        "SENT" => Some(FolderRole::Sent),
        _ => EXCLUSIVE_LABELS.iter().find(|(exclusive, _)| *exclusive == label).map(|(_, role)| *role),
    }
}

/// Returns how `messages.list` selects a folder: its label and its search query.
pub fn query(folder: &str) -> (Option<&str>, &'static str) {
    /// Under all names that Gmail's search knows. Trash and spam are only in lists that ask for them.
    const EXCLUDING_DRAFTS_AND_CHATS: &str = "-label:draft -label:drafts -label:chat -label:chats";
    match folder {
        ALL_MAIL => (None, EXCLUDING_DRAFTS_AND_CHATS),
        _ if is_exclusive(folder) => (Some(folder), ""),
        _ => (Some(folder), EXCLUDING_DRAFTS_AND_CHATS),
    }
}

/// Returns whether the messages of this folder are in no other.
pub fn is_exclusive(folder: &str) -> bool {
    EXCLUSIVE_LABELS.iter().any(|(exclusive, _)| *exclusive == folder)
}

/// Returns whether `messages.list` shows this folder only with `includeSpamTrash`.
pub fn is_hidden(folder: &str) -> bool {
    matches!(folder, "TRASH" | "SPAM")
}

#[cfg(test)]
mod tests {
    use domain::connector::KnownFolder;

    use super::*;
    use crate::folder_diff::diff_folders;

    fn at(labels: &[&str]) -> Vec<String> {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        placements("m1", &labels)
            .into_iter()
            .map(|(place, flags)| format!("{} {:?}", place.folder, flags.names()))
            .collect()
    }

    #[test]
    fn labels_become_folders_and_flags() {
        assert_eq!(at(&["INBOX", "UNREAD", "STARRED"]), [r#"ALL_MAIL ["flagged"]"#, r#"INBOX ["flagged"]"#]);
        assert_eq!(at(&[]), [r#"ALL_MAIL ["seen"]"#]);
    }

    #[test]
    fn exclusive_labels_hide_all_others() {
        assert_eq!(at(&["Label_1", "TRASH", "SPAM", "DRAFT", "UNREAD"]), [r#"TRASH ["draft"]"#, r#"SPAM ["draft"]"#]);
        assert_eq!(at(&["DRAFT", "Label_1"]), [r#"DRAFT ["draft", "seen"]"#]);
    }

    fn known(id: &str, name: &str) -> KnownFolder {
        KnownFolder {
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
            missing_since: None,
        }
    }

    #[test]
    fn renamed_and_missing_labels_are_reported() {
        let labels = [("INBOX", "INBOX"), ("Label_1", "Taxes 2026")]
            .map(|(id, name)| Label { id: id.into(), name: name.into() });
        let known =
            [known(ALL_MAIL, "All Mail"), known("INBOX", "INBOX"), known("Label_1", "Taxes"), known("Label_2", "x")];

        let (changed, missing) = diff_folders(&known, folders(&labels));

        assert_eq!(changed.iter().map(|folder| &*folder.name).collect::<Vec<_>>(), ["Taxes 2026"]);
        assert_eq!(missing, ["Label_2"]);
    }
}
