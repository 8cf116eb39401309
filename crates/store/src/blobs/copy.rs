//! Copies whole objects from one blob store to another, piece by piece.

use bytes::Bytes;
use domain::Sha256;
use domain::hash::Hasher;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};

use super::Blobs;
use crate::StoreError;

/// Nearly every object is one piece and goes over in one request; S3 wants all pieces but the last over 5 MB.
const COPY_PIECE_BYTES: usize = 8 << 20;

/// The size and hash that an object must have to be copied.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedObject {
    pub size_bytes: u64,
    /// `None`: it is not known.
    pub sha256: Option<Sha256>,
}

/// Which side failed.
#[derive(Debug)]
pub enum CopyError {
    Reading(StoreError),
    Writing(StoreError),
}

impl From<StoreError> for CopyError {
    fn from(e: StoreError) -> Self {
        Self::Reading(e)
    }
}

impl Blobs {
    /// Copies an object, durable when it returns. An object that is not as expected is not written.
    pub async fn copy_to(&self, to: &Self, key: &str, expected: ExpectedObject) -> Result<Sha256, CopyError> {
        let mut pieces = ObjectPieces::open(self, key).await?;
        let first = pieces.next().await?;
        if first.len() < COPY_PIECE_BYTES {
            let sha256 = pieces.check(expected)?;
            to.with_timeout("write", key, to.objects.put(&key.into(), PutPayload::from(first)))
                .await
                .map_err(CopyError::Writing)?;
            return Ok(sha256);
        }
        let upload = to.with_timeout("write", key, to.objects.put_multipart(&key.into())).await;
        let mut upload = upload.map_err(CopyError::Writing)?;
        match copy_pieces(to, &mut *upload, first, pieces, expected).await {
            Ok(sha256) => Ok(sha256),
            Err(e) => {
                // The failure matters more than a failed cleanup.
                let _ = to.with_timeout("write", key, upload.abort()).await;
                Err(e)
            }
        }
    }

    /// Returns the size and the hash of an object as it is stored.
    pub async fn measure(&self, key: &str) -> Result<(u64, Sha256), StoreError> {
        let mut pieces = ObjectPieces::open(self, key).await?;
        while pieces.next().await?.len() == COPY_PIECE_BYTES {}
        Ok((pieces.size_bytes, pieces.hasher.finish()))
    }
}

async fn copy_pieces(
    to: &Blobs,
    upload: &mut dyn MultipartUpload,
    first: Vec<u8>,
    mut pieces: ObjectPieces,
    expected: ExpectedObject,
) -> Result<Sha256, CopyError> {
    let key = pieces.key.clone();
    let mut piece = first;
    while !piece.is_empty() {
        to.with_timeout("write", &key, upload.put_part(PutPayload::from(piece))).await.map_err(CopyError::Writing)?;
        piece = pieces.next().await?;
    }
    let sha256 = pieces.check(expected)?;
    to.with_timeout("write", &key, upload.complete()).await.map_err(CopyError::Writing)?;
    Ok(sha256)
}

/// An object in pieces of one size, hashed on the way.
struct ObjectPieces {
    from: Blobs,
    key: String,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    /// Bytes received beyond the last piece.
    rest: Bytes,
    size_bytes: u64,
    hasher: Hasher,
}

impl ObjectPieces {
    async fn open(from: &Blobs, key: &str) -> Result<Self, StoreError> {
        let found = from.with_timeout("read", key, from.objects.get(&key.into())).await?;
        let (key, stream) = (key.to_owned(), found.into_stream());
        Ok(Self { from: from.clone(), key, stream, rest: Bytes::new(), size_bytes: 0, hasher: Hasher::default() })
    }

    /// Returns the next piece: at the end a shorter one, and then an empty one.
    async fn next(&mut self) -> Result<Vec<u8>, StoreError> {
        let mut piece = Vec::new();
        while piece.len() < COPY_PIECE_BYTES {
            if self.rest.is_empty() {
                let next = async { self.stream.next().await.transpose() };
                match self.from.with_timeout("read", &self.key, next).await? {
                    Some(bytes) => self.rest = bytes,
                    None => break,
                }
            }
            let fits = self.rest.len().min(COPY_PIECE_BYTES - piece.len());
            piece.extend_from_slice(&self.rest.split_to(fits));
        }
        self.hasher.update(&piece);
        self.size_bytes += piece.len() as u64;
        Ok(piece)
    }

    fn check(self, expected: ExpectedObject) -> Result<Sha256, StoreError> {
        let (key, size) = (&self.key, self.size_bytes);
        if size != expected.size_bytes {
            let wanted = expected.size_bytes;
            return Err(StoreError::corrupt(format!("object {key} has {size} bytes instead of {wanted}")));
        }
        let sha256 = self.hasher.finish();
        match expected.sha256 {
            Some(wanted) if wanted != sha256 => {
                Err(StoreError::corrupt(format!("object {key} does not match its hash")))
            }
            _ => Ok(sha256),
        }
    }
}
