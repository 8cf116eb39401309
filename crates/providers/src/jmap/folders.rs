//! Mailboxes, as JMAP calls folders (RFC 8621, section 2).

use std::collections::{HashMap, HashSet};

use domain::connector::{KnownFolder, ListedFolder};
use domain::{ConnectorError, FolderRole};
use serde::Deserialize;
use serde_json::json;

use super::api::{JmapCall, JmapClient, JmapResponses, result_of};
use super::error_mapping::MethodError;
use crate::folder_diff::diff_folders;
use crate::http::unavailable;
use crate::provider_text::{printable, valid_id};

const DELIMITER: &str = "/";

/// Folders deeper than this, or below themselves, are shown as if they were at the top.
const MAX_DEPTH: usize = 100;

/// How often a long list of folders is read anew because it has changed meanwhile.
const MAX_READS: usize = 3;

const PROPERTIES: [&str; 4] = ["id", "name", "parentId", "role"];

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JmapMailbox {
    id: String,
    name: String,
    parent_id: Option<String>,
    role: Option<String>,
}

#[derive(Debug, Deserialize)]
struct MailboxList {
    list: Vec<JmapMailbox>,
    state: String,
}

#[derive(Debug, Deserialize)]
struct MailboxIds {
    ids: Vec<String>,
}

/// All folders, and the state since which changes of folders are asked for.
#[derive(Debug)]
pub struct JmapFolderList {
    pub folders: Vec<ListedFolder>,
    pub state: String,
}

impl JmapFolderList {
    /// Returns the ids of all folders.
    pub fn ids(&self) -> HashSet<String> {
        self.folders.iter().map(|folder| folder.id.clone()).collect()
    }

    /// Returns the folders that differ from the known ones, and the ids of those that are missing.
    pub fn diff(self, known: &[KnownFolder]) -> (Vec<ListedFolder>, Vec<String>) {
        diff_folders(known, self.folders)
    }
}

/// Returns the call that reads all folders.
pub fn read_call() -> JmapCall {
    JmapCall::new("Mailbox/get", "folders", json!({"ids": null, "properties": PROPERTIES}))
}

/// Takes the response to [`read_call`]. If there are more folders than the server lists at once, they are read in parts.
pub async fn take(client: &JmapClient<'_>, responses: &mut JmapResponses) -> Result<JmapFolderList, ConnectorError> {
    match responses.take::<MailboxList>("folders") {
        Ok(MailboxList { list, state }) => Ok(JmapFolderList { folders: named(list)?, state }),
        Err(MethodError::RequestTooLarge) => read_in_parts(client).await,
        Err(e) => Err(e.into()),
    }
}

/// Reads all folders.
pub async fn read(client: &JmapClient<'_>) -> Result<JmapFolderList, ConnectorError> {
    let mut responses = client.call(&[&read_call()]).await?;
    take(client, &mut responses).await
}

/// Reads all folders in parts, until none of them changes meanwhile: one that is missed would be taken for removed.
async fn read_in_parts(client: &JmapClient<'_>) -> Result<JmapFolderList, ConnectorError> {
    for _ in 0..MAX_READS {
        if let Some(list) = try_read_in_parts(client).await? {
            return Ok(list);
        }
    }
    Err(unavailable("the folders keep changing"))
}

async fn try_read_in_parts(client: &JmapClient<'_>) -> Result<Option<JmapFolderList>, ConnectorError> {
    let (mut all, mut state) = (Vec::new(), None);
    loop {
        let query =
            JmapCall::new("Mailbox/query", "ids", json!({"position": all.len(), "limit": client.session.max_objects}));
        let get = JmapCall::new(
            "Mailbox/get",
            "folders",
            json!({"#ids": result_of(&query, "/ids"), "properties": PROPERTIES}),
        );
        let mut responses = client.call(&[&query, &get]).await?;
        let MailboxIds { ids } = responses.take("ids")?;
        let MailboxList { list, state: now } = responses.take("folders")?;
        if list.len() != ids.len() || *state.get_or_insert_with(|| now.clone()) != now {
            return Ok(None);
        }
        if ids.is_empty() {
            return Ok(Some(JmapFolderList { folders: named(all)?, state: now }));
        }
        all.extend(list);
    }
}

/// Gives each folder its full name, with those of the folders above it.
fn named(mailboxes: Vec<JmapMailbox>) -> Result<Vec<ListedFolder>, ConnectorError> {
    let by_id: HashMap<&str, &JmapMailbox> = mailboxes.iter().map(|mailbox| (&*mailbox.id, mailbox)).collect();
    let named = mailboxes.iter().map(|mailbox| {
        let branch = branch(mailbox, &by_id);
        let names: Vec<&str> = branch.iter().rev().map(|folder| folder.name.as_str()).collect();
        Ok(ListedFolder {
            id: valid_id(mailbox.id.clone())?,
            name: printable(&names.join(DELIMITER)),
            role: role_in(&branch),
            delimiter: Some(DELIMITER.to_owned()),
            uid_validity: None,
        })
    });
    named.collect()
}

/// Returns a folder and those above it, itself first.
fn branch<'a>(mailbox: &'a JmapMailbox, by_id: &HashMap<&str, &'a JmapMailbox>) -> Vec<&'a JmapMailbox> {
    let mut branch = vec![mailbox];
    let mut above = mailbox.parent_id.as_deref();
    while let Some(parent) = above.and_then(|id| by_id.get(id)) {
        if branch.len() == MAX_DEPTH {
            return vec![mailbox];
        }
        branch.push(parent);
        above = parent.parent_id.as_deref();
    }
    branch
}

/// Returns the purpose of a branch's first folder. What lies below the trash is trash, and below spam is spam.
fn role_in(branch: &[&JmapMailbox]) -> Option<FolderRole> {
    let mut roles = branch.iter().map(|folder| folder.role.as_deref().and_then(role));
    let own = roles.next().flatten();
    own.or_else(|| roles.flatten().find(|role| matches!(role, FolderRole::Trash | FolderRole::Spam)))
}

/// Returns the folder's purpose, by the names that RFC 8457 and others have registered for IMAP.
fn role(role: &str) -> Option<FolderRole> {
    Some(match role.to_ascii_lowercase().as_str() {
        "inbox" => FolderRole::Inbox,
        "sent" => FolderRole::Sent,
        "archive" => FolderRole::Archive,
        "all" => FolderRole::All,
        "drafts" => FolderRole::Drafts,
        "junk" => FolderRole::Spam,
        "trash" => FolderRole::Trash,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(id: &str, name: &str, parent: Option<&str>, role: Option<&str>) -> JmapMailbox {
        let [parent_id, role] = [parent, role].map(|text| text.map(str::to_owned));
        JmapMailbox { id: id.to_owned(), name: name.to_owned(), parent_id, role }
    }

    #[test]
    fn folders_have_full_names_and_roles() {
        let listed = named(vec![
            mailbox("1", "Inbox", None, Some("inbox")),
            mailbox("2", "2026", Some("3"), None),
            mailbox("3", "Taxes", Some("1"), None),
            mailbox("4", "Junk", None, Some("junk")),
            mailbox("5", "Lost", Some("gone"), Some("templates")),
            mailbox("6", "Thrown", Some("4"), None),
        ])
        .unwrap();

        let names: Vec<&str> = listed.iter().map(|folder| folder.name.as_str()).collect();
        assert_eq!(names, ["Inbox", "Inbox/Taxes/2026", "Inbox/Taxes", "Junk", "Lost", "Junk/Thrown"]);
        let roles: Vec<_> = listed.iter().map(|folder| folder.role).collect();
        assert_eq!(roles, [Some(FolderRole::Inbox), None, None, Some(FolderRole::Spam), None, Some(FolderRole::Spam)]);
    }

    #[test]
    fn folder_below_itself_has_its_own_name() {
        let listed = named(vec![mailbox("1", "A", Some("2"), None), mailbox("2", "B", Some("1"), None)]).unwrap();

        assert_eq!(listed.iter().map(|folder| folder.name.as_str()).collect::<Vec<_>>(), ["A", "B"]);
    }
}
