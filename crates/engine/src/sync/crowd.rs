//! How much of this process the looks at one provider's mailboxes take: one that is slow, or gone, leaves the others theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::Provider;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Mailboxes that are looked at or fetched from at the same time, where nobody says.
const USUAL: usize = 500;

/// Cheap to clone; clones are one.
#[derive(Debug, Clone)]
pub struct Crowd {
    /// Jobs of one provider, under way or waiting for a place; and looks of them.
    jobs: usize,
    looks: usize,
    providers: Arc<Mutex<HashMap<Provider, Places>>>,
}

#[derive(Debug, Clone)]
struct Places {
    jobs: Arc<Semaphore>,
    looks: Arc<Semaphore>,
}

impl Default for Crowd {
    fn default() -> Self {
        Self::of(USUAL)
    }
}

impl Crowd {
    /// Of a process that works on so many mailboxes at the same time. No provider has more than two fifths of the jobs, nor
    /// more than half of the looks, however many of its mailboxes are due.
    pub fn of(workers: usize) -> Self {
        Self { jobs: (workers * 2 / 5).max(1), looks: (workers / 2).max(1), providers: Arc::default() }
    }

    /// `None`: its provider has enough of them already.
    pub fn enter(&self, provider: Provider) -> Option<OwnedSemaphorePermit> {
        self.places(provider).jobs.try_acquire_owned().ok()
    }

    /// Waits for its turn; those who came first go first. Nobody closes it.
    pub async fn look(&self, provider: Provider) -> Option<OwnedSemaphorePermit> {
        self.places(provider).looks.acquire_owned().await.ok()
    }

    fn places(&self, provider: Provider) -> Places {
        let mut providers = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        let places = providers.entry(provider).or_insert_with(|| Places {
            jobs: Arc::new(Semaphore::new(self.jobs)),
            looks: Arc::new(Semaphore::new(self.looks)),
        });
        places.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn however_many_come_for_one_provider_there_is_a_place_for_the_other() {
        let crowd = Crowd::of(10);
        let gmail: Vec<_> = (0..100).filter_map(|_| crowd.enter(Provider::Gmail)).collect();
        assert_eq!(gmail.len(), 4);
        assert!(crowd.clone().enter(Provider::Outlook).is_some());

        let mut looks = Vec::new();
        for _ in 0..5 {
            looks.push(crowd.look(Provider::Gmail).await);
        }
        assert!(futures_util::poll!(std::pin::pin!(crowd.look(Provider::Gmail))).is_pending());
        assert!(crowd.look(Provider::Outlook).await.is_some());

        drop(gmail);
        assert!(crowd.enter(Provider::Gmail).is_some(), "places are given back");
    }
}
