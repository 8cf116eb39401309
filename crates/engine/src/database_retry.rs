//! Retries work that failed because the database was unavailable or busy.

use std::future::Future;
use std::time::{Duration, Instant};

use domain::redact_for_log;
use store::StoreError;

use crate::Engine;

/// The pause between two probes of an unavailable database.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

impl Engine {
    /// Runs `work` again while it fails because the database is unavailable or busy, for as long as
    /// [`Engine::max_database_wait`]. Returns any other error at once.
    pub(crate) async fn with_database_retry<T, F>(&self, work: impl Fn() -> F) -> anyhow::Result<T>
    where
        F: Future<Output = anyhow::Result<T>>,
    {
        let mut since = None;
        loop {
            match work().await {
                Err(e) => match e.downcast_ref::<StoreError>() {
                    Some(away @ (StoreError::Unavailable(_) | StoreError::Busy(_))) => {
                        self.wait_for_database(*since.get_or_insert_with(Instant::now), away.clone()).await?;
                    }
                    _ => return Err(e),
                },
                done => return done,
            }
        }
    }

    /// Returns when the database answers, or with `away` once it has been unavailable for longer than we wait.
    pub(crate) async fn wait_for_database(&self, since: Instant, away: StoreError) -> Result<(), StoreError> {
        tracing::warn!(error = redact_for_log(&away), "database unavailable; waiting for it");
        loop {
            if since.elapsed() >= self.max_database_wait {
                return Err(away);
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
            if self.store.system().now().await.is_ok() {
                return Ok(());
            }
        }
    }
}
