//! The same backlog claimed in three strategies by one and the same loop: a claimer and a completer side by side, with the
//! batches of a worker. Nothing is run in between, so what is compared is claiming alone.

use std::time::{Duration, Instant};

use domain::{JobId, SystemClock, WorkerId};
use jobs::noop::Noop;
use jobs::{Job, fair};
use store::SystemStore;
use store::bench::{self, FifoCursor, JobRef};
use store::sql::jobs::ClaimedJob;
use terminal::Failure;
use tokio::sync::mpsc;

use super::queue::{BenchQueue, LEASE};

/// The most jobs that a worker claims, and completes, at once.
const MAX_CLAIM_BATCH: usize = 500;
const MAX_COMPLETE_BATCH: usize = 1000;

/// With so many claims in a row that find nothing while jobs wait, the measurement fails.
const MAX_EMPTY_CLAIMS: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStrategy {
    /// As a worker claims: arrivals are counted, queues are listed, shares are planned, and each queue gives its share.
    Fair,
    /// The oldest first, by one statement; completed as a worker does.
    Fifo,
    /// The same without reading the jobs, and finished without a check of tokens and children.
    Bare,
}

/// Jobs that were claimed together.
enum ClaimedBatch {
    Claimed(Vec<ClaimedJob>),
    Bare(Vec<JobRef>),
}

impl ClaimedBatch {
    fn len(&self) -> usize {
        match self {
            Self::Claimed(jobs) => jobs.len(),
            Self::Bare(jobs) => jobs.len(),
        }
    }

    fn add(&mut self, more: Self) {
        match (self, more) {
            (Self::Claimed(jobs), Self::Claimed(more)) => jobs.extend(more),
            (Self::Bare(jobs), Self::Bare(more)) => jobs.extend(more),
            _ => unreachable!("a run has one strategy"),
        }
    }
}

/// Enqueues the backlog and works it off; returns jobs per second of the latter.
pub async fn drain(queue: &BenchQueue, strategy: ClaimStrategy) -> Result<f64, Failure> {
    let system = queue.store.system();
    if strategy == ClaimStrategy::Fair {
        queue.enqueue().await?;
        return work_off(queue, strategy).await;
    }
    let fair_index = bench::use_fifo_index(&system).await?;
    queue.enqueue().await?;
    let per_second = work_off(queue, strategy).await?;
    bench::restore_fair_index(&system, &fair_index).await?;
    // Arrivals were not counted meanwhile; the next fair claim must not pay for that.
    for _ in 0..=queue.jobs / 1000 {
        system.count_arrivals().await?;
    }
    Ok(per_second)
}

/// Claims and completes the backlog; returns jobs per second.
async fn work_off(queue: &BenchQueue, strategy: ClaimStrategy) -> Result<f64, Failure> {
    let system = queue.store.system();
    system.refresh_statistics().await?;
    let worker = system.register_worker("bench", &[Noop::KIND.to_owned()], LEASE).await?;
    let (claimed, completing) = mpsc::channel(2);
    let begun = Instant::now();
    tokio::try_join!(claim_all(&system, worker, strategy, queue.jobs, claimed), complete_all(&system, completing))?;
    let seconds = begun.elapsed().as_secs_f64();
    system.dismiss_worker(worker).await?;
    Ok(queue.jobs as f64 / seconds)
}

/// How often a worker counts arrivals when it is not notified of new jobs.
const COUNT_INTERVAL: Duration = Duration::from_millis(250);

async fn claim_all(
    system: &SystemStore,
    worker: WorkerId,
    strategy: ClaimStrategy,
    jobs: usize,
    claimed: mpsc::Sender<ClaimedBatch>,
) -> Result<(), Failure> {
    let kinds = [Noop::KIND.to_owned()];
    let (mut left, mut empty_claims, mut head) = (jobs, 0, FifoCursor::default());
    let mut counted = None;
    while left > 0 {
        let batch = match strategy {
            ClaimStrategy::Fair => {
                if counted.is_none_or(|then: Instant| then.elapsed() > COUNT_INTERVAL) || empty_claims > 0 {
                    counted = Some(Instant::now());
                    system.count_recent_arrivals().await?;
                }
                let shares = fair::plan_shares(&system.list_queue_candidates(&kinds).await?, MAX_CLAIM_BATCH as u64);
                ClaimedBatch::Claimed(system.claim_jobs(worker, &shares).await?)
            }
            ClaimStrategy::Fifo => ClaimedBatch::Claimed(
                bench::claim_fifo(system, worker, &kinds, MAX_CLAIM_BATCH as u64, &mut head).await?,
            ),
            ClaimStrategy::Bare => {
                ClaimedBatch::Bare(bench::claim_ids(system, worker, MAX_CLAIM_BATCH as u64, &mut head).await?)
            }
        };
        if batch.len() == 0 {
            empty_claims += 1;
            if empty_claims > MAX_EMPTY_CLAIMS {
                return Err(Failure::problem(format!("{left} jobs wait and cannot be claimed")));
            }
            continue;
        }
        empty_claims = 0;
        left = left.saturating_sub(batch.len());
        if claimed.send(batch).await.is_err() {
            break; // the completer failed, and says so
        }
    }
    Ok(())
}

async fn complete_all(system: &SystemStore, mut claimed: mpsc::Receiver<ClaimedBatch>) -> Result<(), Failure> {
    while let Some(mut batch) = claimed.recv().await {
        while batch.len() + MAX_CLAIM_BATCH <= MAX_COMPLETE_BATCH
            && let Ok(more) = claimed.try_recv()
        {
            batch.add(more);
        }
        let finished = match &batch {
            ClaimedBatch::Claimed(jobs) => system.finish_done(jobs, || JobId::new(&SystemClock)).await?.len(),
            ClaimedBatch::Bare(jobs) => {
                usize::try_from(bench::finish_unchecked(system, jobs).await?).unwrap_or(usize::MAX)
            }
        };
        if finished != batch.len() {
            return Err(Failure::problem(format!("{finished} of {} jobs were completed", batch.len())));
        }
    }
    Ok(())
}
