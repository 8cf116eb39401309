//! How much of this process the looks at one provider's mailboxes take: one that is slow, or gone, leaves the others theirs.
//! And who of those who wait for a provider is next: tenants take turns, however many mailboxes one has.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Provider, TenantId};
use tokio::sync::oneshot;

/// Mailboxes that are looked at or fetched from at the same time, where nobody says.
const USUAL: usize = 500;

/// Cheap to clone; clones are one.
#[derive(Debug, Clone)]
pub struct Crowd {
    /// Jobs of one provider, at work or waiting, and of one tenant there; and looks of them at the same time.
    jobs: usize,
    of_tenant: usize,
    looks: usize,
    lines: Arc<Mutex<HashMap<Provider, Line>>>,
}

/// Those of one provider.
#[derive(Debug, Default)]
struct Line {
    jobs: usize,
    tenants: HashMap<TenantId, usize>,
    looks: usize,
    waiting: BTreeMap<(u64, u64), Waiting>,
    /// How far whose turn it was had come, how far each tenant is that waits, and how many have waited so far.
    clock: u64,
    clocks: HashMap<TenantId, u64>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiting {
    count: usize,
    answer: oneshot::Sender<Looks>,
}

/// The right of a job to be here, until it is dropped.
#[derive(Debug)]
pub struct Place {
    crowd: Crowd,
    whose: (TenantId, Provider),
}

/// The right to look at so many mailboxes, until it is dropped.
#[derive(Debug)]
pub struct Looks {
    crowd: Crowd,
    provider: Provider,
    count: usize,
}

impl Default for Crowd {
    fn default() -> Self {
        Self::of(USUAL)
    }
}

impl Crowd {
    /// Of a process that works on so many mailboxes at the same time. No provider has more than two fifths of the jobs, no
    /// tenant more than two fifths of those, and no provider more than half of the looks, however many mailboxes are due.
    pub fn of(workers: usize) -> Self {
        let jobs = (workers * 2 / 5).max(1);
        Self { jobs, of_tenant: (jobs * 2 / 5).max(1), looks: (workers / 2).max(1), lines: Arc::default() }
    }

    /// `None`: there are enough of them already.
    pub fn enter(&self, tenant: TenantId, provider: Provider) -> Option<Place> {
        let mut lines = self.lines();
        let line = lines.entry(provider).or_default();
        let of_tenant = line.tenants.get(&tenant).copied().unwrap_or_default();
        if line.jobs >= self.jobs || of_tenant >= self.of_tenant {
            return None;
        }
        line.jobs += 1;
        line.tenants.insert(tenant, of_tenant + 1);
        Some(Place { crowd: self.clone(), whose: (tenant, provider) })
    }

    /// Waits for its turn. `None` would mean that nobody can have one any more.
    pub async fn looks(&self, tenant: TenantId, provider: Provider, count: usize) -> Option<Looks> {
        let count = count.min(self.looks);
        let turn = {
            let mut lines = self.lines();
            let line = lines.entry(provider).or_default();
            if line.waiting.is_empty() && line.looks + count <= self.looks {
                line.looks += count;
                return Some(Looks { crowd: self.clone(), provider, count });
            }
            let (answer, turn) = oneshot::channel();
            line.wait(tenant, Waiting { count, answer });
            turn
        };
        turn.await.ok()
    }

    /// Gives what is free to those who are next. What nobody takes comes back, so this is not done while the lines are held.
    fn give(&self, provider: Provider) {
        let mut next = Vec::new();
        if let Some(line) = self.lines().get_mut(&provider) {
            while let Some(first) = line.waiting.first_entry()
                && line.looks + first.get().count <= self.looks
            {
                let ((clock, _), waiting) = first.remove_entry();
                line.clock = clock;
                line.looks += waiting.count;
                next.push(waiting);
            }
            if line.waiting.is_empty() {
                (line.clock, line.clocks) = (0, HashMap::new());
            }
        }
        for Waiting { count, answer } in next {
            // Who has gone drops it.
            let _ = answer.send(Looks { crowd: self.clone(), provider, count });
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Provider, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Behind what its tenant has waiting already, and before those who have more.
    fn wait(&mut self, tenant: TenantId, waiting: Waiting) {
        let clock = self.clocks.get(&tenant).copied().unwrap_or_default().max(self.clock) + waiting.count as u64;
        self.clocks.insert(tenant, clock);
        self.arrivals += 1;
        self.waiting.insert((clock, self.arrivals), waiting);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (tenant, provider) = self.whose;
        let mut lines = self.crowd.lines();
        let Some(line) = lines.get_mut(&provider) else { return };
        line.jobs -= 1;
        if let Some(left) = line.tenants.get_mut(&tenant) {
            *left -= 1;
            if *left == 0 {
                line.tenants.remove(&tenant);
            }
        }
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        if let Some(line) = self.crowd.lines().get_mut(&self.provider) {
            line.looks -= self.count;
        }
        self.crowd.give(self.provider);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use domain::SystemClock;
    use futures_util::{FutureExt, poll};

    use super::*;

    fn tenant() -> TenantId {
        TenantId::new(&SystemClock)
    }

    #[tokio::test]
    async fn however_many_come_for_one_provider_or_tenant_there_is_a_place_for_the_others() {
        let crowd = Crowd::of(50);
        let large = tenant();
        let places: Vec<_> = (0..100).filter_map(|_| crowd.enter(large, Provider::Gmail)).collect();
        assert_eq!(places.len(), 8, "of one tenant");
        let others: Vec<_> = (0..100).filter_map(|_| crowd.enter(tenant(), Provider::Gmail)).collect();
        assert_eq!(others.len(), 12, "of one provider");
        assert!(crowd.clone().enter(large, Provider::Outlook).is_some());
        drop((places, others));
        assert!(crowd.enter(large, Provider::Gmail).is_some(), "places are given back");

        let looks = crowd.looks(large, Provider::Gmail, 20).await;
        assert!(poll!(pin!(crowd.looks(large, Provider::Gmail, 10))).is_pending());
        assert!(crowd.looks(large, Provider::Outlook, 100).await.is_some(), "who wants more than there is gets all");
        drop(looks);
        assert!(crowd.looks(large, Provider::Gmail, 25).await.is_some());
    }

    #[tokio::test]
    async fn who_has_much_waiting_goes_behind_who_has_little_and_who_gives_up_holds_nobody_up() {
        let crowd = Crowd::of(20);
        let (large, small) = (tenant(), tenant());
        let all = crowd.looks(large, Provider::Gmail, 10).await;
        let mut of_large: Vec<_> = (0..5).map(|_| Box::pin(crowd.looks(large, Provider::Gmail, 10))).collect();
        for waits in &mut of_large {
            assert!(poll!(waits).is_pending());
        }
        let mut of_small = Box::pin(crowd.looks(small, Provider::Gmail, 2));
        assert!(poll!(&mut of_small).is_pending());

        drop(all);
        let first = of_small.now_or_never().flatten().expect("the small one is next");
        drop(of_large.remove(0));
        drop(first);
        let mut went = 0;
        for waits in of_large {
            drop(waits.now_or_never().flatten().expect("one after the other, and nobody waits for who has gone"));
            went += 1;
        }
        assert_eq!(went, 4);
        assert_eq!(crowd.lines()[&Provider::Gmail].looks, 0);
    }

    #[tokio::test]
    async fn a_turn_that_was_given_and_not_taken_comes_back() {
        let crowd = Crowd::of(20);
        let all = crowd.looks(tenant(), Provider::Gmail, 10).await;
        let mut waits = Box::pin(crowd.looks(tenant(), Provider::Gmail, 10));
        assert!(poll!(&mut waits).is_pending());
        drop(all);
        drop(waits);
        assert!(crowd.looks(tenant(), Provider::Gmail, 10).now_or_never().flatten().is_some());
    }
}
