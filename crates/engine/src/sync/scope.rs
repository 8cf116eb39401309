//! Which folders mail is taken in from.

use domain::FolderRole;
use domain::connector::SeenFolder;
use serde::Deserialize;

/// What a mailbox's settings say; everything may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// Only these, by name; none: all but those left out below.
    pub folders: Vec<String>,
    pub exclude: Vec<String>,
}

impl Scope {
    pub fn of(settings: &serde_json::Value) -> Self {
        serde_json::from_value(settings.clone()).unwrap_or_default()
    }

    /// Drafts, spam, trash and chats are taken in only when they are named.
    pub fn includes(&self, folder: &SeenFolder) -> bool {
        let names = |names: &[String]| names.iter().any(|name| name.eq_ignore_ascii_case(&folder.name));
        if names(&self.exclude) {
            return false;
        }
        if !self.folders.is_empty() {
            return names(&self.folders);
        }
        !matches!(folder.role, Some(FolderRole::Drafts | FolderRole::Spam | FolderRole::Trash | FolderRole::Chats))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folder(name: &str, role: Option<FolderRole>) -> SeenFolder {
        SeenFolder { id: name.into(), name: name.into(), role, delimiter: None, uid_validity: None }
    }

    #[test]
    fn drafts_spam_and_trash_are_left_out_unless_they_are_named() {
        let all = Scope::of(&json!({}));
        assert!(all.includes(&folder("INBOX", Some(FolderRole::Inbox))) && all.includes(&folder("Taxes", None)));
        assert!(!all.includes(&folder("Bin", Some(FolderRole::Trash))));

        let named = Scope::of(&json!({"folders": ["inbox", "Bin"]}));
        assert!(named.includes(&folder("INBOX", Some(FolderRole::Inbox))));
        assert!(named.includes(&folder("Bin", Some(FolderRole::Trash))) && !named.includes(&folder("Taxes", None)));

        assert!(!Scope::of(&json!({"exclude": ["taxes"]})).includes(&folder("Taxes", None)));
    }
}
