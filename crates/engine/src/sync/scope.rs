//! The folders that a mailbox is synced from.

use domain::connector::ListedFolder;
use domain::{FolderRole, SettingsInForce};

/// The folder settings of a mailbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderScope {
    /// Only these folders, by name. Empty: all but the excluded ones.
    pub folders: Vec<String>,
    pub exclude: Vec<String>,
}

impl FolderScope {
    pub fn of(settings: SettingsInForce) -> Self {
        let SettingsInForce { folders, exclude, .. } = settings;
        Self { folders, exclude }
    }

    /// Returns whether a folder is in scope. Drafts, spam, trash and chats are only when they are named.
    pub fn includes(&self, folder: &ListedFolder) -> bool {
        if has_name(&self.exclude, &folder.name) {
            return false;
        }
        if !self.folders.is_empty() {
            return has_name(&self.folders, &folder.name);
        }
        !matches!(folder.role, Some(FolderRole::Drafts | FolderRole::Spam | FolderRole::Trash | FolderRole::Chats))
    }
}

fn has_name(names: &[String], folder: &str) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(folders: &[&str], exclude: &[&str]) -> FolderScope {
        FolderScope { folders: owned(folders), exclude: owned(exclude) }
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn folder(name: &str, role: Option<FolderRole>) -> ListedFolder {
        ListedFolder { id: name.into(), name: name.into(), role, delimiter: None, uid_validity: None }
    }

    #[test]
    fn drafts_spam_and_trash_are_synced_only_by_name() {
        let all = FolderScope::default();
        assert!(all.includes(&folder("INBOX", Some(FolderRole::Inbox))) && all.includes(&folder("Taxes", None)));
        assert!(!all.includes(&folder("Bin", Some(FolderRole::Trash))));

        let named = scope(&["inbox", "Bin"], &[]);
        assert!(named.includes(&folder("INBOX", Some(FolderRole::Inbox))));
        assert!(named.includes(&folder("Bin", Some(FolderRole::Trash))) && !named.includes(&folder("Taxes", None)));

        assert!(!scope(&[], &["taxes"]).includes(&folder("Taxes", None)));
    }
}
