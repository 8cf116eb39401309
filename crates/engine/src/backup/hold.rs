//! While a backup copies what its snapshot names, the collector deletes nothing.

use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use store::failpoint::{self, Effect};
use store::{Store, StoreError, SystemStore};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How long the collector waits for a backup that died: long enough for a database that is away for a while, short
/// enough that nobody misses the space.
const LEASE: SignedDuration = SignedDuration::from_mins(10);

/// A lease survives several renewals that fail.
const RENEWAL: Duration = Duration::from_secs(60);

/// Renewed until it is released or dropped. Should it expire, because this process was stopped for longer, the backup
/// meets an object that is gone and begins again; so a clock costs time here, and never bytes.
#[derive(Debug)]
pub struct Hold {
    store: SystemStore,
    id: Uuid,
    renewing: JoinHandle<()>,
}

impl Hold {
    pub async fn take(store: &Store) -> anyhow::Result<Self> {
        let (store, id) = (store.system(), random_id()?);
        failpoint::before(Effect::HoldObjects);
        store.hold_objects(id, LEASE).await?;
        failpoint::after(Effect::HoldObjects);
        let renewed = store.clone();
        let renewing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                if let Err(e) = renewed.hold_objects(id, LEASE).await {
                    tracing::warn!("the hold on objects was not renewed: {e}");
                }
            }
        });
        Ok(Self { store, id, renewing })
    }

    pub async fn release(self) -> Result<(), StoreError> {
        self.renewing.abort();
        failpoint::before(Effect::ReleaseHold);
        self.store.release_hold(self.id).await?;
        failpoint::after(Effect::ReleaseHold);
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

fn random_id() -> anyhow::Result<Uuid> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("asking the system for random bytes")?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}
