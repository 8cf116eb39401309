//! The garbage collector: deletes blobs and objects that no row references any more.
//!
//! Rows decide, objects follow: an object is deleted only after the commit that makes its pack dead, and every step can
//! be interrupted and done again. It races with a writer that was suspended (its pack is given up, its unit refused),
//! an ingest that references a condemned blob again (it wins), a reader that has an old location (it reads again), and
//! a backup (objects stay while it holds them).

use anyhow::Context;
use domain::TenantId;
use futures_util::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use store::failpoint::{self, Effect};
use store::sql::blob_collection::BlobCollector;
use store::{Precondition, StoreError};

use crate::{Engine, Progress};

mod merge;

/// Objects that are compared with rows per query.
const OBJECTS_PER_QUERY: usize = 1000;

/// The counts of one run of the collector.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CollectionReport {
    /// Packs that were announced and never recorded.
    pub packs_given_up: u64,
    /// Blobs found unreferenced by this run; they are deleted once the grace period is over.
    pub blobs_condemned: u64,
    pub blobs_deleted: u64,
    /// Condemned now or earlier, and not yet for long enough.
    pub blobs_waiting: u64,
    /// None was deleted, however long they have waited: the tenant is on legal hold.
    pub is_on_hold: bool,
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
    /// Collects everything of one tenant that has been unreferenced for longer than the grace period.
    pub async fn collect(
        &self,
        tenant: TenantId,
        grace: SignedDuration,
        progress: &Progress,
    ) -> anyhow::Result<CollectionReport> {
        let collector = self.store.system().collector(tenant);
        let mut collected = CollectionReport::default();
        let cutoff = collector.cutoff(grace).await?;
        collected.packs_given_up = collector.abandon_packs(cutoff).await?;
        collected.blobs_condemned = collector.mark_unreferenced_blobs().await.context("finding unreferenced blobs")?;
        // A blob that was condemned a moment ago waits for the next run, unless there is no grace period.
        let cutoff = collector.cutoff(grace).await?;
        self.delete_blobs(&collector, cutoff, &mut collected, progress).await?;
        collected.blobs_waiting = collector.count_condemned().await?;
        self.merge_packs(tenant, &collector, &mut collected, progress).await?;
        collector.mark_empty_packs_dead().await?;
        self.delete_dead_packs(tenant, &collector, &mut collected, progress).await?;
        self.delete_unnamed_objects(tenant, &collector, &mut collected).await?;
        Ok(collected)
    }

    async fn delete_blobs(
        &self,
        collector: &BlobCollector,
        cutoff: Timestamp,
        collected: &mut CollectionReport,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        loop {
            match collector.delete_blobs(cutoff).await {
                Ok((0, _)) => return Ok(()),
                Ok((_, deleted)) => {
                    collected.blobs_deleted += deleted;
                    progress.add_items(deleted);
                }
                Err(StoreError::Precondition(Precondition::TenantHeld)) => {
                    collected.is_on_hold = true;
                    return Ok(());
                }
                // One of them was referenced meanwhile; the next query sees that.
                Err(StoreError::Precondition(_)) => {}
                Err(e) => return Err(e).context("deleting unreferenced blobs"),
            }
        }
    }

    /// Deletes the objects of dead packs. A hold that begins later cannot need them: the packs were dead before its
    /// snapshot.
    async fn delete_dead_packs(
        &self,
        tenant: TenantId,
        collector: &BlobCollector,
        collected: &mut CollectionReport,
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

    /// Deletes objects that a writer uploaded after its pack was given up. Packs are announced before their object is
    /// written, so an object without a row will never have one.
    async fn delete_unnamed_objects(
        &self,
        tenant: TenantId,
        collector: &BlobCollector,
        collected: &mut CollectionReport,
    ) -> anyhow::Result<()> {
        if self.store.system().are_objects_held().await? {
            return Ok(());
        }
        let mut objects = self.blobs.list(&format!("{tenant}/")).try_chunks(OBJECTS_PER_QUERY);
        while let Some(found) = objects.try_next().await.map_err(|e| e.1)? {
            let keys = found.into_iter().map(|object| object.key).collect();
            for key in collector.filter_unreferenced_objects(keys).await? {
                self.delete_object(&key, collected).await?;
            }
        }
        Ok(())
    }

    async fn delete_object(&self, key: &str, collected: &mut CollectionReport) -> anyhow::Result<()> {
        failpoint::around(Effect::DeleteObject, self.blobs.delete(key)).await?;
        collected.objects_deleted += 1;
        Ok(())
    }
}
