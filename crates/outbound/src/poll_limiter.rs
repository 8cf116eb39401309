//! A limiter for polls: bounds how much of this process the polls of one provider take, so that a slow or dead provider
//! leaves the others their share. Waiting jobs of a provider are served by start-time fair queueing over tenants:
//! tenants take turns by weight, however many mailboxes one has; so they do not wait in the order of their arrival, as they
//! would in the [table of permits](crate::permits) itself. Limits hold per process; mailboxes that are not polled in groups
//! (IMAP, and those never synced) do not pass here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Provider, TenantId};
use tokio::sync::oneshot;

use crate::limits::{Limit, PollLimits};
use crate::permits::{Permit, PermitTable};

/// Mailboxes that are polled or fetched from at the same time, unless it is configured.
const DEFAULT_WORKERS: usize = 500;

/// Hands out [`PollJobPermit`]s and [`PollPermits`]. Cheap to clone; clones share their state.
#[derive(Debug, Clone)]
pub struct PollLimiter {
    limits: PollLimits,
    jobs: PermitTable<PollScope>,
    polls: PermitTable<PollScope>,
    queues: Arc<Mutex<HashMap<Provider, ProviderQueue>>>,
}

/// What a poll or its job is counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PollScope {
    Provider(Provider),
    Tenant(TenantId, Provider),
}

/// The waiting jobs of one provider.
#[derive(Debug, Default)]
struct ProviderQueue {
    waiting: BTreeMap<(i64, u64), PollWaiter>,
    /// The virtual time of the queue, the virtual finish time of each waiting tenant, and a counter that breaks ties.
    virtual_time: i64,
    finish_times: HashMap<TenantId, i64>,
    arrivals: u64,
}

#[derive(Debug)]
struct PollWaiter {
    tenant: TenantId,
    count: usize,
    sender: oneshot::Sender<PollPermits>,
}

/// Permits one poll job to run or wait, until it is dropped.
pub type PollJobPermit = Permit<PollScope>;

/// Permits several polls at the same time, until it is dropped.
#[derive(Debug)]
pub struct PollPermits {
    limiter: PollLimiter,
    provider: Provider,
    permits: Permit<PollScope>,
}

impl Default for PollLimiter {
    fn default() -> Self {
        Self::new(PollLimits::for_workers(DEFAULT_WORKERS))
    }
}

impl PollLimiter {
    pub fn new(limits: PollLimits) -> Self {
        let (jobs, polls) = (PermitTable::new(Limit::PollJobs), PermitTable::new(Limit::Polls));
        Self { limits, jobs, polls, queues: Arc::default() }
    }

    /// Admits a poll job. Returns `None` if its provider or tenant has as many as it may.
    pub fn admit(&self, tenant: TenantId, provider: Provider) -> Option<PollJobPermit> {
        let PollLimits { jobs, first_jobs, tenant_jobs, .. } = self.limits;
        let (of_provider, of_tenant) = (PollScope::Provider(provider), PollScope::Tenant(tenant, provider));
        let any = [(of_provider, jobs), (of_tenant, tenant_jobs)];
        let first = [(of_provider, first_jobs), (of_tenant, 1)];
        self.jobs.acquire(if self.jobs.has_free(&any, 1) { &any } else { &first })
    }

    /// Waits for permits for `count` polls, or for as many as one tenant may have. `cost` is the price of one poll,
    /// lower for tenants of more weight. Returns `None` only if the limiter is gone.
    pub async fn acquire(&self, owner: (TenantId, Provider), count: usize, cost: i64) -> Option<PollPermits> {
        let (tenant, provider) = owner;
        let (sender, granted) = oneshot::channel();
        let waiting = PollWaiter { tenant, count: count.min(self.limits.tenant_polls), sender };
        self.queues().entry(provider).or_default().push(waiting, cost);
        self.grant(provider);
        granted.await.ok()
    }

    /// Grants free permits to the jobs that are next. A cancelled waiter drops its permits, which grants them to others and
    /// needs the lock, so they are sent after it is dropped.
    fn grant(&self, provider: Provider) {
        let mut granted = Vec::new();
        let mut queues = self.queues();
        if let Some(queue) = queues.get_mut(&provider) {
            while let Some(next) = queue.pop(provider, &self.polls, &self.limits) {
                granted.push(next);
            }
            if queue.waiting.is_empty() {
                queues.remove(&provider);
            }
        }
        drop(queues);
        for (sender, permits) in granted {
            let _ = sender.send(PollPermits { limiter: self.clone(), provider, permits });
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Provider, ProviderQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProviderQueue {
    /// Queues a job behind those of its own tenant, and before tenants that have more waiting.
    fn push(&mut self, waiting: PollWaiter, cost: i64) {
        let begun = self.finish_times.get(&waiting.tenant).copied().unwrap_or_default().max(self.virtual_time);
        let virtual_time = begun.saturating_add(cost.saturating_mul(waiting.count as i64));
        self.finish_times.insert(waiting.tenant, virtual_time);
        self.arrivals += 1;
        self.waiting.insert((virtual_time, self.arrivals), waiting);
    }

    /// Takes the permits of the job that is next, if there are enough. A tenant that has as many polls as it may is passed
    /// over.
    fn pop(
        &mut self,
        provider: Provider,
        polls: &PermitTable<PollScope>,
        limits: &PollLimits,
    ) -> Option<(oneshot::Sender<PollPermits>, Permit<PollScope>)> {
        let (key, scopes, count) = self.waiting.iter().find_map(|(key, waiting)| {
            let of_tenant = (PollScope::Tenant(waiting.tenant, provider), limits.tenant_polls);
            let scopes = [(PollScope::Provider(provider), limits.polls), of_tenant];
            polls.has_free(&scopes[1..], waiting.count).then_some((*key, scopes, waiting.count))
        })?;
        let permits = polls.try_acquire(&scopes, count)?;
        self.virtual_time = self.virtual_time.max(key.0);
        Some((self.waiting.remove(&key)?.sender, permits))
    }
}

impl PollPermits {
    /// Returns for how many polls it is.
    pub fn count(&self) -> usize {
        self.permits.count()
    }

    /// Keeps permits for `left` polls and releases the others.
    pub fn shrink_to(&mut self, left: usize) {
        if left < self.permits.count() {
            self.permits.shrink_to(left);
            self.limiter.grant(self.provider);
        }
    }
}

impl Drop for PollPermits {
    fn drop(&mut self) {
        self.shrink_to(0);
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

    fn limiter(workers: usize) -> PollLimiter {
        PollLimiter::new(PollLimits::for_workers(workers))
    }

    const GMAIL: Provider = Provider::Gmail;

    #[tokio::test]
    async fn busy_provider_or_tenant_leaves_room_for_others() {
        let limiter = limiter(50);
        let large = tenant();
        let places: Vec<_> = (0..100).filter_map(|_| limiter.admit(large, GMAIL)).collect();
        assert_eq!(places.len(), 2, "of one tenant");
        let second = tenant();
        let mut others: Vec<_> = (0..17).map(|_| limiter.admit(tenant(), GMAIL).unwrap()).collect();
        others.push(limiter.admit(second, GMAIL).unwrap());
        assert!(limiter.admit(second, GMAIL).is_none(), "of one provider");
        others.extend((0..100).filter_map(|_| limiter.admit(tenant(), GMAIL)));
        assert_eq!(others.len(), 20, "but for some who are the first");
        assert!(limiter.clone().admit(large, Provider::Outlook).is_some());
        drop((places, others));
        assert!(limiter.admit(large, GMAIL).is_some(), "places are given back");

        let mut polls = limiter.acquire((large, GMAIL), 25, 1).await.unwrap();
        assert_eq!(polls.count(), 10, "who wants more than a tenant may have gets that");
        let mut more = pin!(limiter.acquire((large, GMAIL), 4, 1));
        assert!(poll!(&mut more).is_pending());
        assert!(limiter.acquire((tenant(), GMAIL), 10, 1).await.is_some(), "and another passes those who wait for it");
        assert!(limiter.acquire((large, Provider::Outlook), 10, 1).await.is_some());
        polls.shrink_to(6);
        assert!(more.now_or_never().flatten().is_some(), "what has ended makes room before all of it has");
        drop(polls);
        assert_eq!(limiter.polls.scopes_in_use(), 0);
    }

    #[tokio::test]
    async fn small_backlog_is_served_first() {
        let limiter = limiter(20);
        let full = [limiter.acquire((tenant(), GMAIL), 4, 1).await, limiter.acquire((tenant(), GMAIL), 4, 1).await];
        let large = tenant();
        let mut of_large: Vec<_> = (0..5).map(|_| Box::pin(limiter.acquire((large, GMAIL), 4, 1))).collect();
        for waiter in &mut of_large {
            assert!(poll!(waiter).is_pending());
        }
        let mut of_small = Box::pin(limiter.acquire((tenant(), GMAIL), 3, 1));
        assert!(poll!(&mut of_small).is_pending());

        drop(full);
        assert!(of_small.now_or_never().flatten().is_some());
        let mut served = 0;
        for waiter in of_large {
            drop(waiter.now_or_never().flatten().expect("one after the other"));
            served += 1;
        }
        assert_eq!(served, 5);
        assert_eq!((limiter.polls.scopes_in_use(), limiter.queues().len()), (0, 0));
    }

    #[tokio::test]
    async fn cancelled_waiter_frees_its_permit() {
        let limiter = limiter(20);
        let (large, small) = (tenant(), tenant());
        let full = [limiter.acquire((tenant(), GMAIL), 4, 1).await, limiter.acquire((tenant(), GMAIL), 4, 1).await];
        let mut of_large: Vec<_> = (0..5).map(|_| Box::pin(limiter.acquire((large, GMAIL), 4, 1))).collect();
        for waiter in &mut of_large {
            assert!(poll!(waiter).is_pending());
        }
        let mut of_small = Box::pin(limiter.acquire((small, GMAIL), 3, 1));
        assert!(poll!(&mut of_small).is_pending());

        drop(full);
        let first = of_small.now_or_never().flatten().expect("the small one is next");
        drop(of_large.remove(0));
        drop(first);
        let mut served = 0;
        for waiter in of_large {
            drop(waiter.now_or_never().flatten().expect("no waiter is held up by the cancelled one"));
            served += 1;
        }
        assert_eq!(served, 4);
        assert_eq!((limiter.polls.scopes_in_use(), limiter.queues().len()), (0, 0));
    }

    #[tokio::test]
    async fn permits_follow_the_weights_of_tenants() {
        let limiter = limiter(10);
        let mut all: Vec<_> = Vec::new();
        for _ in 0..3 {
            all.extend(limiter.acquire((tenant(), GMAIL), 2, 2).now_or_never().flatten());
        }
        let (one, vip) = (tenant(), tenant());
        let mut waiter: Vec<_> = [(one, 2), (one, 2), (one, 2), (vip, 1), (vip, 1), (vip, 1), (vip, 1)]
            .map(|(tenant, cost)| (tenant, Box::pin(limiter.acquire((tenant, GMAIL), 2, cost))))
            .into();
        for (_, waiter) in &mut waiter {
            assert!(poll!(waiter).is_pending());
        }

        let mut order = Vec::new();
        all.truncate(1);
        while let Some(pop) = all.pop() {
            drop(pop);
            let mut rest = Vec::new();
            for (tenant, mut granted) in waiter {
                match poll!(&mut granted) {
                    std::task::Poll::Ready(polls) => {
                        order.push(if tenant == vip { "vip" } else { "one" });
                        all.extend(polls);
                    }
                    std::task::Poll::Pending => rest.push((tenant, granted)),
                }
            }
            waiter = rest;
        }
        assert_eq!(order.iter().take(6).filter(|who| **who == "vip").count(), 4, "{order:?}");
        assert_eq!(order.len(), 7);
    }

    #[tokio::test]
    async fn unclaimed_permits_are_released() {
        let limiter = limiter(20);
        let all = [limiter.acquire((tenant(), GMAIL), 4, 1).await, limiter.acquire((tenant(), GMAIL), 4, 1).await];
        let mut waiter = Box::pin(limiter.acquire((tenant(), GMAIL), 4, 1));
        assert!(poll!(&mut waiter).is_pending());
        drop(all);
        drop(waiter);
        assert_eq!((limiter.polls.scopes_in_use(), limiter.queues().len()), (0, 0));
    }
}
