//! Backs up everything into a folder while Mailroom runs.
//!
//! The database comes first, as a snapshot, then every object that it references. Objects never change, so what is
//! copied later is what was there then; only the collector could delete one in between, and it waits while a backup
//! holds the objects. The manifest comes last. Until it is there, the backup before it is complete.

mod folder;
pub mod manifest;
mod object_hold;
mod restore;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;
use store::blobs::{Blobs, CopyError, ExpectedObject};
use store::failpoint::{self, Effect};
use store::snapshot::{LivePack, Snapshot};
use store::{Dialect, StoreError};

use crate::{Engine, Progress};
use folder::BackupFolder;
use manifest::{DatabaseFile, DatabaseKind, FORMAT, Manifest, ManifestObject};
use object_hold::ObjectHold;
pub use restore::{RestoreSummary, RestoreTarget, restore};

/// Objects that are copied at once: enough to hide the latency of a disk or server, few enough to stay small.
const CONCURRENT_COPIES: usize = 8;

/// Attempts when the collector deletes an object meanwhile; with the hold in place it never does.
const MAX_ATTEMPTS: u32 = 5;

#[derive(Debug, Clone, Serialize)]
pub struct BackupSummary {
    pub database_bytes: u64,
    pub objects: u64,
    pub object_bytes: u64,
    /// Those of them that the folder did not have yet.
    pub copied: u64,
    pub copied_bytes: u64,
    /// Objects of earlier backups that are not referenced any more.
    pub removed: u64,
}

/// The outcome of one attempt.
enum BackupAttempt {
    Done(BackupSummary),
    /// An object was collected after the snapshot; a new snapshot does not reference it.
    Restart,
}

impl Engine {
    /// Backs up into a folder. PostgreSQL is dumped under the login of `dump_url`.
    pub async fn backup(
        &self,
        out: &Path,
        dump_url: Option<&str>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<BackupSummary> {
        let folder = BackupFolder::for_writing(out)?;
        // However young: the folder is ours alone, so their writer was killed.
        folder.objects()?.remove_unfinished(Timestamp::MAX).await.map_err(|e| write_error(&e))?;
        let object_hold = ObjectHold::acquire(&self.store).await?;
        let backed_up = self.back_up_into(&folder, dump_url, progress).await;
        let released = object_hold.release().await;
        let summary = backed_up?;
        released?;
        Ok(summary)
    }

    async fn back_up_into(
        &self,
        folder: &BackupFolder,
        dump_url: Option<&str>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<BackupSummary> {
        for _ in 0..MAX_ATTEMPTS {
            if let BackupAttempt::Done(summary) = self.try_backup(folder, dump_url, progress).await? {
                return Ok(summary);
            }
        }
        bail!(
            "objects are deleted while they are copied; wait until other maintenance has ended, then run the command again"
        )
    }

    async fn try_backup(
        &self,
        folder: &BackupFolder,
        dump_url: Option<&str>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<BackupAttempt> {
        let before = folder.find_manifest()?;
        let (snapshot, database) = self.take_snapshot(folder, before.as_ref(), dump_url, progress).await?;
        let object_bytes = snapshot.packs.iter().map(|pack| pack.size_bytes).sum::<u64>();
        progress.set_total(database.size_bytes + object_bytes);
        progress.set_done(database.size_bytes);

        let objects = folder.objects()?;
        let Some(copies) = self.copy_objects(&objects, &snapshot.packs, before.as_ref(), progress).await? else {
            return Ok(BackupAttempt::Restart);
        };
        let fresh: Vec<u64> = copies.iter().filter(|copy| copy.is_new).map(|copy| copy.object.size_bytes).collect();
        let manifest = Manifest {
            format: FORMAT,
            made_at: self.store.clock().now(),
            schema_version: snapshot.schema_version,
            origin: snapshot.origin,
            database,
            object_bytes,
            objects: copies.into_iter().map(|copy| copy.object).collect(),
        };
        failpoint::around_blocking(Effect::PublishManifest, || folder.publish(&manifest))?;
        folder.remove_all_databases_but(&manifest.database)?;
        let removed = remove_unreferenced(&objects, &manifest).await?;
        Ok(BackupAttempt::Done(BackupSummary {
            database_bytes: manifest.database.size_bytes,
            objects: manifest.objects.len() as u64,
            object_bytes,
            copied: fresh.len() as u64,
            copied_bytes: fresh.iter().sum(),
            removed,
        }))
    }

    async fn take_snapshot(
        &self,
        folder: &BackupFolder,
        before: Option<&Manifest>,
        dump_url: Option<&str>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<(Snapshot, DatabaseFile)> {
        let shown = progress.clone();
        let watch = Arc::new(move |done, total| {
            shown.set_total(total);
            shown.set_done(done);
        });
        let taken = self.store.snapshot(&folder.snapshot_file()?, dump_url, watch).await;
        let snapshot = taken.map_err(|e| match e {
            StoreError::Full(_) => write_error(&e),
            e => e.into(),
        })?;
        if before.is_some_and(|before| before.origin != snapshot.origin) {
            bail!(
                "the folder contains a backup of another Mailroom, which this one would replace; set --out to another folder"
            );
        }
        let kind = match self.store.dialect() {
            Dialect::Sqlite => DatabaseKind::Sqlite,
            Dialect::Postgres => DatabaseKind::Postgres,
        };
        let database = failpoint::around_blocking(Effect::KeepSnapshot, || folder.keep_snapshot(kind))?;
        Ok((snapshot, database))
    }

    /// Copies the objects of packs. Returns `None` if one of them was collected meanwhile.
    async fn copy_objects(
        &self,
        to: &Blobs,
        packs: &[LivePack],
        before: Option<&Manifest>,
        progress: &Progress,
    ) -> anyhow::Result<Option<Vec<CopiedObject>>> {
        let known = before.map_or(&[][..], |before| &before.objects[..]);
        let known: HashMap<&str, &ManifestObject> = known.iter().map(|object| (object.key.as_str(), object)).collect();
        let copies = stream::iter(packs).map(|pack| async {
            let copied = copy_object(&self.blobs, to, pack, known.get(pack.object_key.as_str()).copied()).await?;
            progress.add_done(pack.size_bytes);
            progress.add_items(1);
            Ok::<_, CopyError>(copied)
        });
        match copies.buffered(CONCURRENT_COPIES).try_collect().await {
            Ok(copies) => Ok(Some(copies)),
            Err(CopyError::Reading(StoreError::BlobMissing(key)))
                if !self.store.system().is_live_object(&key).await? =>
            {
                Ok(None)
            }
            Err(CopyError::Reading(e)) => Err(e.into()),
            Err(CopyError::Writing(e)) => Err(write_error(&e)),
        }
    }
}

/// Returns the error for people: they do not see the folder as blob storage.
fn write_error(e: &StoreError) -> anyhow::Error {
    let why = match e {
        StoreError::Full(_) => "there is no space left".to_owned(),
        StoreError::BlobsUnavailable(why) => why.to_string(),
        e => return anyhow!("cannot write the backup: {e}"),
    };
    anyhow!("cannot write the backup: {why}; fix that and run the command again; it continues where it stopped")
}

struct CopiedObject {
    object: ManifestObject,
    is_new: bool,
}

/// Copies an object unless the folder has it: objects appear there only whole, so the size tells.
async fn copy_object(
    from: &Blobs,
    to: &Blobs,
    pack: &LivePack,
    known: Option<&ManifestObject>,
) -> Result<CopiedObject, CopyError> {
    let (key, size_bytes) = (pack.object_key.clone(), pack.size_bytes);
    if to.object_size(&key).await.map_err(CopyError::Writing)? == Some(size_bytes) {
        let sha256 = match known.filter(|known| known.size_bytes == size_bytes) {
            Some(known) => known.sha256,
            None => to.measure(&key).await.map_err(CopyError::Writing)?.1,
        };
        return Ok(CopiedObject { object: ManifestObject { key, size_bytes, sha256 }, is_new: false });
    }
    let expected = ExpectedObject { size_bytes, sha256: None };
    let sha256 = failpoint::around(Effect::CopyObject, from.copy_to(to, &key, expected)).await?;
    Ok(CopiedObject { object: ManifestObject { key, size_bytes, sha256 }, is_new: true })
}

async fn remove_unreferenced(objects: &Blobs, manifest: &Manifest) -> anyhow::Result<u64> {
    let named: HashSet<&str> = manifest.objects.iter().map(|object| object.key.as_str()).collect();
    let mut removed = 0;
    let mut listed = objects.list("");
    while let Some(object) = listed.try_next().await? {
        if !named.contains(object.key.as_str()) {
            objects.delete(&object.key).await?;
            removed += 1;
        }
    }
    Ok(removed)
}
