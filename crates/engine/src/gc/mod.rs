//! The collector: gives back what nobody names any more, and never anything else.
//!
//! Rows decide, objects follow: an object is deleted only after the commit that makes its pack dead, and every step can
//! be interrupted and done again. What it races with: a writer that slept (its pack is given up, its unit refused), an
//! ingest that names a condemned blob again (it wins), a reader that holds an old place (it looks again), a backup
//! (objects stay while it holds them).

use anyhow::Context;
use domain::TenantId;
use futures_util::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use store::StoreError;
use store::failpoint::{self, Effect};
use store::sql::collect::Collector;

use crate::{Engine, Progress};

mod merge;

/// Objects are compared with rows this many at a time.
const OBJECTS: usize = 1000;

/// What a run of the collector came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Collected {
    /// Packs that were announced and never recorded.
    pub packs_given_up: u64,
    /// Blobs that nobody names since now; they go once the grace period is over.
    pub blobs_condemned: u64,
    pub blobs_deleted: u64,
    /// Condemned now or earlier, and not yet for long enough.
    pub blobs_waiting: u64,
    /// Packs whose blobs were moved together, and the packs that hold them now.
    pub packs_merged: u64,
    pub packs_made: u64,
    pub objects_deleted: u64,
    /// Objects that wait because a backup copies them.
    pub objects_held: u64,
    /// What could not be done, each as a sentence.
    pub problems: Vec<String>,
}

impl Engine {
    /// Everything of one tenant that has been unnamed for longer than the grace period.
    pub async fn collect(
        &self,
        tenant: TenantId,
        grace: SignedDuration,
        progress: &Progress,
    ) -> anyhow::Result<Collected> {
        let collector = self.store.system().collector(tenant);
        let mut collected = Collected::default();
        let cutoff = collector.cutoff(grace).await?;
        collected.packs_given_up = collector.give_up_packs(cutoff).await?;
        collected.blobs_condemned = collector.condemn_blobs().await.context("looking for blobs that nobody names")?;
        // Counted from the sentence on: what was condemned a moment ago waits for the next run, unless there is no grace.
        let cutoff = collector.cutoff(grace).await?;
        self.delete_blobs(&collector, cutoff, &mut collected, progress).await?;
        collected.blobs_waiting = collector.count_condemned().await?;
        self.merge_packs(tenant, &collector, &mut collected, progress).await?;
        collector.empty_packs().await?;
        self.delete_dead_packs(tenant, &collector, &mut collected, progress).await?;
        self.delete_unnamed_objects(tenant, &collector, &mut collected).await?;
        Ok(collected)
    }

    async fn delete_blobs(
        &self,
        collector: &Collector,
        cutoff: Timestamp,
        collected: &mut Collected,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        loop {
            match collector.delete_blobs(cutoff).await {
                Ok((0, _)) => return Ok(()),
                Ok((_, deleted)) => {
                    collected.blobs_deleted += deleted;
                    progress.add_items(deleted);
                }
                // Somebody named one of them meanwhile; the next look sees that.
                Err(StoreError::Precondition(_)) => {}
                Err(e) => return Err(e).context("deleting blobs that nobody names"),
            }
        }
    }

    /// A hold that is not there now cannot need these objects: their packs were dead before any snapshot that it is for.
    async fn delete_dead_packs(
        &self,
        tenant: TenantId,
        collector: &Collector,
        collected: &mut Collected,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let store = self.store.tenant(tenant);
        for pack in collector.list_dead_packs().await? {
            if self.store.system().are_objects_held().await? {
                collected.objects_held += 1;
                continue;
            }
            self.delete_object(&pack.object_key, collected).await?;
            store.forget_dead_pack(pack.id).await?;
            progress.add_items(1);
        }
        Ok(())
    }

    /// What a writer uploaded after its pack was given up and forgotten. Packs are announced before their object is
    /// written, so an object without a row will never have one.
    async fn delete_unnamed_objects(
        &self,
        tenant: TenantId,
        collector: &Collector,
        collected: &mut Collected,
    ) -> anyhow::Result<()> {
        if self.store.system().are_objects_held().await? {
            return Ok(());
        }
        let mut objects = self.blobs.list(&format!("{tenant}/")).try_chunks(OBJECTS);
        while let Some(found) = objects.try_next().await.map_err(|e| e.1)? {
            let keys = found.into_iter().map(|object| object.key).collect();
            for key in collector.unnamed_objects(keys).await? {
                self.delete_object(&key, collected).await?;
            }
        }
        Ok(())
    }

    async fn delete_object(&self, key: &str, collected: &mut Collected) -> anyhow::Result<()> {
        failpoint::before(Effect::DeleteObject);
        self.blobs.delete(key).await?;
        failpoint::after(Effect::DeleteObject);
        collected.objects_deleted += 1;
        Ok(())
    }
}
