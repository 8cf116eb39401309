//! Whether what we have of a mailbox is what its provider has.
//!
//! Per folder: what the provider lists = live places + what is out of scope. And: rows of the ledger = live + gone.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, bail};
use domain::connector::Cursors;
use serde::Serialize;
use store::sql::mailboxes::Mailbox;

use crate::sync::Syncer;

/// One folder, compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FolderCount {
    pub name: String,
    pub provider: u64,
    pub live: u64,
    pub out_of_scope: u64,
    /// At the provider, but not with us; an example each.
    pub missing: u64,
    /// With us, but not at the provider.
    pub surplus: u64,
    pub example: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Completeness {
    pub folders: Vec<FolderCount>,
    /// Live messages by how far they have come.
    pub queued: u64,
    pub processing: u64,
    pub processed: u64,
    pub failed: u64,
    /// Rows of the ledger that are neither live nor gone, and gone ones that have a place.
    pub unbalanced: u64,
}

impl Completeness {
    pub fn difference(&self) -> u64 {
        self.unbalanced + self.folders.iter().map(|folder| folder.missing + folder.surplus).sum::<u64>()
    }
}

/// No mailbox has more pages than that; a provider that never ends must.
const MOST_PAGES: usize = 100_000;

impl Syncer {
    /// Lists everything at the provider and changes nothing. `None`: it cannot be read now.
    pub async fn compare(&self, mailbox: &Mailbox) -> anyhow::Result<Option<Completeness>> {
        let Some(opened) = self.open(mailbox.tenant_id, mailbox.id).await? else { return Ok(None) };
        let store = self.engine.store.tenant(mailbox.tenant_id);
        let since = store.find_sync(mailbox.id).await?.and_then(|state| state.since);
        let (mut names, mut in_scope) = (HashMap::new(), HashMap::new());
        let mut listed: BTreeMap<String, BTreeMap<String, bool>> = BTreeMap::new();
        let mut cursors = Cursors::new();
        for page in 0.. {
            if page == MOST_PAGES {
                bail!("the provider's list of the mailbox does not end");
            }
            let page = self.calls.make(mailbox, opened.connector.list(&opened.account, &cursors)).await;
            let page = page.context("listing the mailbox at its provider")?;
            for folder in page.folders {
                in_scope.insert(folder.id.clone(), opened.scope.includes(&folder));
                listed.entry(folder.id.clone()).or_default();
                names.insert(folder.id, folder.name);
            }
            for seen in page.messages {
                let is_old = since.is_some() && seen.received_at < since;
                listed.entry(seen.place.folder).or_default().insert(seen.place.uid, is_old);
            }
            cursors.extend(page.cursors);
            if page.is_last {
                break;
            }
        }
        let ours = store.list_places(mailbox.id).await?;
        let mut have: HashMap<&str, HashSet<&str>> = HashMap::new();
        for place in &ours {
            have.entry(&place.folder).or_default().insert(&place.uid);
        }
        for folder in have.keys() {
            listed.entry((*folder).to_owned()).or_default();
        }
        let none = HashSet::new();
        let folders = listed.into_iter().map(|(id, places)| {
            let is_in_scope = in_scope.get(&id).copied().unwrap_or(true);
            let name = names.get(&id).cloned().unwrap_or_else(|| id.clone());
            compare_folder(name, is_in_scope, &places, have.get(id.as_str()).unwrap_or(&none))
        });
        let folders = folders.collect();
        let counts = store.count_ledger(mailbox.id).await?;
        let of = |state: &str| counts.live.get(state).copied().unwrap_or(0);
        Ok(Some(Completeness {
            folders,
            queued: of("queued"),
            processing: of("processing"),
            processed: of("processed"),
            failed: of("failed"),
            unbalanced: counts.unbalanced,
        }))
    }
}

fn compare_folder(
    name: String,
    is_in_scope: bool,
    places: &BTreeMap<String, bool>,
    ours: &HashSet<&str>,
) -> FolderCount {
    let mut count =
        FolderCount { name, provider: places.len() as u64, live: ours.len() as u64, ..FolderCount::default() };
    for (uid, is_old) in places {
        if ours.contains(uid.as_str()) {
            continue;
        }
        if !is_in_scope || *is_old {
            count.out_of_scope += 1;
        } else {
            count.missing += 1;
            count.example.get_or_insert_with(|| uid.clone());
        }
    }
    for uid in ours.iter().filter(|uid| !places.contains_key(**uid)) {
        count.surplus += 1;
        count.example.get_or_insert_with(|| (*uid).to_owned());
    }
    count
}
