//! How many calls of one provider are on their way at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    /// Fetches take long, also because they wait for memory: one place in five is for those who find out what is new.
    fetches: Arc<Semaphore>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct UnderWay {
    _place: OwnedSemaphorePermit,
    _as_fetch: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// At least one, of each.
    pub fn new(most: usize) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.max(1)));
        Self { all: places(most), fetches: places(most * 4 / 5) }
    }

    pub fn are_left(&self) -> bool {
        self.all.available_permits() > 0
    }

    pub fn take(&self) -> Option<UnderWay> {
        let place = self.all.clone().try_acquire_owned().ok()?;
        Some(UnderWay { _place: place, _as_fetch: None })
    }

    pub fn take_for_fetch(&self) -> Option<UnderWay> {
        let as_fetch = self.fetches.clone().try_acquire_owned().ok()?;
        Some(UnderWay { _as_fetch: Some(as_fetch), ..self.take()? })
    }
}
