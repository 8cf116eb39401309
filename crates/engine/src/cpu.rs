//! A thread pool for CPU-bound work, one thread per core.
//!
//! Not the runtime's threads for blocking calls: those are many and come and go, and each keeps memory of what it did.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use anyhow::{Context, anyhow};
use domain::redact_for_log;
use jobs::panic_message;
use tokio::sync::{Semaphore, oneshot};

type CpuTask = Box<dyn FnOnce() + Send>;

/// The thread pool. Cheap to clone; clones share their threads.
#[derive(Debug, Clone)]
pub struct Cpu {
    cores: usize,
    /// Started with the first task, ended with the last clone.
    threads: Arc<OnceLock<mpsc::Sender<CpuTask>>>,
    large: Arc<Semaphore>,
}

/// Tasks of [`Cpu::run_large`] at the same time: parsing a large message takes several times the memory of its body.
const CONCURRENT_LARGE_TASKS: usize = 2;

impl Cpu {
    pub fn with_cores(cores: usize) -> Self {
        let large = Arc::new(Semaphore::new(CONCURRENT_LARGE_TASKS));
        Self { cores: cores.max(1), threads: Arc::default(), large }
    }

    /// Creates a pool with one thread per core of the machine.
    pub fn all_cores() -> Self {
        Self::with_cores(std::thread::available_parallelism().map_or(2, usize::from))
    }

    /// Runs work that takes much memory: at most [`CONCURRENT_LARGE_TASKS`] at once, however many cores there are.
    pub async fn run_large<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
        let _turn = self.large.acquire().await.context("waiting for memory")?;
        self.run(work).await
    }

    /// Runs `work`, first come, first served. A cancelled caller does not stop work that has begun.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
        let (answer, answered) = oneshot::channel();
        let task = move || {
            if !answer.is_closed() {
                // A panic is returned to the caller; the thread goes on with the next task.
                let _ = answer.send(catch_unwind(AssertUnwindSafe(work)));
            }
        };
        let threads = self.threads.get_or_init(|| start_threads(self.cores));
        threads.send(Box::new(task)).map_err(|_| anyhow!("no thread takes work"))?;
        let done = answered.await.context("working on a core")?;
        done.map_err(|panic| anyhow!("a computation ended by a panic: {}", panic_message(&*panic)))
    }
}

fn start_threads(cores: usize) -> mpsc::Sender<CpuTask> {
    let (tasks, waiting) = mpsc::channel::<CpuTask>();
    let waiting = Arc::new(Mutex::new(waiting));
    for n in 1..=cores {
        let waiting = waiting.clone();
        let thread = std::thread::Builder::new().name(format!("cpu-{n}"));
        if let Err(e) = thread.spawn(move || run_tasks(&waiting)) {
            tracing::error!(error = redact_for_log(&e), "could not start a CPU thread");
        }
    }
    tasks
}

fn run_tasks(waiting: &Mutex<mpsc::Receiver<CpuTask>>) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = next else { return };
        task();
    }
}
