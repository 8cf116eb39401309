//! The memory budget of fetched messages, over all mailboxes, from their fetching until they are committed. It is no
//! [table of permits](crate::permits): it counts bytes, which a batch takes from whichever of two places has them first, and
//! returns as far as they did not come.
//!
//! Each provider has a reserve; the rest is shared, first come, first served. A slow provider keeps its memory for
//! long, and so soon has all that is shared: the others still have their reserves.
//!
//! Of a provider's backfill, one batch at a time waits in the queue, and the others wait behind it: new mail waits for
//! at most one backfill batch.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use domain::{ConnectorError, Lane, Provider};
use futures_util::future::{Either, select};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::limits::{Limit, MAX_BYTES_IN_FLIGHT, PROVIDER_RESERVE_BYTES, count_refusal};

/// The bytes of one permit: a semaphore cannot count single bytes so far.
const PERMIT_BYTES: u64 = 1024;

/// How often a waiting job reports progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Reports before a waiting job gives up, because calls have a deadline.
const MAX_PROGRESS_REPORTS: u32 = 60;

/// When a batch that found no memory is tried again.
const MEMORY_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The budget of this process. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    reserves: Arc<HashMap<Provider, ProviderMemory>>,
    shared: Arc<Semaphore>,
}

#[derive(Debug, Clone)]
struct ProviderMemory {
    free: Arc<Semaphore>,
    /// One permit: the backfill batch that waits in the queue.
    backfill: Arc<Semaphore>,
}

/// The memory that a job has reserved, until it is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    reserve_share: MemoryShare,
    shared: MemoryShare,
    /// For backfill: the permit to wait for before joining the queue.
    backfill_queue: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
struct MemoryShare {
    free: Arc<Semaphore>,
    acquired: Option<OwnedSemaphorePermit>,
}

/// Permits of the provider's reserve (left) or of the shared memory (right).
type AcquiredPermit = Either<OwnedSemaphorePermit, OwnedSemaphorePermit>;

impl Default for MemoryBudget {
    fn default() -> Self {
        let remote = Provider::ALL.into_iter().filter(|provider| provider.capabilities().is_remote);
        let reserves: HashMap<_, _> =
            remote.map(|provider| (provider, ProviderMemory::new(PROVIDER_RESERVE_BYTES))).collect();
        let shared = permits(MAX_BYTES_IN_FLIGHT - reserves.len() as u64 * PROVIDER_RESERVE_BYTES);
        Self { reserves: Arc::new(reserves), shared }
    }
}

impl ProviderMemory {
    fn new(bytes: u64) -> Self {
        Self { free: permits(bytes), backfill: Arc::new(Semaphore::new(1)) }
    }
}

fn permits(bytes: u64) -> Arc<Semaphore> {
    Arc::new(Semaphore::new((bytes / PERMIT_BYTES) as usize))
}

impl MemoryBudget {
    pub fn reservation(&self, provider: Provider, lane: Lane) -> MemoryReservation {
        // A provider without a reserve uses shared memory alone.
        let reserve = self.reserves.get(&provider).cloned().unwrap_or_else(|| ProviderMemory::new(0));
        let backfill_queue = (lane == Lane::Low).then_some(reserve.backfill);
        MemoryReservation {
            reserve_share: MemoryShare::new(reserve.free),
            shared: MemoryShare::new(self.shared.clone()),
            backfill_queue,
        }
    }
}

impl MemoryReservation {
    /// Reserves `bytes`. A job that has nothing yet waits for them and reports progress now and then; one that has some
    /// is refused rather than kept waiting.
    pub async fn reserve(&mut self, bytes: u64, report_progress: impl Fn()) -> Result<(), ConnectorError> {
        let permits = bytes.min(PROVIDER_RESERVE_BYTES).div_ceil(PERMIT_BYTES) as u32;
        if !self.is_empty() {
            // Jobs that hold memory and wait for more would wait for each other.
            let is_reserved = self.reserve_share.try_acquire(permits) || self.shared.try_acquire(permits);
            return is_reserved.then_some(()).ok_or_else(no_memory);
        }
        match self.wait(permits, report_progress).await {
            Some(Either::Left(acquired)) => self.reserve_share.acquired = Some(acquired),
            Some(Either::Right(acquired)) => self.shared.acquired = Some(acquired),
            None => return Err(no_memory()),
        }
        Ok(())
    }

    /// Releases bytes that were expected and did not come.
    pub fn release(&mut self, bytes: u64) {
        let surplus = usize::try_from(bytes / PERMIT_BYTES).unwrap_or(usize::MAX);
        // Shared memory first: all providers can use it.
        let released = self.shared.release(surplus);
        self.reserve_share.release(surplus - released);
    }

    fn is_empty(&self) -> bool {
        self.reserve_share.acquired.is_none() && self.shared.acquired.is_none()
    }

    async fn wait(&self, permits: u32, report_progress: impl Fn()) -> Option<AcquiredPermit> {
        let mut acquired = pin!(self.acquire(permits));
        for _ in 0..MAX_PROGRESS_REPORTS {
            match tokio::time::timeout(PROGRESS_INTERVAL, &mut acquired).await {
                Ok(acquired) => return acquired.ok(),
                // Others make progress, which is enough; the place in the queue is kept.
                Err(_) => report_progress(),
            }
        }
        None
    }

    /// Waits in both queues; whichever grants first counts.
    async fn acquire(&self, permits: u32) -> Result<AcquiredPermit, AcquireError> {
        let _first = match &self.backfill_queue {
            Some(backfill_queue) => Some(backfill_queue.acquire().await?),
            None => None,
        };
        let reserved = pin!(self.reserve_share.free.clone().acquire_many_owned(permits));
        let shared = pin!(self.shared.free.clone().acquire_many_owned(permits));
        Ok(match select(reserved, shared).await {
            Either::Left((acquired, _)) => Either::Left(acquired?),
            Either::Right((acquired, _)) => Either::Right(acquired?),
        })
    }
}

impl MemoryShare {
    fn new(free: Arc<Semaphore>) -> Self {
        Self { free, acquired: None }
    }

    fn try_acquire(&mut self, permits: u32) -> bool {
        let Ok(more) = self.free.clone().try_acquire_many_owned(permits) else { return false };
        match &mut self.acquired {
            Some(backfill_queue) => backfill_queue.merge(more),
            None => self.acquired = Some(more),
        }
        true
    }

    /// Releases up to `permits` and returns how many there were.
    fn release(&mut self, permits: usize) -> usize {
        let Some(mut acquired) = self.acquired.take() else { return 0 };
        let released = permits.min(acquired.num_permits());
        drop(acquired.split(released));
        self.acquired = (acquired.num_permits() > 0).then_some(acquired);
        released
    }
}

fn no_memory() -> ConnectorError {
    count_refusal(Limit::Memory);
    ConnectorError::RateLimited(MEMORY_RETRY_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    impl MemoryBudget {
        fn free(&self, provider: Provider) -> (usize, usize) {
            (self.reserves[&provider].free.available_permits() / 1024, self.shared.available_permits() / 1024)
        }
    }

    /// Reserves as much as a reserve until the next one would have to wait.
    async fn fill(memory: &MemoryBudget, provider: Provider) -> Vec<MemoryReservation> {
        let mut reservations = Vec::new();
        loop {
            let mut reservation = memory.reservation(provider, Lane::Normal);
            if futures_util::poll!(pin!(reservation.reserve(PROVIDER_RESERVE_BYTES, || ()))).is_pending() {
                return reservations;
            }
            reservations.push(reservation);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn job_with_memory_is_refused_rather_than_queued() {
        let memory = MemoryBudget::default();
        let mut reservation = memory.reservation(Provider::Gmail, Lane::Normal);
        reservation.reserve(3 * MB, || ()).await.unwrap();
        reservation.reserve(4 * MB, || ()).await.unwrap();
        assert_eq!(memory.free(Provider::Gmail), (1, 16), "its reserve first, then shared memory");
        let others = fill(&memory, Provider::Outlook).await;
        assert_eq!((others.len(), memory.free(Provider::Gmail)), (5, (1, 0)));
        assert_eq!(reservation.reserve(2 * MB, || ()).await, Err(ConnectorError::RateLimited(MEMORY_RETRY_DELAY)));
        reservation.reserve(MB, || ()).await.unwrap();

        drop(others);
        reservation.release(5 * MB);
        assert_eq!(memory.free(Provider::Gmail), (1, 20), "what others can use goes first");
        reservation.release(u64::MAX);
        assert_eq!(memory.free(Provider::Gmail), (4, 20), "no more than it has");
    }

    #[tokio::test(start_paused = true)]
    async fn job_without_memory_waits_and_gives_up() {
        let memory = MemoryBudget::default();
        let mut reservations = fill(&memory, Provider::Gmail).await;
        let mut late = memory.reservation(Provider::Gmail, Lane::Normal);
        assert_eq!(late.reserve(3 * MB, || ()).await, Err(ConnectorError::RateLimited(MEMORY_RETRY_DELAY)));

        // Whichever becomes free first: its reserve or shared memory.
        for n in [0, 1] {
            let (made, ()) = tokio::join!(late.reserve(3 * MB, || ()), async {
                tokio::time::sleep(PROGRESS_INTERVAL * 2).await;
                reservations[n].release(3 * MB);
            });
            assert_eq!(made, Ok(()));
            late.release(3 * MB);
        }
        late.reserve(3 * MB, || ()).await.unwrap();
        drop((late, reservations));
        assert_eq!(memory.free(Provider::Gmail), (4, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn reserved_part_stays_free_for_its_provider() {
        let memory = MemoryBudget::default();
        let gmail = fill(&memory, Provider::Gmail).await;
        let imap = fill(&memory, Provider::Imap).await;
        let mut lines: Vec<_> = (0..100).map(|_| memory.reservation(Provider::Gmail, Lane::Normal)).collect();
        let mut lines: Vec<_> =
            lines.iter_mut().map(|reservation| Box::pin(reservation.reserve(PROVIDER_RESERVE_BYTES, || ()))).collect();
        for waiting in &mut lines {
            assert!(futures_util::poll!(waiting).is_pending());
        }
        assert_eq!((gmail.len(), imap.len()), (6, 1));

        assert_eq!(
            memory.reservation(Provider::Outlook, Lane::Normal).reserve(100 * MB, || ()).await,
            Ok(()),
            "whatever it asks for"
        );
        assert_eq!(fill(&memory, Provider::Outlook).await.len(), 1, "and what they all have is what there is");
        assert_eq!(fill(&memory, Provider::Files).await.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn new_mail_waits_for_one_backfill_batch_at_most() {
        let memory = MemoryBudget::default();
        let mut full = fill(&memory, Provider::Gmail).await;
        let mut reservations: Vec<_> = (0..50).map(|_| memory.reservation(Provider::Gmail, Lane::Low)).collect();
        let mut backfill: Vec<_> = reservations
            .iter_mut()
            .map(|reservation| Box::pin(reservation.reserve(PROVIDER_RESERVE_BYTES, || ())))
            .collect();
        let mut begun = async || {
            let mut begun = 0;
            // Those that are over are not asked again.
            let mut left = Vec::new();
            for mut batch in std::mem::take(&mut backfill) {
                if futures_util::poll!(&mut batch).is_ready() {
                    begun += 1;
                } else {
                    left.push(batch);
                }
            }
            backfill = left;
            begun
        };
        assert_eq!(begun().await, 0);
        let mut reservation = memory.reservation(Provider::Gmail, Lane::Normal);
        let mut new = pin!(reservation.reserve(PROVIDER_RESERVE_BYTES, || ()));
        assert!(futures_util::poll!(&mut new).is_pending());

        full.pop();
        assert_eq!((begun().await, futures_util::poll!(&mut new).is_pending()), (1, true), "who came first");
        full.pop();
        assert_eq!((begun().await, futures_util::poll!(&mut new).is_ready()), (0, true));
        full.pop();
        assert_eq!((begun().await, begun().await), (1, 0), "and then the next");
    }
}
