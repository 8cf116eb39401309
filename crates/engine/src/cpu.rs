//! Heavy work off the async threads, no more of it at once than there are cores.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::Semaphore;

#[derive(Debug, Clone)]
pub struct Cpu {
    turns: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// Parsing a large message holds several times as much as the body that is kept of it.
const LARGE_AT_ONCE: usize = 2;

impl Cpu {
    pub fn with_cores(cores: usize) -> Self {
        let large = Arc::new(Semaphore::new(LARGE_AT_ONCE));
        Self { turns: Arc::new(Semaphore::new(cores.max(1))), large }
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

    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
        let turn = self.turns.clone().acquire_owned().await.context("waiting for a core")?;
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        });
        done.await.context("working on a core")
    }
}
