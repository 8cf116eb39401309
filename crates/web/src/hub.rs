//! Who follows a tenant's events is told when there are more: one question to the database for all of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::TenantId;
use store::{Store, StoreError};
use tokio::sync::watch;

/// Soon enough for people, seldom enough that nobody notices.
const LOOK: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct Hub {
    store: Store,
    /// The number of the newest event of each tenant that somebody follows.
    heads: Mutex<HashMap<TenantId, watch::Sender<u64>>>,
}

impl Hub {
    pub fn new(store: Store) -> Self {
        Self { store, heads: Mutex::default() }
    }

    pub fn follow(&self, tenant: TenantId) -> watch::Receiver<u64> {
        self.heads().entry(tenant).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Until it is dropped.
    pub async fn run(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if let Err(e) = self.look().await {
                tracing::debug!("cannot look for events: {e}");
            }
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        let followed: Vec<TenantId> = {
            let mut heads = self.heads();
            heads.retain(|_, head| head.receiver_count() > 0);
            heads.keys().copied().collect()
        };
        if followed.is_empty() {
            return Ok(());
        }
        for (tenant, newest) in self.store.system().list_event_heads(followed).await? {
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
