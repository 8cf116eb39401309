//! The mail folders of a mailbox as a tree, with the roles of Graph's well-known folders.

use std::collections::{BTreeMap, HashMap};

use domain::ConnectorError;
use domain::FolderRole;
use domain::connector::ListedFolder;
use futures_util::future::try_join;
use serde::Deserialize;
use serde_json::Value;

use super::api::{Collection, GraphClient};
use super::batch;
use super::error_mapping::GraphOperation;
use crate::http::{protocol, unavailable};
use crate::provider_text::{printable, valid_id};

/// Graph's well-known folder names, which are the same in every language.
const WELL_KNOWN_FOLDERS: [(&str, WellKnownFolder); 14] = [
    ("msgfolderroot", WellKnownFolder::Root),
    ("inbox", WellKnownFolder::Role(FolderRole::Inbox)),
    ("sentitems", WellKnownFolder::Role(FolderRole::Sent)),
    ("archive", WellKnownFolder::Role(FolderRole::Archive)),
    ("drafts", WellKnownFolder::Role(FolderRole::Drafts)),
    ("deleteditems", WellKnownFolder::Role(FolderRole::Trash)),
    ("junkemail", WellKnownFolder::Role(FolderRole::Spam)),
    ("conversationhistory", WellKnownFolder::Role(FolderRole::Chats)),
    ("outbox", WellKnownFolder::NoMail),
    ("syncissues", WellKnownFolder::NoMail),
    ("conflicts", WellKnownFolder::NoMail),
    ("localfailures", WellKnownFolder::NoMail),
    ("serverfailures", WellKnownFolder::NoMail),
    ("scheduled", WellKnownFolder::NoMail),
];

/// Well-known folders that every mailbox has.
const REQUIRED_FOLDERS: [&str; 5] = ["msgfolderroot", "inbox", "drafts", "deleteditems", "junkemail"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WellKnownFolder {
    Root,
    Role(FolderRole),
    /// Unsent mail, or data that a mail program keeps for itself.
    NoMail,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MailFolder {
    id: String,
    display_name: Option<String>,
    parent_folder_id: Option<String>,
    is_hidden: Option<bool>,
    /// Type of a search folder, which only shows messages of others.
    #[serde(rename = "@odata.type")]
    kind: Option<String>,
    #[serde(rename = "@removed")]
    removed: Option<serde::de::IgnoredAny>,
}

/// All folders of a mailbox.
#[derive(Debug, Default)]
pub struct FolderTree {
    /// Folders with mail, named by their paths.
    pub folders: Vec<ListedFolder>,
    /// Ids of the others: hidden ones, search folders, and those of mail programs.
    pub excluded: Vec<String>,
}

/// Lists all folders.
pub async fn tree(client: GraphClient<'_>) -> Result<FolderTree, ConnectorError> {
    let (kinds, folders) = try_join(well_known(client), list_folders(client)).await?;
    // A response without the inbox is not the whole tree, and what it lacks would count as deleted.
    if !kinds.iter().any(|(id, kind)| *kind == WellKnownFolder::Role(FolderRole::Inbox) && folders.contains_key(id)) {
        return Err(unavailable("the folder listing has no inbox"));
    }
    Ok(build_tree(&folders, &kinds))
}

async fn list_folders(client: GraphClient<'_>) -> Result<BTreeMap<String, MailFolder>, ConnectorError> {
    let mut folders = BTreeMap::new();
    let mut url = client.url(&["mailFolders", "delta"]);
    url.query_pairs_mut().append_pair("$select", "id,displayName,parentFolderId,isHidden");
    loop {
        let page: Collection<MailFolder> = client.get(GraphOperation::Other, url, "odata.maxpagesize=200").await?;
        for folder in page.value {
            match folder.removed {
                // It was deleted meanwhile.
                Some(_) => drop(folders.remove(&folder.id)),
                None => drop(folders.insert(valid_id(folder.id.clone())?, folder)),
            }
        }
        match page.next_link {
            Some(link) => url = client.link(&link)?,
            None => return Ok(folders),
        }
    }
}

/// Returns the well-known folders by id.
async fn well_known(client: GraphClient<'_>) -> Result<HashMap<String, WellKnownFolder>, ConnectorError> {
    let urls = WELL_KNOWN_FOLDERS.iter().map(|(known, _)| {
        let mut url = client.url(&["mailFolders", known]);
        url.query_pairs_mut().append_pair("$select", "id");
        url
    });
    let mut kinds = HashMap::new();
    for ((known, kind), answer) in
        WELL_KNOWN_FOLDERS.iter().zip(batch::get_all::<Value>(client, GraphOperation::Folder, urls.collect()).await?)
    {
        match answer {
            Ok(folder) => {
                let id = folder["id"].as_str().ok_or_else(|| protocol("a folder has no id"))?;
                kinds.insert(id.to_owned(), *kind);
            }
            // Without these, mail that is to be left out would be taken in.
            Err(ConnectorError::Gone | ConnectorError::Protocol(_)) if REQUIRED_FOLDERS.contains(known) => {
                return Err(unavailable("a well-known folder of every mailbox is not found"));
            }
            // Not every mailbox has all of them, and not every server knows all names.
            Err(ConnectorError::Gone | ConnectorError::Protocol(_)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(kinds)
}

fn build_tree(folders: &BTreeMap<String, MailFolder>, kinds: &HashMap<String, WellKnownFolder>) -> FolderTree {
    let mut tree = FolderTree::default();
    for (id, folder) in folders {
        let mut path = vec![folder.name()];
        let mut role = match kinds.get(id) {
            Some(WellKnownFolder::Role(role)) => Some(*role),
            _ => None,
        };
        let mut is_left_out =
            folder.is_hidden.unwrap_or_default() || folder.is_search() || kinds.get(id) == Some(&WellKnownFolder::Root);
        let mut above = id;
        // No tree is that deep; the limit ends a cycle.
        for _ in 0..300 {
            is_left_out |= kinds.get(above) == Some(&WellKnownFolder::NoMail);
            let Some(parent) = folders.get(above).and_then(|folder| folder.parent_folder_id.as_ref()) else { break };
            let Some(folder) = folders.get(parent).filter(|_| kinds.get(parent) != Some(&WellKnownFolder::Root)) else {
                break;
            };
            path.push(folder.name());
            // A deleted folder is in the trash with everything in it.
            if let Some(WellKnownFolder::Role(inherited @ (FolderRole::Trash | FolderRole::Spam))) = kinds.get(parent) {
                role = Some(*inherited);
            }
            above = parent;
        }
        if is_left_out {
            tree.excluded.push(id.clone());
            continue;
        }
        path.reverse();
        let delimiter = Some("/".to_owned());
        tree.folders.push(ListedFolder { id: id.clone(), name: path.join("/"), role, delimiter, uid_validity: None });
    }
    tree
}

impl MailFolder {
    fn is_search(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| kind.ends_with("mailSearchFolder"))
    }

    fn name(&self) -> String {
        printable(self.display_name.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(id: &str, parent: &str) -> (String, MailFolder) {
        folder_with(id, parent, &serde_json::json!({}))
    }

    fn folder_with(id: &str, parent: &str, properties: &Value) -> (String, MailFolder) {
        let mut json = serde_json::json!({"id": id, "displayName": id.to_uppercase(), "parentFolderId": parent});
        json.as_object_mut().unwrap().extend(properties.as_object().unwrap().clone());
        (id.to_owned(), serde_json::from_value(json).unwrap())
    }

    #[test]
    fn paths_and_roles_follow_the_tree() {
        let folders = BTreeMap::from([
            folder("root", "above"),
            folder("inbox", "root"),
            folder("work", "inbox"),
            folder("bin", "root"),
            folder("old", "bin"),
            folder("ring", "ring"),
            folder("out", "root"),
            folder("below", "out"),
            folder_with("hidden", "root", &serde_json::json!({"isHidden": true})),
            folder_with("found", "root", &serde_json::json!({"@odata.type": "#microsoft.graph.mailSearchFolder"})),
        ]);
        let kinds = HashMap::from([
            ("root".to_owned(), WellKnownFolder::Root),
            ("inbox".to_owned(), WellKnownFolder::Role(FolderRole::Inbox)),
            ("bin".to_owned(), WellKnownFolder::Role(FolderRole::Trash)),
            ("out".to_owned(), WellKnownFolder::NoMail),
        ]);
        let listed: Vec<_> =
            build_tree(&folders, &kinds).folders.into_iter().map(|folder| (folder.name, folder.role)).collect();
        let expected = [
            ("BIN", Some(FolderRole::Trash)),
            ("INBOX", Some(FolderRole::Inbox)),
            ("BIN/OLD", Some(FolderRole::Trash)),
            ("INBOX/WORK", None),
        ];
        for (name, role) in expected {
            assert!(listed.contains(&(name.to_owned(), role)), "{name}: {listed:?}");
        }
        assert_eq!(listed.len(), 5, "and the ring, which is somewhere: {listed:?}");
    }
}
