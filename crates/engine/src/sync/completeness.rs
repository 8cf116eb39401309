//! Compares what we have of a mailbox with what its provider has.
//!
//! Per folder: what the provider lists = live placements + what is out of scope. And: rows of the ledger = live + gone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, bail};
use domain::ConnectorError;
use domain::connector::{Cursors, ListingPage};
use jiff::Timestamp;
use serde::Serialize;
use store::sql::mailboxes::Mailbox;

use crate::sync::{MailboxSession, Syncer};

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
    /// Live messages by ledger state.
    pub queued: u64,
    pub processing: u64,
    pub processed: u64,
    pub failed: u64,
    /// Rows of the ledger that are neither live nor gone, and gone ones that have a placement.
    pub unbalanced: u64,
}

impl Completeness {
    pub fn difference(&self) -> u64 {
        self.unbalanced + self.folders.iter().map(|folder| folder.missing + folder.surplus).sum::<u64>()
    }
}

/// No mailbox has more pages; ends a listing that never would.
const MAX_PAGES: usize = 100_000;

impl Syncer {
    /// Compares a mailbox with a full listing at its provider; changes nothing. Returns `None` if it cannot be read now.
    pub async fn compare(&self, mailbox: &Mailbox) -> anyhow::Result<Option<Completeness>> {
        let Some(session) = self.open(mailbox.tenant_id, mailbox.id).await? else { return Ok(None) };
        let store = self.engine.store.tenant(mailbox.tenant_id);
        let since = store.find_sync_state(mailbox.id).await?.and_then(|state| state.since);
        let (mut names, mut in_scope) = (HashMap::new(), HashMap::new());
        let mut listed: BTreeMap<String, BTreeMap<String, bool>> = BTreeMap::new();
        let mut cursors = Cursors::new();
        for page in 0.. {
            if page == MAX_PAGES {
                bail!("the provider's list of the mailbox does not end");
            }
            let page = self.list_with_waits(&session, &cursors, since).await;
            let page = page.context("listing the mailbox at its provider")?;
            page.move_cursors(&mut cursors);
            for folder in page.folders {
                in_scope.insert(folder.id.clone(), session.scope.includes(&folder));
                listed.entry(folder.id.clone()).or_default();
                names.insert(folder.id, folder.name);
            }
            let purged =
                store.list_purged(mailbox.id, page.seen.iter().map(|seen| seen.message.clone()).collect()).await?;
            for seen in page.seen {
                let is_old = seen.received_at.is_some() && seen.received_at < since;
                // What was purged here is left out, too.
                let is_left_out = is_old || purged.contains(&seen.message);
                listed.entry(seen.placement.folder).or_default().insert(seen.placement.uid, is_left_out);
            }
            for seen in page.flags_only {
                // Too old for the backfill, unless it is listed otherwise as well.
                listed.entry(seen.placement.folder).or_default().entry(seen.placement.uid).or_insert(true);
            }
            if page.is_last {
                break;
            }
        }
        let ours = store.list_placements(mailbox.id).await?;
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
        Ok(Some(Completeness {
            folders,
            queued: counts.live.get("queued").copied().unwrap_or(0),
            processing: counts.live.get("processing").copied().unwrap_or(0),
            processed: counts.live.get("processed").copied().unwrap_or(0),
            failed: counts.live.get("failed").copied().unwrap_or(0),
            unbalanced: counts.unbalanced,
        }))
    }
}

/// How often a rate limit is waited for; a person watches this command.
const MAX_WAITS: u32 = 10;

impl Syncer {
    async fn list_with_waits(
        &self,
        session: &MailboxSession,
        cursors: &Cursors,
        since: Option<Timestamp>,
    ) -> Result<ListingPage, ConnectorError> {
        let mut waits = 0;
        loop {
            match self
                .gateway
                .make(&session.target, session.connector.list(&session.account, cursors, None, since))
                .await
            {
                Err(ConnectorError::Throttled { retry_after }) if waits < MAX_WAITS => {
                    waits += 1;
                    tokio::time::sleep(retry_after.unwrap_or(Duration::from_secs(5)).min(Duration::from_secs(30)))
                        .await;
                }
                Err(ConnectorError::RateLimited(wait)) if waits < MAX_WAITS => {
                    waits += 1;
                    tokio::time::sleep(wait).await;
                }
                answer => return answer,
            }
        }
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
