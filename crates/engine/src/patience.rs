//! What to do while the database is away: wait, for it comes back, and go on.

use std::future::Future;
use std::time::{Duration, Instant};

use store::StoreError;

use crate::Engine;

/// Between two looks at a database that is away.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

impl Engine {
    /// Repeats what fails because the database is away or busy, for as long as patience lasts. Whatever else fails,
    /// fails at once.
    pub(crate) async fn patiently<T, F>(&self, work: impl Fn() -> F) -> anyhow::Result<T>
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

    /// Returns when the database answers; with the error when it has been in trouble for longer than we wait.
    pub(crate) async fn wait_for_database(&self, since: Instant, away: StoreError) -> Result<(), StoreError> {
        tracing::warn!("{away}; waiting for it");
        loop {
            if since.elapsed() >= self.patience {
                return Err(away);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            if self.store.system().now().await.is_ok() {
                return Ok(());
            }
        }
    }
}
