//! A limiter of the calls to one provider that are in flight at once.

use std::sync::Arc;

use domain::Lane;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::CallKind;

#[derive(Debug)]
pub struct CallLimiter {
    all: Arc<Semaphore>,
    /// Fetches take long, also because they wait for memory: one permit in five is reserved for polls and listings.
    fetches: Arc<Semaphore>,
    /// Another one in five is reserved for fetches of new mail.
    backfill: Arc<Semaphore>,
}

/// Permits one call, until it is dropped.
#[derive(Debug)]
pub struct CallPermit {
    _permits: [Option<OwnedSemaphorePermit>; 3],
}

impl CallLimiter {
    /// Creates a limiter with at least one permit of each kind.
    pub fn new(max: usize) -> Self {
        Self { all: semaphore(max), fetches: semaphore(max * 4 / 5), backfill: semaphore(max * 3 / 5) }
    }

    /// Takes a permit. Returns `None` if as many calls as allowed are in flight.
    pub fn acquire(&self, call: CallKind) -> Option<CallPermit> {
        let (fetch, backfill) = match call {
            CallKind::Fetch(Lane::Low) => (Some(try_acquire(&self.fetches)?), Some(try_acquire(&self.backfill)?)),
            CallKind::Fetch(_) => (Some(try_acquire(&self.fetches)?), None),
            CallKind::Poll | CallKind::Directory => (None, None),
        };
        Some(CallPermit { _permits: [Some(try_acquire(&self.all)?), fetch, backfill] })
    }
}

fn try_acquire(semaphore: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    semaphore.clone().try_acquire_owned().ok()
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.max(1)))
}
