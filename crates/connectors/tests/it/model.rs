//! What a sync engine makes of pages and messages, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use domain::connector::{Cursors, Facts, Page, Place, Sink, Wanted};
use domain::{ConnectorError, FolderRole, Sha256};
use sim::scripted::Truth;

#[derive(Debug, Default)]
pub struct Model {
    pub folders: BTreeMap<String, (String, Option<FolderRole>)>,
    pub places: BTreeMap<Place, Known>,
    /// What was fetched of a message: of which revision, and the hash of its bytes.
    pub fetched: BTreeMap<String, (Option<String>, Sha256)>,
    /// Places that the listing under way has shown.
    listed: BTreeSet<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub message: String,
    pub flags: Vec<String>,
    pub revision: Option<String>,
    pub size: Option<u64>,
}

/// The rules that the documentation of [`Page`] states.
impl Model {
    pub fn apply(&mut self, page: &Page, cursors: &mut Cursors) {
        for folder in &page.folders {
            self.folders.insert(folder.id.clone(), (folder.name.clone(), folder.role));
        }
        // Of one that we do not have, a mark says nothing.
        let marked: Vec<_> = page.marked.iter().filter(|seen| self.places.contains_key(&seen.place)).collect();
        for seen in page.messages.iter().chain(&page.again).chain(marked) {
            assert!(self.folders.contains_key(&seen.place.folder), "a message in a folder that was never told");
            let known = Known {
                message: seen.message.clone(),
                flags: seen.flags.names().to_vec(),
                revision: seen.revision.clone(),
                size: seen.size_bytes,
            };
            self.places.insert(seen.place.clone(), known);
            self.listed.insert(seen.place.clone());
        }
        page.vanished.iter().for_each(|place| drop(self.places.remove(place)));
        for present in &page.present {
            self.places.retain(|place, _| place.folder != present.folder || present.uids.contains(&place.uid));
        }
        for folder in &page.gone_folders {
            self.folders.remove(folder);
            self.places.retain(|place, _| place.folder != *folder);
        }
        for (scope, cursor) in &page.cursors {
            match cursor.as_str() {
                "" => drop(cursors.remove(scope)),
                _ => drop(cursors.insert(scope.clone(), cursor.clone())),
            }
        }
    }

    pub fn begin_listing(&mut self) {
        self.listed.clear();
    }

    /// What the listing did not show is no more; folders it did not show neither.
    pub fn end_listing(&mut self, folders: &BTreeSet<String>) {
        self.places.retain(|place, _| self.listed.contains(place));
        self.folders.retain(|id, _| folders.contains(id));
    }

    /// Messages that are not here yet, or not with their last text.
    pub fn wanted(&self) -> Vec<Wanted> {
        let mut wanted: BTreeMap<&str, Wanted> = BTreeMap::new();
        for (place, known) in &self.places {
            let is_here = self.fetched.get(&known.message).is_some_and(|(revision, _)| *revision == known.revision);
            if !is_here {
                let new = || Wanted { message: known.message.clone(), places: Vec::new(), size_bytes: known.size };
                wanted.entry(&known.message).or_insert_with(new).places.push(place.clone());
            }
        }
        wanted.into_values().collect()
    }

    pub fn take(&mut self, mut taken: Taken) {
        for (message, (facts, bytes)) in std::mem::take(&mut taken.whole) {
            self.fetched.insert(message, (facts.revision, Sha256::of(&bytes)));
        }
    }

    pub fn assert_is(&self, truth: &Truth) {
        let names = |folders: &BTreeMap<String, (String, Option<FolderRole>)>| -> BTreeMap<String, String> {
            folders.iter().map(|(id, (name, _))| (id.clone(), name.clone())).collect()
        };
        let true_names: BTreeMap<String, String> =
            truth.folders.iter().map(|(id, folder)| (id.clone(), folder.name.clone())).collect();
        assert_eq!(names(&self.folders), true_names);
        let mut places = BTreeMap::new();
        for (id, folder) in &truth.folders {
            for place in &folder.places {
                let known = Known {
                    message: place.message.clone(),
                    flags: place.flags.clone(),
                    revision: place.revision.clone(),
                    size: Some(place.size as u64),
                };
                places.insert(Place { folder: id.clone(), uid: place.uid.clone() }, known);
                let fetched = &self.fetched[&place.message];
                assert_eq!((fetched.0.as_deref(), fetched.1.hex()), (place.revision.as_deref(), place.sha256.clone()));
            }
        }
        assert_eq!(self.places, places);
    }
}

/// What came of a fetch.
#[derive(Debug, Default)]
pub struct Taken {
    pub whole: BTreeMap<String, (Facts, Vec<u8>)>,
    pub failed: BTreeMap<String, ConnectorError>,
    under_way: Option<(String, Vec<u8>)>,
    most: Option<usize>,
}

impl Taken {
    /// Refuses what goes beyond so many bytes.
    pub fn at_most(bytes: usize) -> Self {
        let mut taken = Self::default();
        taken.most = Some(bytes);
        taken
    }
}

impl Sink for Taken {
    fn begin(&mut self, message: &str) {
        assert!(self.under_way.is_none(), "a message begins inside another");
        self.under_way = Some((message.to_owned(), Vec::new()));
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (_, taken) = self.under_way.as_mut().expect("a message begins before it is written");
        taken.extend_from_slice(bytes);
        match self.most {
            Some(most) if taken.len() > most => Err(io::Error::other("too much")),
            _ => Ok(()),
        }
    }

    fn end(&mut self, facts: Facts) -> io::Result<()> {
        let (message, bytes) = self.under_way.take().expect("a message begins before it ends");
        assert!(self.whole.insert(message, (facts, bytes)).is_none(), "a message came twice");
        Ok(())
    }

    fn fail(&mut self, message: &str, error: ConnectorError) {
        if let Some((begun, ..)) = self.under_way.take() {
            assert_eq!(begun, message, "another message fails than the one under way");
        }
        self.failed.insert(message.to_owned(), error);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.under_way.is_none(), "a message neither ended nor failed");
        }
    }
}
