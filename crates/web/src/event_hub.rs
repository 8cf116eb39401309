//! Notifies the event streams of a tenant when it has new events. All streams of a process share one query per interval.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::{TenantId, redact_for_log};
use store::{Store, StoreError};
use tokio::sync::watch;

/// Short enough for people who watch a stream; one query per interval is a negligible load.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct EventHub {
    store: Store,
    /// Sequence number of the newest event of each tenant with at least one subscriber.
    heads: Mutex<HashMap<TenantId, watch::Sender<u64>>>,
}

impl EventHub {
    pub fn new(store: Store) -> Self {
        Self { store, heads: Mutex::default() }
    }

    /// Returns a receiver of the sequence number of the tenant's newest event.
    pub fn subscribe(&self, tenant: TenantId) -> watch::Receiver<u64> {
        self.heads().entry(tenant).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Polls the database until the future is dropped.
    pub async fn run(&self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if let Err(e) = self.poll().await {
                tracing::debug!(error = redact_for_log(&e), "polling for new events failed");
            }
        }
    }

    async fn poll(&self) -> Result<(), StoreError> {
        let subscribed: Vec<TenantId> = {
            let mut heads = self.heads();
            heads.retain(|_, head| head.receiver_count() > 0);
            heads.keys().copied().collect()
        };
        if subscribed.is_empty() {
            return Ok(());
        }
        for (tenant, newest) in self.store.system().list_event_heads(subscribed).await? {
            if let Some(head) = self.heads().get(&tenant) {
                head.send_if_modified(|head| std::mem::replace(head, newest) != newest);
            }
        }
        Ok(())
    }

    fn heads(&self) -> std::sync::MutexGuard<'_, HashMap<TenantId, watch::Sender<u64>>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
