//! A hold on all objects: while a backup copies what its snapshot references, the collector deletes nothing.

use std::time::Duration;

use anyhow::Context;
use domain::redact_for_log;
use jiff::SignedDuration;
use store::failpoint::{self, Effect};
use store::{Store, StoreError, SystemStore};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How long the collector waits for a backup that died: long enough for a database that is unavailable for a while,
/// short enough that the space is not missed.
const HOLD_LEASE: SignedDuration = SignedDuration::from_mins(10);

/// A lease survives several failed renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(60);

/// A hold that is renewed until it is released or dropped. Should it expire, because this process was suspended for
/// longer, the backup meets an object that is gone and starts over; so a clock costs time here, and never bytes.
#[derive(Debug)]
pub struct ObjectHold {
    store: SystemStore,
    id: Uuid,
    renew_task: JoinHandle<()>,
}

impl ObjectHold {
    pub async fn acquire(store: &Store) -> anyhow::Result<Self> {
        let (store, id) = (store.system(), random_id()?);
        failpoint::around(Effect::HoldObjects, store.hold_objects(id, HOLD_LEASE)).await?;
        let renewed = store.clone();
        let renew_task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEW_INTERVAL).await;
                if let Err(e) = renewed.hold_objects(id, HOLD_LEASE).await {
                    tracing::warn!(error = redact_for_log(&e), "object hold not renewed");
                }
            }
        });
        Ok(Self { store, id, renew_task })
    }

    pub async fn release(self) -> Result<(), StoreError> {
        self.renew_task.abort();
        failpoint::around(Effect::ReleaseHold, self.store.release_hold(self.id)).await
    }
}

impl Drop for ObjectHold {
    fn drop(&mut self) {
        self.renew_task.abort();
    }
}

fn random_id() -> anyhow::Result<Uuid> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("asking the system for random bytes")?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}
