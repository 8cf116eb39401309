//! How much of this process the looks at one provider's mailboxes take: one that is slow, or gone, leaves the others theirs.
//! And who of those who wait for a provider is next: tenants take turns by weight, however many mailboxes one has.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Provider, TenantId};
use tokio::sync::oneshot;

/// Mailboxes that are looked at or fetched from at the same time, where nobody says.
const USUAL: usize = 500;

/// Cheap to clone; clones are one.
#[derive(Debug, Clone)]
pub struct Crowd {
    most: Room,
    /// Jobs, where one is the first of its tenant.
    most_first: usize,
    most_of_tenant: Room,
    lines: Arc<Mutex<HashMap<Provider, Line>>>,
}

/// Jobs that are at work or wait, and looks of them at the same time.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    jobs: usize,
    looks: usize,
}

/// Those of one provider.
#[derive(Debug, Default)]
struct Line {
    taken: Room,
    by_tenant: HashMap<TenantId, Room>,
    waiting: BTreeMap<(i64, u64), Waiting>,
    /// How far whose turn it was had come, how far each tenant is that waits, and how many have waited so far.
    clock: i64,
    clocks: HashMap<TenantId, i64>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiting {
    tenant: TenantId,
    count: usize,
    answer: oneshot::Sender<Looks>,
}

/// The right of a job to be here, until it is dropped.
#[derive(Debug)]
pub struct Place {
    crowd: Crowd,
    whose: (TenantId, Provider),
}

/// The right to look at so many mailboxes at the same time, until it is dropped.
#[derive(Debug)]
pub struct Looks {
    crowd: Crowd,
    whose: (TenantId, Provider),
    pub count: usize,
}

impl Default for Crowd {
    fn default() -> Self {
        Self::of(USUAL)
    }
}

impl Crowd {
    /// Of a process that works on so many mailboxes at the same time. No provider has more than two fifths of the jobs and
    /// half of the looks, and no tenant more than a tenth of those jobs and two fifths of those looks, however many mailboxes
    /// are due. A few more jobs may come who are the first of their tenants, lest they come back later for those who have some.
    pub fn of(workers: usize) -> Self {
        let most = Room { jobs: (workers * 2 / 5).max(1), looks: (workers / 2).max(1) };
        let most_of_tenant = Room { jobs: (most.jobs / 10).max(1), looks: (most.looks * 2 / 5).max(1) };
        Self { most, most_first: (workers * 9 / 20).max(1), most_of_tenant, lines: Arc::default() }
    }

    /// `None`: there are enough of them already.
    pub fn enter(&self, tenant: TenantId, provider: Provider) -> Option<Place> {
        let mut lines = self.lines();
        let line = lines.entry(provider).or_default();
        let of_tenant = line.of(tenant).jobs;
        let most = if of_tenant == 0 { self.most_first } else { self.most.jobs };
        if line.taken.jobs >= most || of_tenant >= self.most_of_tenant.jobs {
            return None;
        }
        line.taken.jobs += 1;
        line.by_tenant.entry(tenant).or_default().jobs += 1;
        Some(Place { crowd: self.clone(), whose: (tenant, provider) })
    }

    /// Waits for its turn; fewer than asked for where that is more than a tenant may have. `cost` is what each costs the
    /// tenant, less where it has more weight. `None` would mean that nobody can have a turn any more.
    pub async fn looks(&self, whose: (TenantId, Provider), count: usize, cost: i64) -> Option<Looks> {
        let (tenant, provider) = whose;
        let (answer, turn) = oneshot::channel();
        let waiting = Waiting { tenant, count: count.min(self.most_of_tenant.looks), answer };
        self.lines().entry(provider).or_default().wait(waiting, cost);
        self.give(provider);
        turn.await.ok()
    }

    /// Gives what is free to those who are next. What nobody takes comes back, so this is not done while the lines are held.
    fn give(&self, provider: Provider) {
        let mut next = Vec::new();
        if let Some(line) = self.lines().get_mut(&provider) {
            while let Some((clock, waiting)) = line.next(&self.most, &self.most_of_tenant) {
                line.clock = line.clock.max(clock);
                line.taken.looks += waiting.count;
                line.by_tenant.entry(waiting.tenant).or_default().looks += waiting.count;
                next.push(waiting);
            }
            if line.waiting.is_empty() {
                (line.clock, line.clocks) = (0, HashMap::new());
            }
        }
        for Waiting { tenant, count, answer } in next {
            // Who has gone drops it.
            let _ = answer.send(Looks { crowd: self.clone(), whose: (tenant, provider), count });
        }
    }

    fn take_back(&self, (tenant, provider): (TenantId, Provider), room: Room) {
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(&provider) else { return };
        let give_back = |of: &mut Room| {
            of.jobs -= room.jobs;
            of.looks -= room.looks;
        };
        give_back(&mut line.taken);
        if let Some(of_tenant) = line.by_tenant.get_mut(&tenant) {
            give_back(of_tenant);
            if (of_tenant.jobs, of_tenant.looks) == (0, 0) {
                line.by_tenant.remove(&tenant);
            }
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Provider, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn of(&self, tenant: TenantId) -> Room {
        self.by_tenant.get(&tenant).copied().unwrap_or_default()
    }

    /// Behind what its tenant has waiting already, and before those who have more.
    fn wait(&mut self, waiting: Waiting, cost: i64) {
        let begun = self.clocks.get(&waiting.tenant).copied().unwrap_or_default().max(self.clock);
        let clock = begun.saturating_add(cost.saturating_mul(waiting.count as i64));
        self.clocks.insert(waiting.tenant, clock);
        self.arrivals += 1;
        self.waiting.insert((clock, self.arrivals), waiting);
    }

    /// Who is next, if there is room: a tenant whose looks take long is passed over while it has all that it may.
    fn next(&mut self, most: &Room, most_of_tenant: &Room) -> Option<(i64, Waiting)> {
        let may_go = |waiting: &Waiting| self.of(waiting.tenant).looks + waiting.count <= most_of_tenant.looks;
        let (key, first) = self.waiting.iter().find(|(_, waiting)| may_go(waiting))?;
        if self.taken.looks + first.count > most.looks {
            return None;
        }
        let key = *key;
        Some((key.0, self.waiting.remove(&key)?))
    }
}

impl Looks {
    /// So many are left: others may begin.
    pub fn keep(&mut self, left: usize) {
        let free = self.count.saturating_sub(left);
        if free > 0 {
            self.count -= free;
            self.crowd.take_back(self.whose, Room { jobs: 0, looks: free });
            self.crowd.give(self.whose.1);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.take_back(self.whose, Room { jobs: 1, looks: 0 });
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.keep(0);
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

    const GMAIL: Provider = Provider::Gmail;

    #[tokio::test]
    async fn however_many_come_for_one_provider_or_tenant_there_is_a_place_for_the_others() {
        let crowd = Crowd::of(50);
        let large = tenant();
        let places: Vec<_> = (0..100).filter_map(|_| crowd.enter(large, GMAIL)).collect();
        assert_eq!(places.len(), 2, "of one tenant");
        let second = tenant();
        let mut others: Vec<_> = (0..17).map(|_| crowd.enter(tenant(), GMAIL).unwrap()).collect();
        others.push(crowd.enter(second, GMAIL).unwrap());
        assert!(crowd.enter(second, GMAIL).is_none(), "of one provider");
        others.extend((0..100).filter_map(|_| crowd.enter(tenant(), GMAIL)));
        assert_eq!(others.len(), 20, "but for some who are the first");
        assert!(crowd.clone().enter(large, Provider::Outlook).is_some());
        drop((places, others));
        assert!(crowd.enter(large, GMAIL).is_some(), "places are given back");

        let mut looks = crowd.looks((large, GMAIL), 25, 1).await.unwrap();
        assert_eq!(looks.count, 10, "who wants more than a tenant may have gets that");
        let mut more = pin!(crowd.looks((large, GMAIL), 4, 1));
        assert!(poll!(&mut more).is_pending());
        assert!(crowd.looks((tenant(), GMAIL), 10, 1).await.is_some(), "and another passes those who wait for it");
        assert!(crowd.looks((large, Provider::Outlook), 10, 1).await.is_some());
        looks.keep(6);
        assert!(more.now_or_never().flatten().is_some(), "what has ended makes room before all of it has");
        drop(looks);
        assert!(crowd.lines().values().all(|line| line.taken.looks == 0 && line.by_tenant.is_empty()));
    }

    #[tokio::test]
    async fn who_has_much_waiting_goes_behind_who_has_little_and_who_gives_up_holds_nobody_up() {
        let crowd = Crowd::of(20);
        let (large, small) = (tenant(), tenant());
        let full = [crowd.looks((tenant(), GMAIL), 4, 1).await, crowd.looks((tenant(), GMAIL), 4, 1).await];
        let mut of_large: Vec<_> = (0..5).map(|_| Box::pin(crowd.looks((large, GMAIL), 4, 1))).collect();
        for waits in &mut of_large {
            assert!(poll!(waits).is_pending());
        }
        let mut of_small = Box::pin(crowd.looks((small, GMAIL), 3, 1));
        assert!(poll!(&mut of_small).is_pending());

        drop(full);
        let first = of_small.now_or_never().flatten().expect("the small one is next");
        drop(of_large.remove(0));
        drop(first);
        let mut went = 0;
        for waits in of_large {
            drop(waits.now_or_never().flatten().expect("one after the other, and nobody waits for who has gone"));
            went += 1;
        }
        assert_eq!(went, 4);
        assert_eq!(crowd.lines()[&GMAIL].taken.looks, 0);
    }

    #[tokio::test]
    async fn a_tenant_of_twice_the_weight_has_twice_as_many_turns() {
        let crowd = Crowd::of(10);
        let mut all: Vec<_> = Vec::new();
        for _ in 0..3 {
            all.extend(crowd.looks((tenant(), GMAIL), 2, 2).now_or_never().flatten());
        }
        let (one, vip) = (tenant(), tenant());
        let mut waits: Vec<_> = [(one, 2), (one, 2), (one, 2), (vip, 1), (vip, 1), (vip, 1), (vip, 1)]
            .map(|(tenant, cost)| (tenant, Box::pin(crowd.looks((tenant, GMAIL), 2, cost))))
            .into();
        for (_, waits) in &mut waits {
            assert!(poll!(waits).is_pending());
        }

        let mut turns = Vec::new();
        all.truncate(1);
        while let Some(next) = all.pop() {
            drop(next);
            let mut rest = Vec::new();
            for (tenant, mut turn) in waits {
                match poll!(&mut turn) {
                    std::task::Poll::Ready(looks) => {
                        turns.push(if tenant == vip { "vip" } else { "one" });
                        all.extend(looks);
                    }
                    std::task::Poll::Pending => rest.push((tenant, turn)),
                }
            }
            waits = rest;
        }
        assert_eq!(turns.iter().take(6).filter(|who| **who == "vip").count(), 4, "{turns:?}");
        assert_eq!(turns.len(), 7);
    }

    #[tokio::test]
    async fn a_turn_that_was_given_and_not_taken_comes_back() {
        let crowd = Crowd::of(20);
        let all = [crowd.looks((tenant(), GMAIL), 4, 1).await, crowd.looks((tenant(), GMAIL), 4, 1).await];
        let mut waits = Box::pin(crowd.looks((tenant(), GMAIL), 4, 1));
        assert!(poll!(&mut waits).is_pending());
        drop(all);
        drop(waits);
        assert_eq!(crowd.lines()[&GMAIL].taken.looks, 0);
    }
}
