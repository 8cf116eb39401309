//! How many calls of one provider are on their way at once.

use std::sync::Arc;

use domain::Lane;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Call;

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

    /// `None`: as many as may be are under way.
    pub fn take(&self, call: Call) -> Option<UnderWay> {
        let (fetch, old) = match call {
            Call::Fetch(Lane::Low) => (Some(one(&self.fetches)?), Some(one(&self.old)?)),
            Call::Fetch(_) => (Some(one(&self.fetches)?), None),
            Call::Look | Call::Directory => (None, None),
        };
        Some(UnderWay { _permits: [Some(one(&self.all)?), fetch, old] })
    }
}

fn one(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    places.clone().try_acquire_owned().ok()
}
