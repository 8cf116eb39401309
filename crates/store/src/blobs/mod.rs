//! Blob storage: packs in an object store. Durable when a write returns, checked by hash when read.

mod copy;
mod error;
mod local;
mod pack;
mod remote;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use domain::metrics as catalogue;
use domain::{PackId, RandomSource, SystemRandom, TenantId, redact_for_log};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::StoreError;
use crate::failpoint::{self, Effect};
pub use copy::{CopyError, ExpectedObject};
use error::error;
pub use pack::{BlobEncoding, BlobLocation, Pack, PackBuilder, PackMember, decode_blob};
pub use remote::{RemoteKind, RemoteSettings};
pub use stream::ReadError;

/// As much as a small batch of mail: what is left on a full disk must not pass for room.
const PROBE_BYTES: usize = 256 << 10;

#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Arc<dyn ObjectStore>,
    backend: BlobBackend,
}

/// The kind of store that holds the objects.
#[derive(Debug, Clone)]
enum BlobBackend {
    Folder(PathBuf),
    Remote(Arc<remote::RemoteBucket>),
}

/// An object in blob storage, whether a row refers to it or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    pub key: String,
    pub size_bytes: u64,
    pub modified_at: Timestamp,
}

impl Blobs {
    /// Opens a folder with objects as files, and makes it if it does not exist.
    pub fn local(folder: &Path) -> Result<Self, StoreError> {
        Ok(Self { objects: Arc::new(local::open(folder)?), backend: BlobBackend::Folder(folder.to_owned()) })
    }

    /// Opens a bucket or container, which must exist. No request is sent yet.
    pub fn remote(settings: &RemoteSettings) -> Result<Self, StoreError> {
        let (objects, remote) = remote::open(settings)?;
        Ok(Self { objects, backend: BlobBackend::Remote(Arc::new(remote)) })
    }

    /// Returns the object key of a pack. It begins with the tenant. Two digits of the id spread files over folders: its last
    /// ones, because the first are a time.
    pub fn pack_key(tenant: TenantId, pack: PackId) -> String {
        let id = pack.to_string();
        format!("{tenant}/packs/{}/{id}", &id[id.len() - 2..])
    }

    /// Writes an object, durable when it returns. An existing object is never replaced.
    pub async fn write(&self, key: &str, bytes: impl Into<Bytes>) -> Result<(), StoreError> {
        failpoint::around(Effect::WriteObject, self.write_whole(key, bytes.into())).await
    }

    async fn write_whole(&self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        self.fail_if_injected()?;
        let written = self.with_timeout("write", key, async {
            loop {
                let payload = PutPayload::from(bytes.clone());
                match self.objects.put_opts(&key.into(), payload, PutMode::Create.into()).await {
                    // Whether it was written is unknown, and asking again is safe.
                    Err(e) if error::is_lost(&e) => tokio::time::sleep(remote::LOST_ANSWER_RETRY_DELAY).await,
                    Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                        return Ok(false);
                    }
                    written => return written.map(|_| true),
                }
            }
        });
        // An earlier attempt may have got through though its answer was lost.
        if !written.await? && !self.has_same_bytes(key, &bytes).await? {
            return Err(self.already_exists(key));
        }
        Ok(())
    }

    fn fail_if_injected(&self) -> Result<(), StoreError> {
        if failpoint::refuses(Effect::WriteObject) {
            return Err(StoreError::BlobsUnavailable("a test says so".into()));
        }
        Ok(())
    }

    async fn has_same_bytes(&self, key: &str, bytes: &Bytes) -> Result<bool, StoreError> {
        let found = self.with_timeout("read", key, async { self.objects.get(&key.into()).await?.bytes().await });
        Ok(found.await? == bytes)
    }

    fn already_exists(&self, key: &str) -> StoreError {
        StoreError::Refused(
            format!("object {key} is in blob storage already, with other bytes; it stays as it is").into(),
        )
    }

    /// Returns the decoded bytes, verified by their hash. All of them in memory: see [`Blobs::read_to`] for blobs that may be
    /// large.
    pub async fn read(&self, place: &BlobLocation) -> Result<Vec<u8>, StoreError> {
        if place.stored_bytes == 0 {
            return pack::decode_blob(&[], place); // an empty range is an error to object stores
        }
        let range = place.offset..place.offset + place.stored_bytes;
        let stored = self.read_range(&place.object_key, range).await?;
        pack::decode_blob(&stored, place)
    }

    /// Returns bytes of an object as they are stored.
    pub async fn read_range(&self, key: &str, range: std::ops::Range<u64>) -> Result<Bytes, StoreError> {
        match self.with_timeout("read", key, self.objects.get_range(&key.into(), range.clone())).await {
            Ok(stored) if stored.len() as u64 == range.end - range.start => Ok(stored),
            Ok(_) => Err(truncated_pack(key)),
            Err(e) => Err(self.why_unreadable(key, range.end, e).await),
        }
    }

    /// Finds out whether a folder refused a range because the object is too short, which its error does not say.
    async fn why_unreadable(&self, key: &str, end: u64, refusal: StoreError) -> StoreError {
        match refusal {
            StoreError::BlobsUnavailable(_) if !self.is_remote() => match self.object_size(key).await {
                Ok(Some(size)) if size < end => truncated_pack(key),
                _ => refusal,
            },
            refusal => refusal,
        }
    }

    /// Returns the length of an object; `None` when there is none.
    pub async fn object_size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        match self.with_timeout("head", key, self.objects.head(&key.into())).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(StoreError::BlobMissing(_)) => self.check_bucket_exists().await.map(|()| None),
            Err(e) => Err(e),
        }
    }

    /// Fails if the bucket is missing, which looks like a missing object in a request for a single one.
    async fn check_bucket_exists(&self) -> Result<(), StoreError> {
        if self.is_remote() {
            self.list("no-such-tenant").next().await.transpose()?;
        }
        Ok(())
    }

    /// Deletes an object. One that does not exist counts as deleted.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self.with_timeout("delete", key, self.objects.delete(&key.into())).await {
            Ok(()) | Err(StoreError::BlobMissing(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Lists the objects below a prefix, which is one or more whole segments of a key (`TENANT` or `TENANT/packs`), or empty
    /// for all. In no order; objects that are written or deleted meanwhile may be among them or not.
    pub fn list(&self, prefix: &str) -> BoxStream<'static, Result<StoredObject, StoreError>> {
        let below = object_store::path::Path::from(prefix);
        let (blobs, prefix, pages) = (self.clone(), prefix.to_owned(), self.objects.list(Some(&below)));
        let found = futures_util::stream::unfold(Some((blobs, prefix, pages)), |state| async {
            let (blobs, prefix, mut pages) = state?;
            let next =
                blobs.with_timeout("list", &prefix, async { pages.next().await.transpose() }).await.transpose()?;
            let found = next.and_then(object);
            let rest = found.is_ok().then_some((blobs, prefix, pages)); // an error ends the stream
            Some((found, rest))
        });
        found.boxed()
    }

    /// Removes what killed writers left behind in a folder, if it was last written before the given time, and returns
    /// how many files that were. The age must be longer than the slowest write. An object store keeps unfinished uploads
    /// to itself: there a lifecycle rule of the bucket removes them (S3: `AbortIncompleteMultipartUpload`; Azure drops
    /// uncommitted blocks after a week by itself).
    pub async fn remove_unfinished(&self, before: Timestamp) -> Result<u64, StoreError> {
        let BlobBackend::Folder(folder) = &self.backend else { return Ok(0) };
        let folder = folder.clone();
        let removed = tokio::task::spawn_blocking(move || local::remove_unfinished(&folder, before)).await;
        let removed = removed.map_err(|e| StoreError::other(e.to_string()))?;
        removed.map_err(|e| error::of_io(Some(e.kind()), &e.to_string()))
    }

    /// Writes, reads and deletes a small object, of a name that no other check uses at the same time.
    pub async fn check(&self) -> Result<(), StoreError> {
        static CHECKS: AtomicU64 = AtomicU64::new(0);
        let key = &format!("mailroom-doctor-{}-{}", std::process::id(), CHECKS.fetch_add(1, Ordering::Relaxed));
        self.write(key, b"ok".to_vec()).await?;
        let read = self.read_range(key, 0..2).await?;
        self.delete(key).await?;
        if read.as_ref() == b"ok" { Ok(()) } else { Err(StoreError::corrupt("blob storage gives back other bytes")) }
    }

    /// Writes a small object and deletes it: fails if blob storage takes nothing now. Where it may not delete, the object stays.
    pub async fn probe(&self) -> Result<(), StoreError> {
        let key = &format!("mailroom-probe-{:016x}", SystemRandom.next_u64());
        self.write(key, vec![0; PROBE_BYTES]).await?;
        if let Err(e) = self.delete(key).await {
            tracing::debug!(error = redact_for_log(&e), "probe object not deleted");
        }
        Ok(())
    }

    fn is_remote(&self) -> bool {
        matches!(self.backend, BlobBackend::Remote(_))
    }

    /// Returns the size of an upload's parts. S3 wants all but the last to have 5 MiB or more; a folder does not care.
    fn part_bytes(&self) -> usize {
        if self.is_remote() { 5 << 20 } else { 1 << 20 }
    }

    /// Limits the time of a request: retries happen inside, and a store that does not answer must not hold its caller.
    async fn with_timeout<T>(
        &self,
        operation: &'static str,
        key: &str,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let outcome = self.within_timeout(key, work).await;
        metrics::histogram!(catalogue::BLOB_SECONDS, "op" => operation).record(started.elapsed().as_secs_f64());
        outcome
    }

    async fn within_timeout<T>(
        &self,
        key: &str,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StoreError> {
        match &self.backend {
            BlobBackend::Folder(_) => work.await.map_err(|e| error(key, e)),
            BlobBackend::Remote(remote) => match tokio::time::timeout(remote.retry_for, work).await {
                Ok(done) => done.map_err(|e| remote.error(key, e)),
                Err(_) => Err(remote.timed_out()),
            },
        }
    }
}

fn truncated_pack(key: &str) -> StoreError {
    StoreError::corrupt(format!("pack {key} is cut short"))
}

fn object(meta: ObjectMeta) -> Result<StoredObject, StoreError> {
    let modified_at = Timestamp::from_microsecond(meta.last_modified.timestamp_micros())
        .map_err(|_| StoreError::corrupt(format!("object {} has an impossible time", meta.location)))?;
    Ok(StoredObject { key: meta.location.to_string(), size_bytes: meta.size, modified_at })
}
