//! What a sync makes of a connector's pages and messages, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use domain::connector::{
    ConnectorAccount, Cursors, FetchRequest, KnownFolder, ListedFolder, ListingPage, MessageMetadata, MessageSink,
    Placement,
};
use domain::{Clock, Connector, ConnectorError, Sha256, SystemClock};

use super::placement_line;

/// A message in a place, as it was listed last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReplicaMessage {
    message: String,
    flags: Vec<String>,
    revision: Option<String>,
    size_bytes: Option<u64>,
}

/// The bytes of a message, as they were fetched last.
#[derive(Debug)]
struct ReplicaContent {
    revision: Option<String>,
    sha256: Sha256,
    size_bytes: u64,
}

/// A copy of the mailbox, kept by the rules that [`ListingPage`] states.
#[derive(Debug)]
pub struct MailboxReplica {
    pub connector: Arc<dyn Connector>,
    pub account: ConnectorAccount,
    pub changes: Cursors,
    /// By id.
    folders: BTreeMap<String, ListedFolder>,
    placements: BTreeMap<Placement, ReplicaMessage>,
    /// By message.
    contents: BTreeMap<String, ReplicaContent>,
}

impl MailboxReplica {
    pub fn new(connector: Arc<dyn Connector>, account: ConnectorAccount) -> Self {
        Self {
            connector,
            account,
            changes: Cursors::new(),
            folders: BTreeMap::new(),
            placements: BTreeMap::new(),
            contents: BTreeMap::new(),
        }
    }

    /// Lists and fetches everything that is in the mailbox, in the order in which a sync does.
    pub async fn begin(&mut self) -> Result<(), ConnectorError> {
        self.follow().await?;
        let mut cursors = Cursors::new();
        while !self.history(&mut cursors).await?.is_last {}
        self.fetch().await
    }

    /// Follows the changes, with those that show only in a sweep; see [`ConnectorAccount::sweep_since`]. Where that finds new
    /// folders, they are followed as well: only once a folder is recorded does a connector know whether it is in scope, so
    /// one that is usually left out, such as a folder below the deleted items, is left to the next sync.
    pub async fn sweep(&mut self) -> Result<usize, ConnectorError> {
        self.account.sweep_since = Some(SystemClock.now());
        let known: BTreeSet<String> = self.folders.keys().cloned().collect();
        let pages = self.follow().await?;
        if self.folders.keys().all(|folder| known.contains(folder)) {
            return Ok(pages);
        }
        Ok(pages + self.follow().await?)
    }

    /// Lists and fetches everything that has changed. Returns how many pages listed something.
    pub async fn follow(&mut self) -> Result<usize, ConnectorError> {
        let mut pages = 0;
        // A sync reads the known folders when it begins.
        let account = self.account.clone();
        loop {
            let page = self.connector.changes(&account, &self.changes).await?;
            page.move_cursors(&mut self.changes);
            pages += usize::from(!page.is_empty());
            self.apply(&page);
            if page.is_last {
                self.fetch().await?;
                return Ok(pages);
            }
        }
    }

    /// Lists one page of the history.
    pub async fn history(&mut self, cursors: &mut Cursors) -> Result<ListingPage, ConnectorError> {
        let page = self.connector.history(&self.account, cursors, &self.changes, None).await?;
        page.move_cursors(cursors);
        self.apply(&page);
        Ok(page)
    }

    /// Obtains new cursors of changes after the old ones have expired.
    pub async fn begin_again(&mut self) -> Result<(), ConnectorError> {
        self.changes.clear();
        self.follow().await.map(drop)
    }

    /// Lists everything as it is now; what is not listed is removed.
    pub async fn compare(&mut self) -> Result<(), ConnectorError> {
        let (mut cursors, changes) = (Cursors::new(), self.changes.clone());
        let (mut listed, mut unchanged) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let page = self.connector.list(&self.account, &cursors, Some(&changes), None).await?;
            page.move_cursors(&mut cursors);
            let seen = page.seen.iter().chain(&page.relisted).chain(&page.id_only).chain(&page.flags_only);
            listed.extend(seen.map(|seen| seen.placement.clone()));
            unchanged.extend(page.unchanged.iter().cloned());
            self.apply(&page);
            if page.is_last {
                break;
            }
        }
        self.placements.retain(|placement, known| listed.contains(placement) || unchanged.contains(&known.message));
        self.fetch().await
    }

    /// Lists everything as it is now, and leaves the replica as it is.
    pub async fn listed(&self) -> Result<BTreeSet<Placement>, ConnectorError> {
        let (mut cursors, mut placements) = (Cursors::new(), BTreeSet::new());
        loop {
            let page = self.connector.list(&self.account, &cursors, None, None).await?;
            page.move_cursors(&mut cursors);
            placements.extend(page.seen.into_iter().map(|seen| seen.placement));
            if page.is_last {
                return Ok(placements);
            }
        }
    }

    pub fn placements(&self) -> BTreeSet<Placement> {
        self.placements.keys().cloned().collect()
    }

    pub fn message_ids(&self) -> BTreeSet<String> {
        self.placements.values().map(|known| known.message.clone()).collect()
    }

    /// By id.
    pub fn folders(&self) -> &BTreeMap<String, ListedFolder> {
        &self.folders
    }

    fn apply(&mut self, page: &ListingPage) {
        for folder in &page.folders {
            self.folders.insert(folder.id.clone(), folder.clone());
            self.account.folders.retain(|known| known.id != folder.id);
            self.account.folders.push(KnownFolder {
                id: folder.id.clone(),
                name: folder.name.clone(),
                role: folder.role,
                delimiter: folder.delimiter.clone(),
                uid_validity: folder.uid_validity,
                is_in_scope: true,
                missing_since: None,
            });
        }
        self.placements.retain(|_, known| !page.complete_placements.contains(&known.message));
        let known: BTreeSet<String> = self.placements.values().map(|known| known.message.clone()).collect();
        let new = page.id_only.iter().filter(|seen| !known.contains(&seen.message));
        let marked: Vec<_> =
            page.flags_only.iter().filter(|seen| self.placements.contains_key(&seen.placement)).collect();
        let mut present = BTreeSet::new();
        for seen in page.seen.iter().chain(&page.relisted).chain(new).chain(marked) {
            let message = ReplicaMessage {
                message: seen.message.clone(),
                flags: seen.flags.names().to_vec(),
                revision: seen.revision.clone(),
                size_bytes: seen.size_bytes,
            };
            self.placements.insert(seen.placement.clone(), message);
            present.insert(&seen.placement);
        }
        // As a sync does: one that is listed as present, too, is present.
        for removed in page.removed_placements.iter().filter(|removed| !present.contains(removed)) {
            self.placements.remove(removed);
        }
        for snapshot in &page.folder_snapshots {
            self.placements.retain(|at, _| at.folder != snapshot.folder || snapshot.uids.contains(&at.uid));
        }
        // A sync looks twice.
        for removed in &page.missing_folders {
            self.changes.remove(removed);
            self.folders.remove(removed);
            self.account.folders.retain(|known| known.id != *removed);
            self.placements.retain(|at, _| at.folder != *removed);
        }
    }

    /// Messages that are not here yet, or not in their last revision.
    fn missing(&self) -> Vec<FetchRequest> {
        let mut requests: BTreeMap<&str, FetchRequest> = BTreeMap::new();
        for (placement, known) in &self.placements {
            let content = self.contents.get(&known.message);
            if content.is_none_or(|content| content.revision != known.revision) {
                let request = requests.entry(&known.message).or_insert_with(|| FetchRequest {
                    message: known.message.clone(),
                    placements: Vec::new(),
                    size_bytes: known.size_bytes,
                });
                request.placements.push(placement.clone());
            }
        }
        requests.into_values().collect()
    }

    /// Fetches what is missing. What came before an error is kept.
    pub async fn fetch(&mut self) -> Result<(), ConnectorError> {
        let requests = self.missing();
        if requests.is_empty() {
            return Ok(());
        }
        let mut fetched = FetchedMessages::default();
        let outcome = self.connector.fetch(&self.account, &requests, &mut fetched).await;
        let (whole, failed) = (std::mem::take(&mut fetched.whole), std::mem::take(&mut fetched.failed));
        if outcome.is_ok() {
            assert_eq!(whole.len() + failed.len(), requests.len(), "a message neither came nor failed");
        }
        for (id, (metadata, bytes)) in whole {
            self.store(&id, metadata, &bytes);
        }
        let mut error = None;
        for (id, failure) in failed {
            match failure {
                ConnectorError::Gone => self.placements.retain(|_, known| known.message != id),
                failure => error = Some(failure),
            }
        }
        error.map_or(outcome, Err)
    }

    fn store(&mut self, id: &str, metadata: MessageMetadata, bytes: &[u8]) {
        let listed =
            self.placements.values().find(|known| known.message == id).and_then(|known| known.revision.clone());
        let revision = metadata.revision.or_else(|| listed.clone());
        let content =
            ReplicaContent { revision: revision.clone(), sha256: Sha256::of(bytes), size_bytes: bytes.len() as u64 };
        self.contents.insert(id.to_owned(), content);
        if let Some(placements) = metadata.placements {
            self.placements.retain(|_, known| known.message != id);
            for (placement, flags) in placements {
                let message = ReplicaMessage {
                    message: id.to_owned(),
                    flags: flags.names().to_vec(),
                    revision: revision.clone(),
                    size_bytes: None,
                };
                self.placements.insert(placement, message);
            }
        }
    }

    /// Returns any message, and the folder of its first placement.
    pub fn any_message(&self) -> (FetchRequest, &ListedFolder) {
        let (first, known) = self.placements.first_key_value().expect("there is no message in the mailbox");
        let placements = self.placements.iter().filter(|(_, other)| other.message == known.message);
        let request = FetchRequest {
            message: known.message.clone(),
            placements: placements.map(|(placement, _)| placement.clone()).collect(),
            size_bytes: known.size_bytes,
        };
        (request, &self.folders[&first.folder])
    }

    /// Returns the [`placement_line`] of every placement, sorted. `folder_key`: what the lines call a folder.
    pub fn lines(&self, folder_key: impl Fn(&ListedFolder) -> String) -> Vec<String> {
        let mut lines: Vec<String> = self
            .placements
            .iter()
            .map(|(placement, known)| {
                let folder = self.folders.get(&placement.folder);
                let folder = folder.map_or_else(|| "a folder that was never listed".to_owned(), &folder_key);
                let sha256 = self.contents.get(&known.message).map(|content| content.sha256.hex()).unwrap_or_default();
                placement_line(&folder, &placement.uid, &known.flags, &sha256)
            })
            .collect();
        lines.sort();
        lines
    }

    /// Returns messages whose listed size is not that of their bytes.
    pub fn misstated_sizes(&self) -> Vec<&str> {
        let misstated = self.placements.values().filter(|known| {
            known.size_bytes.is_none() || known.size_bytes != self.contents.get(&known.message).map(|is| is.size_bytes)
        });
        misstated.map(|known| known.message.as_str()).collect()
    }
}

/// A sink that keeps everything and checks the order of its calls.
#[derive(Debug, Default)]
pub struct FetchedMessages {
    pub whole: BTreeMap<String, (MessageMetadata, Vec<u8>)>,
    pub failed: BTreeMap<String, ConnectorError>,
    open: Option<(String, Vec<u8>)>,
    max_bytes: Option<usize>,
}

impl FetchedMessages {
    /// Refuses what goes beyond so many bytes of a message.
    pub fn at_most(bytes: usize) -> Self {
        let mut fetched = Self::default();
        fetched.max_bytes = Some(bytes);
        fetched
    }
}

impl MessageSink for FetchedMessages {
    fn begin(&mut self, message: &str) {
        assert!(self.open.is_none(), "a message begins inside another");
        self.open = Some((message.to_owned(), Vec::new()));
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (_, written) = self.open.as_mut().expect("a message begins before it is written");
        written.extend_from_slice(bytes);
        if self.max_bytes.is_some_and(|max| written.len() > max) {
            return Err(io::Error::other("too much"));
        }
        Ok(())
    }

    fn end(&mut self, metadata: MessageMetadata) -> io::Result<()> {
        let (message, bytes) = self.open.take().expect("a message begins before it ends");
        assert!(self.whole.insert(message, (metadata, bytes)).is_none(), "a message came twice");
        Ok(())
    }

    fn fail(&mut self, message: &str, error: ConnectorError) {
        if let Some((open, _)) = self.open.take() {
            assert_eq!(open, message, "another message fails than the one that is open");
        }
        self.failed.insert(message.to_owned(), error);
    }
}

impl Drop for FetchedMessages {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.open.is_none(), "a message neither ended nor failed");
        }
    }
}
