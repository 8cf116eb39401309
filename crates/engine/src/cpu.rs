//! Work that computes: on threads of its own, as many as there are cores.
//!
//! Not on the runtime's threads for blocking calls: those are many and come and go, and each keeps memory of what it did.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use anyhow::{Context, anyhow};
use jobs::panic_message;
use tokio::sync::{Semaphore, oneshot};

type Task = Box<dyn FnOnce() + Send>;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cpu {
    cores: usize,
    /// Started when there is something to do, and gone with the last clone.
    threads: Arc<OnceLock<mpsc::Sender<Task>>>,
    large: Arc<Semaphore>,
}

/// Parsing a large message holds several times as much as the body that is kept of it.
const LARGE_AT_ONCE: usize = 2;

impl Cpu {
    pub fn with_cores(cores: usize) -> Self {
        let large = Arc::new(Semaphore::new(LARGE_AT_ONCE));
        Self { cores: cores.max(1), threads: Arc::default(), large }
    }

    /// As many as the machine has.
    pub fn all_cores() -> Self {
        Self::with_cores(std::thread::available_parallelism().map_or(2, usize::from))
    }

    /// For work that takes much memory: only little of it at once, however many cores there are.
    pub async fn run_large<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
        let _turn = self.large.acquire().await.context("waiting for memory")?;
        self.run(work).await
    }

    /// First come, first served. Whoever stops waiting does not stop what was begun.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
        let (answer, answered) = oneshot::channel();
        let task = move || {
            if !answer.is_closed() {
                // A panic is told to whoever waits; the thread goes on with the next.
                let _ = answer.send(catch_unwind(AssertUnwindSafe(work)));
            }
        };
        let threads = self.threads.get_or_init(|| start(self.cores));
        threads.send(Box::new(task)).map_err(|_| anyhow!("no thread takes work"))?;
        let done = answered.await.context("working on a core")?;
        done.map_err(|panic| anyhow!("a computation ended by a panic: {}", panic_message(&*panic)))
    }
}

fn start(cores: usize) -> mpsc::Sender<Task> {
    let (tasks, waiting) = mpsc::channel::<Task>();
    let waiting = Arc::new(Mutex::new(waiting));
    for n in 1..=cores {
        let waiting = waiting.clone();
        let work = move || {
            let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            while let Ok(task) = next() {
                task();
            }
        };
        if let Err(e) = std::thread::Builder::new().name(format!("cpu-{n}")).spawn(work) {
            tracing::error!("cannot start a thread that computes: {e}");
        }
    }
    tasks
}
