//! The folders that a mailbox is synced from.

use domain::FolderRole;
use domain::connector::ListedFolder;
use serde::Deserialize;

/// The folder settings of a mailbox; each may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FolderScope {
    /// Only these folders, by name. Empty: all but the excluded ones.
    pub folders: Vec<String>,
    pub exclude: Vec<String>,
}

impl FolderScope {
    pub fn of(settings: &serde_json::Value) -> Self {
        serde_json::from_value(settings.clone()).unwrap_or_default()
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
    use serde_json::json;

    use super::*;

    fn folder(name: &str, role: Option<FolderRole>) -> ListedFolder {
        ListedFolder { id: name.into(), name: name.into(), role, delimiter: None, uid_validity: None }
    }

    #[test]
    fn drafts_spam_and_trash_are_synced_only_by_name() {
        let all = FolderScope::of(&json!({}));
        assert!(all.includes(&folder("INBOX", Some(FolderRole::Inbox))) && all.includes(&folder("Taxes", None)));
        assert!(!all.includes(&folder("Bin", Some(FolderRole::Trash))));

        let named = FolderScope::of(&json!({"folders": ["inbox", "Bin"]}));
        assert!(named.includes(&folder("INBOX", Some(FolderRole::Inbox))));
        assert!(named.includes(&folder("Bin", Some(FolderRole::Trash))) && !named.includes(&folder("Taxes", None)));

        assert!(!FolderScope::of(&json!({"exclude": ["taxes"]})).includes(&folder("Taxes", None)));
    }
}
