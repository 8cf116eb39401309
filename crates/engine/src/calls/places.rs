//! How many calls of one provider are on their way at once.

use std::sync::Arc;

use domain::Lane;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    /// Fetches take long, also because they wait for memory: one place in five is for those who find out what is new.
    fetches: Arc<Semaphore>,
    /// Another is for the fetches of that.
    old: Arc<Semaphore>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct UnderWay {
    _permits: [Option<OwnedSemaphorePermit>; 3],
}

impl Places {
    /// At least one, of each.
    pub fn new(most: usize) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.max(1)));
        Self { all: places(most), fetches: places(most * 4 / 5), old: places(most * 3 / 5) }
    }

    pub fn are_left(&self) -> bool {
        self.all.available_permits() > 0
    }

    pub fn take(&self) -> Option<UnderWay> {
        Some(UnderWay { _permits: [Some(one(&self.all)?), None, None] })
    }

    pub fn take_for_fetch(&self, lane: Lane) -> Option<UnderWay> {
        let old = match lane {
            Lane::Low => Some(one(&self.old)?),
            _ => None,
        };
        Some(UnderWay { _permits: [Some(one(&self.all)?), Some(one(&self.fetches)?), old] })
    }
}

fn one(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    places.clone().try_acquire_owned().ok()
}
