//! Bytes at rest: packs in an object store. Durable when a write returns, checked by hash when read.

mod copy;
mod error;
mod local;
mod pack;
mod remote;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use domain::{PackId, TenantId};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::StoreError;
use crate::failpoint::{self, Effect};
use crate::sql::blobs::BlobPlace;
pub use copy::{CopyError, Expected};
use error::error;
pub use pack::{Encoding, Member, Pack, PackBuilder, open};
pub use remote::{RemoteKind, RemoteSettings};
pub use stream::ReadError;

#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Arc<dyn ObjectStore>,
    home: Home,
}

/// Where the objects are.
#[derive(Debug, Clone)]
enum Home {
    Folder(PathBuf),
    Remote(Arc<remote::Remote>),
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
        Ok(Self { objects: Arc::new(local::open(folder)?), home: Home::Folder(folder.to_owned()) })
    }

    /// Objects in a bucket or container, which must be there. Nothing is asked of it yet.
    pub fn remote(settings: &RemoteSettings) -> Result<Self, StoreError> {
        let (objects, remote) = remote::open(settings)?;
        Ok(Self { objects, home: Home::Remote(Arc::new(remote)) })
    }

    /// Object keys begin with the tenant. Two digits of the id spread files over folders: its last ones, because the
    /// first are a time.
    pub fn pack_key(tenant: TenantId, pack: PackId) -> String {
        let id = pack.to_string();
        format!("{tenant}/packs/{}/{id}", &id[id.len() - 2..])
    }

    /// Durable when it returns. An object that is there already is never replaced.
    pub async fn write(&self, key: &str, bytes: impl Into<Bytes>) -> Result<(), StoreError> {
        let bytes: Bytes = bytes.into();
        failpoint::before(Effect::WriteObject);
        self.refuse_for_a_test()?;
        let written = self.within(key, async {
            loop {
                let payload = PutPayload::from(bytes.clone());
                match self.objects.put_opts(&key.into(), payload, PutMode::Create.into()).await {
                    // Whether it was written is unknown, and asking again is safe.
                    Err(e) if error::is_lost(&e) => tokio::time::sleep(remote::PAUSE).await,
                    Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                        return Ok(false);
                    }
                    written => return written.map(|_| true),
                }
            }
        });
        // An earlier try of ours may have got through without our hearing of it.
        if !written.await? && !self.holds(key, &bytes).await? {
            return Err(self.exists(key));
        }
        failpoint::after(Effect::WriteObject);
        Ok(())
    }

    fn refuse_for_a_test(&self) -> Result<(), StoreError> {
        match failpoint::refuses(Effect::WriteObject) {
            true => Err(StoreError::BlobsUnavailable("a test says so".into())),
            false => Ok(()),
        }
    }

    async fn holds(&self, key: &str, bytes: &Bytes) -> Result<bool, StoreError> {
        let found = self.within(key, async { self.objects.get(&key.into()).await?.bytes().await });
        Ok(found.await? == bytes)
    }

    fn exists(&self, key: &str) -> StoreError {
        StoreError::Refused(
            format!("object {key} is in blob storage already, with other bytes; it stays as it is").into(),
        )
    }

    /// The decoded bytes, proven to be those that were stored. All of them in memory: see [`Blobs::read_to`] for blobs
    /// that may be large.
    pub async fn read(&self, place: &BlobPlace) -> Result<Vec<u8>, StoreError> {
        if place.stored_bytes == 0 {
            return pack::open(&[], place); // an empty range is an error to object stores
        }
        let range = place.offset..place.offset + place.stored_bytes;
        let stored = self.read_range(&place.object_key, range).await?;
        pack::open(&stored, place)
    }

    /// Bytes of an object as they are stored.
    pub async fn read_range(&self, key: &str, range: std::ops::Range<u64>) -> Result<Bytes, StoreError> {
        match self.within(key, self.objects.get_range(&key.into(), range.clone())).await {
            Ok(stored) if stored.len() as u64 == range.end - range.start => Ok(stored),
            Ok(_) => Err(cut_short(key)),
            Err(e) => Err(self.why_unreadable(key, range.end, e).await),
        }
    }

    /// A folder refuses a range that begins beyond the end in words that fit anything.
    async fn why_unreadable(&self, key: &str, end: u64, refusal: StoreError) -> StoreError {
        match refusal {
            StoreError::BlobsUnavailable(_) if !self.is_remote() => match self.object_size(key).await {
                Ok(Some(size)) if size < end => cut_short(key),
                _ => refusal,
            },
            refusal => refusal,
        }
    }

    /// The length of an object; `None` when there is none.
    pub async fn object_size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        match self.within(key, self.objects.head(&key.into())).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(StoreError::BlobMissing(_)) => self.has_bucket().await.map(|()| None),
            Err(e) => Err(e),
        }
    }

    /// Where a single object is asked for, a missing bucket looks like a missing object.
    async fn has_bucket(&self) -> Result<(), StoreError> {
        match self.is_remote() {
            true => self.list("no-such-tenant").next().await.transpose().map(drop),
            false => Ok(()),
        }
    }

    /// An object that is not there is as good as deleted.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self.within(key, self.objects.delete(&key.into())).await {
            Ok(()) | Err(StoreError::BlobMissing(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The objects below a prefix, which is one or more whole steps of a key (`TENANT` or `TENANT/packs`), or empty for
    /// all. In no order; what is written or deleted meanwhile may be among them or not.
    pub fn list(&self, prefix: &str) -> BoxStream<'static, Result<Object, StoreError>> {
        let below = object_store::path::Path::from(prefix);
        let (blobs, prefix, pages) = (self.clone(), prefix.to_owned(), self.objects.list(Some(&below)));
        let found = futures_util::stream::unfold(Some((blobs, prefix, pages)), |state| async {
            let (blobs, prefix, mut pages) = state?;
            let next = blobs.within(&prefix, async { pages.next().await.transpose() }).await.transpose()?;
            let found = next.and_then(object);
            let rest = found.is_ok().then_some((blobs, prefix, pages)); // an error is the last word
            Some((found, rest))
        });
        found.boxed()
    }

    /// Removes what killed writers left behind in a folder, if it was last written before the given time, and returns
    /// how many files that were. The age must be longer than the slowest write. An object store keeps unfinished uploads
    /// to itself: there a lifecycle rule of the bucket removes them (S3: `AbortIncompleteMultipartUpload`; Azure drops
    /// uncommitted blocks after a week by itself).
    pub async fn remove_unfinished(&self, before: Timestamp) -> Result<u64, StoreError> {
        let Home::Folder(folder) = &self.home else { return Ok(0) };
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

    fn is_remote(&self) -> bool {
        matches!(self.home, Home::Remote(_))
    }

    /// A part of an upload. S3 wants all parts but the last to have 5 MiB or more; a folder does not care.
    fn part_bytes(&self) -> usize {
        if self.is_remote() { 5 << 20 } else { 1 << 20 }
    }

    /// An answer in time, or none: retries happen inside, and a store that stays silent must not hold its caller.
    async fn within<T>(&self, key: &str, work: impl Future<Output = object_store::Result<T>>) -> Result<T, StoreError> {
        match &self.home {
            Home::Folder(_) => work.await.map_err(|e| error(key, e)),
            Home::Remote(remote) => match tokio::time::timeout(remote.retry_for, work).await {
                Ok(done) => done.map_err(|e| remote.error(key, e)),
                Err(_) => Err(remote.silent()),
            },
        }
    }
}

fn cut_short(key: &str) -> StoreError {
    StoreError::corrupt(format!("pack {key} is cut short"))
}

fn object(meta: ObjectMeta) -> Result<Object, StoreError> {
    let modified_at = Timestamp::from_microsecond(meta.last_modified.timestamp_micros())
        .map_err(|_| StoreError::corrupt(format!("object {} has an impossible time", meta.location)))?;
    Ok(Object { key: meta.location.to_string(), size_bytes: meta.size, modified_at })
}
