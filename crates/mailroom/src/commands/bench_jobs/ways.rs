//! The same backlog claimed in three ways by one and the same loop: a claimer and a completer side by side, with the
//! batches of a worker. Nothing is run in between, so what is compared is claiming alone.

use std::time::{Duration, Instant};

use domain::{JobId, SystemClock, WorkerId};
use jobs::probe::Noop;
use jobs::{Job, fair};
use store::SystemStore;
use store::sql::jobs::{BareJob, Claimed, Head};
use tokio::sync::mpsc;

use super::queue::{LEASE, Queue};
use crate::failure::Failure;

/// The most that a worker claims at once, and the most that it completes at once.
const CLAIM: usize = 500;
const COMPLETE: usize = 1000;

/// As many claims one after the other that find nothing while something waits are no accident.
const MOST_IN_VAIN: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As a worker does: what came is counted, queues are listed, a plan is made, and so much is taken of each.
    Fair,
    /// Whatever came first, by one statement; completed as a worker does.
    Fifo,
    /// The same without reading the jobs, and moved to the finished ones without a look at tokens and children.
    Bare,
}

enum Batch {
    Claimed(Vec<Claimed>),
    Bare(Vec<BareJob>),
}

impl Batch {
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
            _ => unreachable!("a run has one way"),
        }
    }
}

/// Fills the queue and empties it; jobs a second of the latter.
pub async fn drain(queue: &Queue, way: Way) -> Result<f64, Failure> {
    let system = queue.store.system();
    if way == Way::Fair {
        queue.enqueue().await?;
        return empty(queue, way).await;
    }
    let fair_index = system.order_plainly().await?;
    queue.enqueue().await?;
    let per_second = empty(queue, way).await?;
    system.order_fairly(&fair_index).await?;
    // Nobody counted meanwhile; the next fair claim is not to pay for that.
    for _ in 0..=queue.jobs / 1000 {
        system.count_arrivals().await?;
    }
    Ok(per_second)
}

async fn empty(queue: &Queue, way: Way) -> Result<f64, Failure> {
    let system = queue.store.system();
    system.analyze().await?;
    let worker = system.register_worker("bench", &[Noop::KIND.to_owned()], LEASE).await?;
    let (claimed, completing) = mpsc::channel(2);
    let begun = Instant::now();
    tokio::try_join!(claim_all(&system, worker, way, queue.jobs, claimed), complete_all(&system, completing))?;
    let seconds = begun.elapsed().as_secs_f64();
    system.dismiss_worker(worker).await?;
    Ok(queue.jobs as f64 / seconds)
}

/// As a worker does when nobody tells of new jobs.
const COUNT_EVERY: Duration = Duration::from_millis(250);

async fn claim_all(
    system: &SystemStore,
    worker: WorkerId,
    way: Way,
    jobs: usize,
    claimed: mpsc::Sender<Batch>,
) -> Result<(), Failure> {
    let kinds = [Noop::KIND.to_owned()];
    let (mut left, mut in_vain, mut head) = (jobs, 0, Head::default());
    let mut counted = None;
    while left > 0 {
        let batch = match way {
            Way::Fair => {
                if counted.is_none_or(|then: Instant| then.elapsed() > COUNT_EVERY) || in_vain > 0 {
                    counted = Some(Instant::now());
                    system.count_latest_arrivals().await?;
                }
                let shares = fair::plan(&system.list_candidates(&kinds).await?, CLAIM as u64);
                Batch::Claimed(system.claim(worker, &shares).await?)
            }
            Way::Fifo => Batch::Claimed(system.claim_plainly(worker, &kinds, CLAIM as u64, &mut head).await?),
            Way::Bare => Batch::Bare(system.claim_bare(worker, CLAIM as u64, &mut head).await?),
        };
        if batch.len() == 0 {
            in_vain += 1;
            if in_vain > MOST_IN_VAIN {
                return Err(Failure::problem(format!("{left} jobs wait and cannot be claimed")));
            }
            continue;
        }
        in_vain = 0;
        left = left.saturating_sub(batch.len());
        if claimed.send(batch).await.is_err() {
            break; // the completer failed, and says so
        }
    }
    Ok(())
}

async fn complete_all(system: &SystemStore, mut claimed: mpsc::Receiver<Batch>) -> Result<(), Failure> {
    while let Some(mut batch) = claimed.recv().await {
        while batch.len() + CLAIM <= COMPLETE
            && let Ok(more) = claimed.try_recv()
        {
            batch.add(more);
        }
        let finished = match &batch {
            Batch::Claimed(jobs) => system.finish_done(jobs, || JobId::new(&SystemClock)).await?.len(),
            Batch::Bare(jobs) => usize::try_from(system.finish_bare(jobs).await?).unwrap_or(usize::MAX),
        };
        if finished != batch.len() {
            return Err(Failure::problem(format!("{finished} of {} jobs were completed", batch.len())));
        }
    }
    Ok(())
}
