//! A worker process: claims jobs, runs them, and settles the outcome of each.
//!
//! Everything between two registrations is a session. When the lease cannot be renewed, the session ends at once with all
//! its running jobs, and the next one begins; the fence token refuses whatever the old one still tries to write.

mod attempt;
mod claimer;
mod completer;
mod prefetched;
mod session;
mod upkeep;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{JobId, WorkerId, redact_for_log};
use store::sql::jobs::{ClaimedJob, StopReason};
use store::{Store, StoreError};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::{JobKinds, Pool, RandomSource};
pub use attempt::panic_message;

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The process's name for people.
    pub name: String,
    pub lease: Duration,
    /// How often to look for jobs of which no notification arrived.
    pub poll: Duration,
    /// How many jobs of [`Pool::Io`] run at the same time; the same for the other two pools.
    pub io_slots: usize,
    pub cpu_slots: usize,
    pub remote_slots: usize,
    /// How long a shutdown waits for running jobs.
    pub grace: Duration,
}

/// A worker that runs until it is shut down.
#[derive(Debug)]
pub struct Worker {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Worker {
    pub fn start(store: Store, kinds: JobKinds, settings: WorkerSettings, random: Arc<dyn RandomSource>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let work = WorkerContext { store, kinds: Arc::new(kinds), settings: Arc::new(settings), random };
        Self { stop, task: tokio::spawn(session::run_sessions(work, stopped)) }
    }

    /// Shuts down once `stop` ends. Returns before that only if the worker has ended, and panics if that was by a panic.
    pub async fn work_until(mut self, stop: impl Future<Output = ()>) {
        tokio::select! {
            ended = &mut self.task => if let Err(e) = ended
                && let Ok(panic) = e.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            },
            () = stop => self.shut_down().await,
        }
    }

    /// Gives back jobs that were not started, and waits for running ones for at most [`WorkerSettings::grace`].
    pub async fn shut_down(self) {
        self.stop.send_replace(true);
        if let Err(e) = self.task.await {
            tracing::error!(error = redact_for_log(&e), "worker panicked");
        }
    }
}

/// The dependencies of every part of a worker.
#[derive(Debug, Clone)]
struct WorkerContext {
    store: Store,
    kinds: Arc<JobKinds>,
    settings: Arc<WorkerSettings>,
    random: Arc<dyn RandomSource>,
}

/// The state that the parts of one session share.
#[derive(Debug)]
struct Session {
    work: WorkerContext,
    worker: WorkerId,
    /// Every job that was claimed and is not settled yet. Others that the database lists as ours are given back.
    tracked: Mutex<HashSet<JobId>>,
    /// Stops each running job.
    running: Mutex<HashMap<JobId, oneshot::Sender<StopReason>>>,
    /// One permit: suspects, the jobs that were running when a process died, run one at a time.
    suspect_permits: Arc<Semaphore>,
    /// Queue of the completer, for jobs that are done and wrote nothing; `None` at the end of the session.
    done: Mutex<Option<mpsc::Sender<Arc<ClaimedJob>>>>,
    limits: PoolLimits,
}

/// Whether any tenant or kind has a concurrency limit, as each pool saw it last: a job that ends may then let another
/// start.
#[derive(Debug, Default)]
struct PoolLimits {
    io: AtomicBool,
    cpu: AtomicBool,
    remote: AtomicBool,
}

impl PoolLimits {
    fn record(&self, pool: Pool, has_limits: bool) {
        let seen = match pool {
            Pool::Io => &self.io,
            Pool::Cpu => &self.cpu,
            Pool::Remote => &self.remote,
        };
        seen.store(has_limits, Ordering::Relaxed);
    }

    fn any(&self) -> bool {
        [&self.io, &self.cpu, &self.remote].iter().any(|seen| seen.load(Ordering::Relaxed))
    }
}

impl Session {
    fn store(&self) -> &Store {
        &self.work.store
    }

    fn track(&self, jobs: &[ClaimedJob]) {
        self.tracked.lock().expect("no thread panics while it holds the list").extend(jobs.iter().map(|job| job.id));
    }

    fn untrack(&self, job: JobId) {
        self.tracked.lock().expect("no thread panics while it holds the list").remove(&job);
    }

    fn tracked(&self) -> Vec<JobId> {
        self.tracked.lock().expect("no thread panics while it holds the list").iter().copied().collect()
    }

    /// Queues a job for the completer; does nothing when the session is over.
    async fn complete_later(&self, job: Arc<ClaimedJob>) {
        let done = self.done.lock().expect("no thread panics while it holds the sender").clone();
        if let Some(done) = done {
            let _ = done.send(job).await; // closed only when the session is over
        }
    }

    fn new_id(&self) -> JobId {
        JobId::new(self.work.store.clock())
    }
}

/// Returns whether a retry may succeed.
fn is_transient(e: &StoreError) -> bool {
    matches!(e, StoreError::Unavailable(_) | StoreError::Busy(_))
}

/// Sleeps with exponential backoff and jitter.
async fn back_off(tries: u32, random: &dyn RandomSource) {
    let bound = Duration::from_millis(20).saturating_mul(1 << tries.min(6));
    tokio::time::sleep(bound.mul_f64(0.5 + random.next_fraction() / 2.0)).await;
}
