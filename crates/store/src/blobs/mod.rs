//! Bytes at rest: packs in an object store. Durable when a write returns, checked by hash when read.

mod pack;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use domain::{PackId, Sha256, TenantId};
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::StoreError;
use crate::error::chain;
use crate::sql::blobs::BlobPlace;
pub use pack::{Encoding, Member, Pack, PackBuilder};

#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Arc<dyn ObjectStore>,
}

impl Blobs {
    /// Objects as files below a folder, which is made if it is not there.
    pub fn local(folder: &Path) -> Result<Self, StoreError> {
        let refused = |e: &dyn std::fmt::Display| {
            StoreError::Refused(
                format!("cannot use the blob folder {}: {e}; check that it can be written", folder.display()).into(),
            )
        };
        crate::private_folder(folder)?;
        // Without fsync a power cut could take bytes whose rows are already committed.
        let files = LocalFileSystem::new_with_prefix(folder).map_err(|e| refused(&e))?.with_fsync(true);
        Ok(Self { objects: Arc::new(files) })
    }

    /// Object keys begin with the tenant. Two digits of the id spread files over folders: its last ones, because the
    /// first are a time.
    pub fn pack_key(tenant: TenantId, pack: PackId) -> String {
        let id = pack.to_string();
        format!("{tenant}/packs/{}/{id}", &id[id.len() - 2..])
    }

    /// Durable when it returns.
    pub async fn write(&self, key: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let written = self.objects.put(&key.into(), PutPayload::from(bytes)).await;
        written.map(drop).map_err(|e| error(key, e))
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

    /// Writes, reads and deletes a small object, of a name that no other check uses at the same time.
    pub async fn check(&self) -> Result<(), StoreError> {
        static CHECKS: AtomicU64 = AtomicU64::new(0);
        let key = &format!("mailroom-doctor-{}-{}", std::process::id(), CHECKS.fetch_add(1, Ordering::Relaxed));
        self.write(key, b"ok".to_vec()).await?;
        let read = self.objects.get_range(&key.as_str().into(), 0..2).await.map_err(|e| error(key, e))?;
        self.objects.delete(&key.as_str().into()).await.map_err(|e| error(key, e))?;
        if read.as_ref() == b"ok" { Ok(()) } else { Err(StoreError::corrupt("blob storage gives back other bytes")) }
    }
}

fn error(key: &str, e: object_store::Error) -> StoreError {
    if matches!(e, object_store::Error::NotFound { .. }) {
        return StoreError::BlobMissing(key.into());
    }
    let text = chain(&e);
    match io_kind(&e) {
        Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => StoreError::Full("blob storage".into()),
        Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) => StoreError::Refused(
            format!("blob storage cannot be written ({text}); check the rights of the folder and that its disk is not read-only")
                .into(),
        ),
        _ => StoreError::Unavailable(format!("blob storage: {text}").into()),
    }
}

fn io_kind(e: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    let mut cause = Some(e);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = inner.source();
    }
    None
}
