//! Records when each API key was last used: to the minute, in batches, and outside of the request path. A crash may lose
//! the last seconds.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{ApiKeyId, redact_for_log};
use store::Store;
use tokio::time::Instant;

/// Resolution of the recorded time: a key is written at most once per interval.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// How long uses are collected before they are written together.
const FLUSH_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct KeyUsage {
    pending: Mutex<PendingUses>,
}

#[derive(Debug, Default)]
struct PendingUses {
    waiting: HashSet<ApiKeyId>,
    /// When each key was last written; entries older than [`WRITE_INTERVAL`] are dropped.
    written: HashMap<ApiKeyId, Instant>,
}

impl KeyUsage {
    pub fn record(&self, key: ApiKeyId) {
        let mut pending = self.pending();
        if pending.written.get(&key).is_none_or(|at| at.elapsed() >= WRITE_INTERVAL) {
            pending.waiting.insert(key);
        }
    }

    /// Writes pending uses at intervals until the future is dropped.
    pub async fn run(&self, store: &Store) {
        loop {
            tokio::time::sleep(FLUSH_INTERVAL).await;
            let keys = self.take();
            if keys.is_empty() {
                continue;
            }
            if let Err(e) = store.system().record_key_uses(keys).await {
                tracing::debug!(error = redact_for_log(&e), "recording key usage failed");
            }
        }
    }

    fn take(&self) -> Vec<ApiKeyId> {
        let (mut pending, now) = (self.pending(), Instant::now());
        pending.written.retain(|_, at| at.elapsed() < WRITE_INTERVAL);
        let keys: Vec<ApiKeyId> = pending.waiting.drain().collect();
        pending.written.extend(keys.iter().map(|key| (*key, now)));
        keys
    }

    fn pending(&self) -> MutexGuard<'_, PendingUses> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SystemClock;

    #[tokio::test(start_paused = true)]
    async fn key_is_written_once_a_minute() {
        let (usage, key) = (KeyUsage::default(), ApiKeyId::new(&SystemClock));
        for _ in 0..1000 {
            usage.record(key);
        }
        assert_eq!(usage.take(), [key]);
        usage.record(key);
        assert_eq!(usage.take(), []);
        tokio::time::advance(WRITE_INTERVAL).await;
        usage.record(key);
        assert_eq!(usage.take(), [key]);
    }
}
