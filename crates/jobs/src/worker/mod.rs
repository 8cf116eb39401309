//! One process at work: it claims jobs, runs them, and settles what came of each.
//!
//! Everything between two registrations is a session. When the lease cannot be kept, the session ends at once, with all
//! that runs in it, and the next one begins; whatever the old one still tries to write is refused by the token.

mod claimer;
mod completer;
mod run;
mod session;
mod upkeep;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{JobId, WorkerId};
use store::sql::jobs::{Claimed, Stop};
use store::{Store, StoreError};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::{Dice, Kinds, Pool};
pub use run::panic_message;

#[derive(Debug, Clone)]
pub struct Settings {
    /// What people call this process.
    pub name: String,
    pub lease: Duration,
    /// How often to look for work that nobody told us of.
    pub poll: Duration,
    /// Jobs that run at the same time, of those that mostly wait and of those that compute.
    pub io_slots: usize,
    pub cpu_slots: usize,
    /// Of those that wait for somebody far away.
    pub remote_slots: usize,
    /// How long a shutdown waits for what runs.
    pub grace: Duration,
}

/// A worker that runs until it is told to stop.
#[derive(Debug)]
pub struct Worker {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Worker {
    pub fn start(store: Store, kinds: Kinds, settings: Settings, dice: Arc<dyn Dice>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let work = Work { store, kinds: Arc::new(kinds), settings: Arc::new(settings), dice };
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

    /// Gives back what was not begun, and waits for what runs, as long as the settings say.
    pub async fn shut_down(self) {
        self.stop.send_replace(true);
        if let Err(e) = self.task.await {
            tracing::error!("the worker ended by a panic: {e}");
        }
    }
}

/// What every part of a worker needs.
#[derive(Debug, Clone)]
struct Work {
    store: Store,
    kinds: Arc<Kinds>,
    settings: Arc<Settings>,
    dice: Arc<dyn Dice>,
}

/// What the parts of one session share.
#[derive(Debug)]
struct Session {
    work: Work,
    worker: WorkerId,
    /// Every job that was claimed and is not settled yet. What the database has under our name beyond these is given back.
    held: Mutex<HashSet<JobId>>,
    /// How to stop each job that runs.
    running: Mutex<HashMap<JobId, oneshot::Sender<Stop>>>,
    /// Jobs that were around when a process died are run one at a time: who begins one holds this turn.
    suspects: Arc<Semaphore>,
    /// Jobs that are done and wrote nothing.
    done: Mutex<Option<mpsc::Sender<Arc<Claimed>>>>,
    limits: Limits,
}

/// Whether some tenant or kind has a limit, as each pool saw it last: whatever ends may then let another begin.
#[derive(Debug, Default)]
struct Limits {
    io: AtomicBool,
    cpu: AtomicBool,
    remote: AtomicBool,
}

impl Limits {
    fn saw(&self, pool: Pool, has_limits: bool) {
        let seen = match pool {
            Pool::Io => &self.io,
            Pool::Cpu => &self.cpu,
            Pool::Remote => &self.remote,
        };
        seen.store(has_limits, Ordering::Relaxed);
    }

    fn are_there(&self) -> bool {
        [&self.io, &self.cpu, &self.remote].iter().any(|seen| seen.load(Ordering::Relaxed))
    }
}

impl Session {
    fn store(&self) -> &Store {
        &self.work.store
    }

    fn hold(&self, jobs: &[Claimed]) {
        self.held.lock().expect("nobody panics while holding the list").extend(jobs.iter().map(|job| job.id));
    }

    fn let_go(&self, job: JobId) {
        self.held.lock().expect("nobody panics while holding the list").remove(&job);
    }

    fn held(&self) -> Vec<JobId> {
        self.held.lock().expect("nobody panics while holding the list").iter().copied().collect()
    }

    /// Nothing is taken any more when the session is over.
    async fn complete_later(&self, job: Arc<Claimed>) {
        let done = self.done.lock().expect("nobody panics while holding it").clone();
        if let Some(done) = done {
            let _ = done.send(job).await; // closed only when the session is over
        }
    }

    fn new_id(&self) -> JobId {
        JobId::new(self.work.store.clock())
    }
}

/// Whether waiting may help.
fn is_passing(e: &StoreError) -> bool {
    matches!(e, StoreError::Unavailable(_) | StoreError::Busy(_))
}

/// A little longer each time, and never at the same moment as everybody else.
async fn pause(tries: u32, dice: &dyn Dice) {
    let bound = Duration::from_millis(20).saturating_mul(1 << tries.min(6));
    tokio::time::sleep(bound.mul_f64(0.5 + dice.fraction() / 2.0)).await;
}
