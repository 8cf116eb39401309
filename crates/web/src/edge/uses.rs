//! When a key was last used: to the minute, written for many at once, and never in a request's way. What a crash loses is
//! not missed.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::ApiKeyId;
use store::Store;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// How long a use waits to be written, with others.
const GATHERED: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Uses {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    waiting: HashSet<ApiKeyId>,
    /// Within the last minute.
    written: HashMap<ApiKeyId, Instant>,
}

impl Uses {
    pub fn record(&self, key: ApiKeyId) {
        let mut kept = self.kept();
        if kept.written.get(&key).is_none_or(|at| at.elapsed() >= MINUTE) {
            kept.waiting.insert(key);
        }
    }

    /// Until it is dropped.
    pub async fn run(&self, store: &Store) {
        loop {
            tokio::time::sleep(GATHERED).await;
            let keys = self.take();
            if keys.is_empty() {
                continue;
            }
            if let Err(e) = store.system().record_key_uses(keys).await {
                tracing::debug!("when keys were last used could not be written: {e}");
            }
        }
    }

    fn take(&self) -> Vec<ApiKeyId> {
        let (mut kept, now) = (self.kept(), Instant::now());
        kept.written.retain(|_, at| at.elapsed() < MINUTE);
        let keys: Vec<ApiKeyId> = kept.waiting.drain().collect();
        kept.written.extend(keys.iter().map(|key| (*key, now)));
        keys
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SystemClock;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_written_once_a_minute() {
        let (uses, key) = (Uses::default(), ApiKeyId::new(&SystemClock));
        for _ in 0..1000 {
            uses.record(key);
        }
        assert_eq!(uses.take(), [key]);
        uses.record(key);
        assert_eq!(uses.take(), []);
        tokio::time::advance(MINUTE).await;
        uses.record(key);
        assert_eq!(uses.take(), [key]);
    }
}
