//! A backup of everything into a folder, beside whatever else is going on.
//!
//! The order keeps "bytes before rows": the database first, as it is at one moment, then every object that it names.
//! Objects never change, so what is copied later is what was there then; only the collector could take one away in
//! between, and it waits while a backup holds the objects. The manifest comes last. Until it is there, the backup before
//! it is whole.

mod folder;
mod hold;
pub mod manifest;
mod restore;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;
use store::blobs::{Blobs, CopyError, Expected};
use store::failpoint::{self, Effect};
use store::snapshot::{LivePack, Snapshot};
use store::{Dialect, StoreError};

use crate::{Engine, Progress};
use folder::Folder;
use hold::Hold;
use manifest::{DatabaseFile, FORMAT, Kind, Manifest, Object};
pub use restore::{Restored, Target, restore};

/// Objects under way at once: enough to hide the wait for a disk or a server, few enough to stay small.
const AT_ONCE: usize = 8;

/// How often we begin again because the collector took an object; with the hold in place it never does.
const MOST_TRIES: u32 = 5;

#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub database_bytes: u64,
    pub objects: u64,
    pub object_bytes: u64,
    /// Of those, the ones that the folder did not have yet.
    pub copied: u64,
    pub copied_bytes: u64,
    /// Objects of earlier backups that nothing names any more.
    pub removed: u64,
}

/// What came of one try.
enum Tried {
    Done(Summary),
    /// An object was collected after the snapshot; a new snapshot does not name it.
    Overtaken,
}

impl Engine {
    /// A PostgreSQL is dumped under the login of `dump_url`.
    pub async fn backup(
        &self,
        out: &Path,
        dump_url: Option<&str>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Summary> {
        let folder = Folder::for_writing(out)?;
        // However young: the folder is ours alone, so whoever wrote them was killed.
        folder.objects()?.remove_unfinished(Timestamp::MAX).await.map_err(|e| not_written(&e))?;
        let hold = Hold::take(&self.store).await?;
        let backed_up = self.back_up_into(&folder, dump_url, progress).await;
        let released = hold.release().await;
        let summary = backed_up?;
        released?;
        Ok(summary)
    }

    async fn back_up_into(
        &self,
        folder: &Folder,
        dump_url: Option<&str>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Summary> {
        for _ in 0..MOST_TRIES {
            if let Tried::Done(summary) = self.try_backup(folder, dump_url, progress).await? {
                return Ok(summary);
            }
        }
        bail!("objects vanish faster than they can be copied; let other upkeep finish, then run the command again")
    }

    async fn try_backup(
        &self,
        folder: &Folder,
        dump_url: Option<&str>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Tried> {
        let before = folder.find_manifest()?;
        let (snapshot, database) = self.take_snapshot(folder, before.as_ref(), dump_url, progress).await?;
        let object_bytes = snapshot.packs.iter().map(|pack| pack.size_bytes).sum::<u64>();
        progress.set_total(database.size_bytes + object_bytes);
        progress.set_done(database.size_bytes);

        let objects = folder.objects()?;
        let Some(copies) = self.copy_objects(&objects, &snapshot.packs, before.as_ref(), progress).await? else {
            return Ok(Tried::Overtaken);
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
        failpoint::before(Effect::PublishManifest);
        folder.publish(&manifest)?;
        failpoint::after(Effect::PublishManifest);
        folder.remove_all_databases_but(&manifest.database)?;
        let removed = remove_unnamed(&objects, &manifest).await?;
        Ok(Tried::Done(Summary {
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
        folder: &Folder,
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
            StoreError::Full(_) => not_written(&e),
            e => e.into(),
        })?;
        if before.is_some_and(|before| before.origin != snapshot.origin) {
            bail!(
                "the folder holds a backup of another Mailroom, which this one would replace; give --out another folder"
            );
        }
        let kind = match self.store.dialect() {
            Dialect::Sqlite => Kind::Sqlite,
            Dialect::Postgres => Kind::Postgres,
        };
        failpoint::before(Effect::KeepSnapshot);
        let database = folder.keep_snapshot(kind)?;
        failpoint::after(Effect::KeepSnapshot);
        Ok((snapshot, database))
    }

    /// `None` when one of them was collected meanwhile.
    async fn copy_objects(
        &self,
        to: &Blobs,
        packs: &[LivePack],
        before: Option<&Manifest>,
        progress: &Progress,
    ) -> anyhow::Result<Option<Vec<Copied>>> {
        let known = before.map_or(&[][..], |before| &before.objects[..]);
        let known: HashMap<&str, &Object> = known.iter().map(|object| (object.key.as_str(), object)).collect();
        let copies = stream::iter(packs).map(|pack| async {
            let copied = copy_object(&self.blobs, to, pack, known.get(pack.object_key.as_str()).copied()).await?;
            progress.add_done(pack.size_bytes);
            progress.add_items(1);
            Ok::<_, CopyError>(copied)
        });
        match copies.buffered(AT_ONCE).try_collect().await {
            Ok(copies) => Ok(Some(copies)),
            Err(CopyError::Reading(StoreError::BlobMissing(key))) if !self.store.system().is_live(&key).await? => {
                Ok(None)
            }
            Err(CopyError::Reading(e)) => Err(e.into()),
            Err(CopyError::Writing(e)) => Err(not_written(&e)),
        }
    }
}

/// The folder is blob storage to the one who writes it; to people it is not.
fn not_written(e: &StoreError) -> anyhow::Error {
    let why = match e {
        StoreError::Full(_) => "there is no space left".to_owned(),
        StoreError::BlobsUnavailable(why) => why.to_string(),
        e => return anyhow!("cannot write the backup: {e}"),
    };
    anyhow!("cannot write the backup: {why}; mend that and run the command again, it goes on where it stopped")
}

struct Copied {
    object: Object,
    is_new: bool,
}

/// Unless it is there: an object appears in the folder only whole, so that its size tells.
async fn copy_object(from: &Blobs, to: &Blobs, pack: &LivePack, known: Option<&Object>) -> Result<Copied, CopyError> {
    let (key, size_bytes) = (pack.object_key.clone(), pack.size_bytes);
    let object = |sha256| Object { key: key.clone(), size_bytes, sha256 };
    if to.object_size(&key).await.map_err(CopyError::Writing)? == Some(size_bytes) {
        let sha256 = match known.filter(|known| known.size_bytes == size_bytes) {
            Some(known) => known.sha256,
            None => to.measure(&key).await.map_err(CopyError::Writing)?.1,
        };
        return Ok(Copied { object: object(sha256), is_new: false });
    }
    failpoint::before(Effect::CopyObject);
    let sha256 = from.copy_to(to, &key, Expected { size_bytes, sha256: None }).await?;
    failpoint::after(Effect::CopyObject);
    Ok(Copied { object: object(sha256), is_new: true })
}

async fn remove_unnamed(objects: &Blobs, manifest: &Manifest) -> anyhow::Result<u64> {
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
