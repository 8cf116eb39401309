//! What a sync engine makes of a connector's pages, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::connector::{Access, Account, Answer, Cursors, KnownFolder, Page, Wanted};
use domain::{Connector, ConnectorError, MailboxId, Secret, Sha256, SystemClock, TenantId};

use crate::model::Taken;

/// A token that is always the same.
#[derive(Debug)]
pub struct Fixed(pub String);

impl Access for Fixed {
    fn spend(&self, _units: u32) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn token(&self) -> Answer<'_, Secret<String>> {
        Box::pin(async { Ok(Secret::new(self.0.clone())) })
    }

    fn renew<'a>(&'a self, _refused: &'a Secret<String>) -> Answer<'a, Secret<String>> {
        Box::pin(async { Err(ConnectorError::Unauthorized("there is no other token".to_owned())) })
    }
}

/// A message as it was told: in which folders, with which flags, and what its bytes were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copy {
    pub folders: BTreeSet<String>,
    pub flags: Vec<String>,
    pub sha256: Option<Sha256>,
    pub revision: Option<String>,
}

#[derive(Debug)]
pub struct Mirror {
    pub connector: Arc<dyn Connector>,
    pub account: Account,
    pub cursors: Cursors,
    pub messages: BTreeMap<String, Copy>,
}

impl Mirror {
    pub fn new(connector: impl Connector + 'static, access: Arc<dyn Access>) -> Self {
        let account = Account {
            tenant: TenantId::new(&SystemClock),
            mailbox: MailboxId::new(&SystemClock),
            address: "me@acme.test".to_owned(),
            settings: "{}".to_owned(),
            secret: None,
            folders: Vec::new(),
            sweep_since: None,
            access,
        };
        Self { connector: Arc::new(connector), account, cursors: Cursors::new(), messages: BTreeMap::new() }
    }

    /// Everything that is there, in the order in which the engine asks for it.
    pub async fn begin(&mut self) {
        self.follow().await.unwrap();
        let (mut cursors, told) = (Cursors::new(), self.cursors.clone());
        loop {
            let page = self.connector.history(&self.account, &cursors, &told, None).await.unwrap();
            page.move_cursors(&mut cursors);
            let is_last = page.is_last;
            self.apply(&page);
            if is_last {
                break;
            }
        }
        self.fetch().await.unwrap();
    }

    /// Everything that has changed; how many pages told something.
    pub async fn follow(&mut self) -> Result<usize, ConnectorError> {
        let mut pages = 0;
        // What was recorded when a job began is what its connector knows until it ends.
        let account = self.account.clone();
        loop {
            let page = self.connector.changes(&account, &self.cursors).await?;
            page.move_cursors(&mut self.cursors);
            pages += usize::from(!page.is_empty());
            self.apply(&page);
            if page.is_last {
                self.fetch().await?;
                return Ok(pages);
            }
        }
    }

    /// Everything as it is now; what is not among it is no more.
    pub async fn compare(&mut self) {
        let (mut cursors, told) = (Cursors::new(), self.cursors.clone());
        let mut there = BTreeSet::new();
        loop {
            let page = self.connector.list(&self.account, &cursors, Some(&told), None).await.unwrap();
            page.move_cursors(&mut cursors);
            there.extend(page.messages.iter().map(|seen| seen.message.clone()));
            self.apply(&page);
            if page.is_last {
                break;
            }
        }
        self.messages.retain(|id, _| there.contains(id));
        self.fetch().await.unwrap();
    }

    /// Places as a count of the mailbox tells them: which messages are in which folder.
    pub async fn count(&self) -> BTreeMap<String, BTreeSet<String>> {
        let (mut cursors, mut folders) = (Cursors::new(), BTreeMap::new());
        loop {
            let page = self.connector.list(&self.account, &cursors, None, None).await.unwrap();
            page.move_cursors(&mut cursors);
            for seen in page.messages {
                folders.entry(seen.place.folder).or_insert_with(BTreeSet::new).insert(seen.message);
            }
            if page.is_last {
                return folders;
            }
        }
    }

    /// The same of what was told.
    pub fn places(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (message, copy) in &self.messages {
            for folder in &copy.folders {
                folders.entry(folder.clone()).or_default().insert(message.clone());
            }
        }
        folders
    }

    fn apply(&mut self, page: &Page) {
        for folder in &page.folders {
            self.account.folders.retain(|known| known.id != folder.id);
            let (id, name) = (folder.id.clone(), folder.name.clone());
            self.account.folders.push(KnownFolder {
                id,
                name,
                role: folder.role,
                delimiter: None,
                uid_validity: None,
                is_in_scope: true,
            });
        }
        self.account.folders.retain(|known| !page.gone_folders.contains(&known.id));
        for copy in self.messages.values_mut() {
            copy.folders.retain(|folder| !page.gone_folders.contains(folder));
        }
        for whole in &page.whole {
            if let Some(copy) = self.messages.get_mut(whole) {
                copy.folders.clear();
            }
        }
        for seen in
            page.named.iter().filter(|seen| !self.messages.contains_key(&seen.message)).cloned().collect::<Vec<_>>()
        {
            self.messages.entry(seen.message).or_default().folders.insert(seen.place.folder);
        }
        for seen in page.messages.iter().chain(&page.again) {
            let copy = self.messages.entry(seen.message.clone()).or_default();
            copy.folders.insert(seen.place.folder.clone());
            copy.flags = seen.flags.names().to_vec();
            if copy.revision != seen.revision {
                copy.revision.clone_from(&seen.revision);
                copy.sha256 = None;
            }
        }
        for present in &page.present {
            for (id, copy) in &mut self.messages {
                if !present.uids.contains(id) {
                    copy.folders.remove(&present.folder);
                }
            }
        }
        for place in &page.vanished {
            if let Some(copy) = self.messages.get_mut(&place.uid) {
                copy.folders.remove(&place.folder);
            }
        }
        self.messages.retain(|_, copy| !copy.folders.is_empty());
    }

    async fn fetch(&mut self) -> Result<(), ConnectorError> {
        let missing = self.messages.iter().filter(|(_, copy)| copy.sha256.is_none());
        let wanted = missing.map(|(id, _)| Wanted { message: id.clone(), places: Vec::new(), size_bytes: None });
        let wanted: Vec<Wanted> = wanted.collect();
        let mut taken = Taken::default();
        let outcome = self.connector.fetch(&self.account, &wanted, &mut taken).await;
        for (id, (facts, bytes)) in std::mem::take(&mut taken.whole) {
            let copy = self.messages.get_mut(&id).unwrap();
            copy.sha256 = Some(Sha256::of(&bytes));
            if let Some(places) = facts.places {
                copy.flags = places[0].1.names().to_vec();
                copy.folders = places.into_iter().map(|(place, _)| place.folder).collect();
            }
        }
        for (id, error) in std::mem::take(&mut taken.failed) {
            match error {
                ConnectorError::Gone => drop(self.messages.remove(&id)),
                error => return Err(error),
            }
        }
        outcome
    }
}
