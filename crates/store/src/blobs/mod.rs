//! Bytes at rest: packs in an object store. Durable when a write returns, checked by hash when read.

mod copy;
mod error;
mod local;
mod pack;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use domain::{PackId, Sha256, TenantId};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};

use crate::StoreError;
use crate::failpoint::{self, Effect};
use crate::sql::blobs::BlobPlace;
pub use copy::{CopyError, Expected};
use error::error;
pub use pack::{Encoding, Member, Pack, PackBuilder};

#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Arc<dyn ObjectStore>,
    /// Where the objects are files.
    folder: Option<PathBuf>,
}

/// An object in blob storage, whether a row names it or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub size_bytes: u64,
    pub modified_at: Timestamp,
}

impl Blobs {
    /// Objects as files below a folder, which is made if it is not there.
    pub fn local(folder: &Path) -> Result<Self, StoreError> {
        Ok(Self { objects: Arc::new(local::open(folder)?), folder: Some(folder.to_owned()) })
    }

    /// Object keys begin with the tenant. Two digits of the id spread files over folders: its last ones, because the
    /// first are a time.
    pub fn pack_key(tenant: TenantId, pack: PackId) -> String {
        let id = pack.to_string();
        format!("{tenant}/packs/{}/{id}", &id[id.len() - 2..])
    }

    /// Durable when it returns.
    pub async fn write(&self, key: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        failpoint::before(Effect::WriteObject);
        self.objects.put(&key.into(), PutPayload::from(bytes)).await.map_err(|e| error(key, e))?;
        failpoint::after(Effect::WriteObject);
        Ok(())
    }

    /// The decoded bytes, proven to be those that were stored.
    pub async fn read(&self, place: &BlobPlace) -> Result<Vec<u8>, StoreError> {
        if place.stored_bytes == 0 {
            return Ok(Vec::new()); // an empty range is an error to object stores
        }
        let range = place.offset..place.offset + place.stored_bytes;
        let stored: Bytes = match self.objects.get_range(&place.object_key.as_str().into(), range.clone()).await {
            Ok(stored) => stored,
            Err(e) => {
                // Object stores refuse a range beyond the end, each in words of its own.
                let size = self.object_size(&place.object_key).await?;
                return Err(match size.is_some_and(|size| size < range.end) {
                    true => StoreError::corrupt(format!("pack {} is cut short", place.object_key)),
                    false => error(&place.object_key, e),
                });
            }
        };
        let bytes = pack::decode(&stored, place)?;
        if Sha256::of(&bytes) != place.sha256 {
            return Err(StoreError::corrupt(format!("blob {} does not match its hash", place.sha256)));
        }
        Ok(bytes)
    }

    /// The length of an object; `None` when there is none.
    pub async fn object_size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        match self.objects.head(&key.into()).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(error(key, e)),
        }
    }

    /// An object that is not there is as good as deleted.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self.objects.delete(&key.into()).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(error(key, e)),
        }
    }

    /// The objects below a prefix, which is one or more whole steps of a key (`TENANT` or `TENANT/packs`), or empty for
    /// all. In no order; what is written or deleted meanwhile may be among them or not.
    pub fn list(&self, prefix: &str) -> BoxStream<'static, Result<Object, StoreError>> {
        let (prefix, below) = (prefix.to_owned(), object_store::path::Path::from(prefix));
        self.objects.list(Some(&below)).map(move |meta| object(&prefix, meta)).boxed()
    }

    /// Removes what killed writers left behind in a folder, if it was last written before the given time, and returns
    /// how many files that were. The age must be longer than the slowest write. An object store keeps unfinished uploads
    /// to itself: there a lifecycle rule of the bucket removes them (S3: `AbortIncompleteMultipartUpload`; Azure drops
    /// uncommitted blocks after a week by itself).
    pub async fn remove_unfinished(&self, before: Timestamp) -> Result<u64, StoreError> {
        let Some(folder) = self.folder.clone() else { return Ok(0) };
        let removed = tokio::task::spawn_blocking(move || local::remove_unfinished(&folder, before)).await;
        let removed = removed.map_err(|e| StoreError::other(e.to_string()))?;
        removed.map_err(|e| error::of_io(Some(e.kind()), &e.to_string()))
    }

    /// Writes, reads and deletes a small object, of a name that no other check uses at the same time.
    pub async fn check(&self) -> Result<(), StoreError> {
        static CHECKS: AtomicU64 = AtomicU64::new(0);
        let key = &format!("mailroom-doctor-{}-{}", std::process::id(), CHECKS.fetch_add(1, Ordering::Relaxed));
        self.write(key, b"ok".to_vec()).await?;
        let read = self.objects.get_range(&key.as_str().into(), 0..2).await.map_err(|e| error(key, e))?;
        self.delete(key).await?;
        if read.as_ref() == b"ok" { Ok(()) } else { Err(StoreError::corrupt("blob storage gives back other bytes")) }
    }
}

fn object(prefix: &str, meta: object_store::Result<ObjectMeta>) -> Result<Object, StoreError> {
    let meta = meta.map_err(|e| error(prefix, e))?;
    let modified_at = Timestamp::from_microsecond(meta.last_modified.timestamp_micros())
        .map_err(|_| StoreError::corrupt(format!("object {} has an impossible time", meta.location)))?;
    Ok(Object { key: meta.location.to_string(), size_bytes: meta.size, modified_at })
}
