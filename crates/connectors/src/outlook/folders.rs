//! The folders of a mailbox: a tree of names, of which some stand for something in every language.

use std::collections::{BTreeMap, HashMap};

use domain::ConnectorError;
use domain::FolderRole;
use domain::connector::SeenFolder;
use futures_util::future::try_join;
use serde::Deserialize;
use serde_json::Value;

use super::api::{Call, Collection};
use super::batch;
use super::refusal::What;
use crate::http::{protocol, unavailable};
use crate::names::{name, shown};

/// Names that hold in every language, and what is in the folders that have them.
const WELL_KNOWN: [(&str, Kind); 14] = [
    ("msgfolderroot", Kind::Root),
    ("inbox", Kind::Is(FolderRole::Inbox)),
    ("sentitems", Kind::Is(FolderRole::Sent)),
    ("archive", Kind::Is(FolderRole::Archive)),
    ("drafts", Kind::Is(FolderRole::Drafts)),
    ("deleteditems", Kind::Is(FolderRole::Trash)),
    ("junkemail", Kind::Is(FolderRole::Spam)),
    ("conversationhistory", Kind::Is(FolderRole::Chats)),
    ("outbox", Kind::NoMail),
    ("syncissues", Kind::NoMail),
    ("conflicts", Kind::NoMail),
    ("localfailures", Kind::NoMail),
    ("serverfailures", Kind::NoMail),
    ("scheduled", Kind::NoMail),
];

/// Those that every mailbox has.
const NEEDED: [&str; 5] = ["msgfolderroot", "inbox", "drafts", "deleteditems", "junkemail"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Root,
    Is(FolderRole),
    /// What a mail program keeps there for itself, and what is on its way.
    NoMail,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Folder {
    id: String,
    display_name: Option<String>,
    parent_folder_id: Option<String>,
    is_hidden: Option<bool>,
    /// Of folders that only show what is in others.
    #[serde(rename = "@odata.type")]
    kind: Option<String>,
    #[serde(rename = "@removed")]
    removed: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default)]
pub struct Tree {
    /// All that have mail, by their paths.
    pub folders: Vec<SeenFolder>,
    /// Ids of the others: hidden ones, those that only show what is elsewhere, and what is kept for programs.
    pub apart: Vec<String>,
}

pub async fn tree(call: Call<'_>) -> Result<Tree, ConnectorError> {
    let (kinds, folders) = try_join(well_known(call), all(call)).await?;
    // An answer without it is not the whole tree, and what is not in it would count as gone.
    if !kinds.iter().any(|(id, kind)| *kind == Kind::Is(FolderRole::Inbox) && folders.contains_key(id)) {
        return Err(unavailable("the folders come without the inbox"));
    }
    Ok(told(&folders, &kinds))
}

async fn all(call: Call<'_>) -> Result<BTreeMap<String, Folder>, ConnectorError> {
    let mut folders = BTreeMap::new();
    let mut url = call.url(&["mailFolders", "delta"]);
    url.query_pairs_mut().append_pair("$select", "id,displayName,parentFolderId,isHidden");
    loop {
        let page: Collection<Folder> = call.get(What::Other, url, "odata.maxpagesize=200").await?;
        for folder in page.value {
            match folder.removed {
                // It went while we read.
                Some(_) => drop(folders.remove(&folder.id)),
                None => drop(folders.insert(name(folder.id.clone())?, folder)),
            }
        }
        match page.next_link {
            Some(link) => url = call.link(&link)?,
            None => return Ok(folders),
        }
    }
}

/// Which folder has which of these names.
async fn well_known(call: Call<'_>) -> Result<HashMap<String, Kind>, ConnectorError> {
    let urls = WELL_KNOWN.iter().map(|(known, _)| {
        let mut url = call.url(&["mailFolders", known]);
        url.query_pairs_mut().append_pair("$select", "id");
        url
    });
    let mut kinds = HashMap::new();
    for ((known, kind), answer) in WELL_KNOWN.iter().zip(batch::get::<Value>(call, What::Folder, urls.collect()).await?)
    {
        match answer {
            Ok(folder) => {
                let id = folder["id"].as_str().ok_or_else(|| protocol("a folder without an id"))?;
                kinds.insert(id.to_owned(), *kind);
            }
            // Without these what is left out would be taken in.
            Err(ConnectorError::Gone | ConnectorError::Protocol(_)) if NEEDED.contains(known) => {
                return Err(unavailable("a folder that every mailbox has cannot be found"));
            }
            // Not every mailbox has all of them, and not every server knows all names.
            Err(ConnectorError::Gone | ConnectorError::Protocol(_)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(kinds)
}

fn told(folders: &BTreeMap<String, Folder>, kinds: &HashMap<String, Kind>) -> Tree {
    let is_search = |folder: &Folder| folder.kind.as_deref().is_some_and(|kind| kind.ends_with("mailSearchFolder"));
    let mut told = Tree::default();
    for (id, folder) in folders {
        let mut path = vec![name_of(folder)];
        let mut role = match kinds.get(id) {
            Some(Kind::Is(role)) => Some(*role),
            _ => None,
        };
        let mut is_left_out =
            folder.is_hidden.unwrap_or_default() || is_search(folder) || kinds.get(id) == Some(&Kind::Root);
        let mut above = id;
        // A tree is never that deep; a ring would be.
        for _ in 0..300 {
            is_left_out |= kinds.get(above) == Some(&Kind::NoMail);
            let Some(parent) = folders.get(above).and_then(|folder| folder.parent_folder_id.as_ref()) else { break };
            let Some(folder) = folders.get(parent).filter(|_| kinds.get(parent) != Some(&Kind::Root)) else { break };
            path.push(name_of(folder));
            // A folder that was thrown away lies in the bin with everything in it.
            if let Some(Kind::Is(inherited @ (FolderRole::Trash | FolderRole::Spam))) = kinds.get(parent) {
                role = Some(*inherited);
            }
            above = parent;
        }
        if is_left_out {
            told.apart.push(id.clone());
            continue;
        }
        path.reverse();
        let delimiter = Some("/".to_owned());
        told.folders.push(SeenFolder { id: id.clone(), name: path.join("/"), role, delimiter, uid_validity: None });
    }
    told
}

fn name_of(folder: &Folder) -> String {
    shown(folder.display_name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_roles_follow_the_tree() {
        let folder = |id: &str, parent: &str, more: Value| {
            let mut json = serde_json::json!({"id": id, "displayName": id.to_uppercase(), "parentFolderId": parent});
            json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            (id.to_owned(), serde_json::from_value::<Folder>(json).unwrap())
        };
        let none = || serde_json::json!({});
        let folders = BTreeMap::from([
            folder("root", "above", none()),
            folder("inbox", "root", none()),
            folder("work", "inbox", none()),
            folder("bin", "root", none()),
            folder("old", "bin", none()),
            folder("ring", "ring", none()),
            folder("out", "root", none()),
            folder("below", "out", none()),
            folder("hidden", "root", serde_json::json!({"isHidden": true})),
            folder("found", "root", serde_json::json!({"@odata.type": "#microsoft.graph.mailSearchFolder"})),
        ]);
        let kinds = HashMap::from([
            ("root".to_owned(), Kind::Root),
            ("inbox".to_owned(), Kind::Is(FolderRole::Inbox)),
            ("bin".to_owned(), Kind::Is(FolderRole::Trash)),
            ("out".to_owned(), Kind::NoMail),
        ]);
        let told: Vec<_> =
            told(&folders, &kinds).folders.into_iter().map(|folder| (folder.name, folder.role)).collect();
        let expected = [
            ("BIN", Some(FolderRole::Trash)),
            ("INBOX", Some(FolderRole::Inbox)),
            ("BIN/OLD", Some(FolderRole::Trash)),
            ("INBOX/WORK", None),
        ];
        for (name, role) in expected {
            assert!(told.contains(&(name.to_owned(), role)), "{name}: {told:?}");
        }
        assert_eq!(told.len(), 5, "and the ring, which is somewhere: {told:?}");
    }
}
