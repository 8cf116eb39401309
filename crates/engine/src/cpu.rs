//! Heavy work off the async threads, no more of it at once than there are cores.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::Semaphore;

#[derive(Debug, Clone)]
pub struct Cpu {
    turns: Arc<Semaphore>,
}

impl Cpu {
    pub fn with_cores(cores: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(cores.max(1))) }
    }

    /// As many as the machine has.
    pub fn all_cores() -> Self {
        Self::with_cores(std::thread::available_parallelism().map_or(2, usize::from))
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
