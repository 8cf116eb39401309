//! Whole objects as they are, from one blob store to another, piece by piece.

use bytes::Bytes;
use domain::Sha256;
use domain::hash::Hasher;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};

use super::Blobs;
use crate::StoreError;

/// Nearly every object is one piece and goes over in one request; S3 wants all pieces but the last over 5 MB.
const PIECE: usize = 8 << 20;

/// What the bytes must be, or nothing is written.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    pub size_bytes: u64,
    /// Where it is known.
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
    /// Durable, and just what was expected, when it returns; an object that is not appears nowhere.
    pub async fn copy_to(&self, to: &Self, key: &str, expected: Expected) -> Result<Sha256, CopyError> {
        let mut pieces = Pieces::open(self, key).await?;
        let first = pieces.next().await?;
        if first.len() < PIECE {
            let sha256 = pieces.check(expected)?;
            to.within(key, to.objects.put(&key.into(), PutPayload::from(first))).await.map_err(CopyError::Writing)?;
            return Ok(sha256);
        }
        let upload = to.within(key, to.objects.put_multipart(&key.into())).await;
        let mut upload = upload.map_err(CopyError::Writing)?;
        match copy_pieces(to, &mut *upload, first, pieces, expected).await {
            Ok(sha256) => Ok(sha256),
            Err(e) => {
                // What failed matters more than what could not be tidied up after it.
                let _ = to.within(key, upload.abort()).await;
                Err(e)
            }
        }
    }

    /// The size and the hash of an object as it is stored.
    pub async fn measure(&self, key: &str) -> Result<(u64, Sha256), StoreError> {
        let mut pieces = Pieces::open(self, key).await?;
        while pieces.next().await?.len() == PIECE {}
        Ok((pieces.size_bytes, pieces.hasher.finish()))
    }
}

async fn copy_pieces(
    to: &Blobs,
    upload: &mut dyn MultipartUpload,
    first: Vec<u8>,
    mut pieces: Pieces,
    expected: Expected,
) -> Result<Sha256, CopyError> {
    let key = pieces.key.clone();
    let mut piece = first;
    while !piece.is_empty() {
        to.within(&key, upload.put_part(PutPayload::from(piece))).await.map_err(CopyError::Writing)?;
        piece = pieces.next().await?;
    }
    let sha256 = pieces.check(expected)?;
    to.within(&key, upload.complete()).await.map_err(CopyError::Writing)?;
    Ok(sha256)
}

/// An object in pieces of one size, measured on the way.
struct Pieces {
    from: Blobs,
    key: String,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    /// What came over beyond the last piece.
    rest: Bytes,
    size_bytes: u64,
    hasher: Hasher,
}

impl Pieces {
    async fn open(from: &Blobs, key: &str) -> Result<Self, StoreError> {
        let found = from.within(key, from.objects.get(&key.into())).await?;
        let (key, stream) = (key.to_owned(), found.into_stream());
        Ok(Self { from: from.clone(), key, stream, rest: Bytes::new(), size_bytes: 0, hasher: Hasher::default() })
    }

    /// Shorter than the others at the end, and then empty.
    async fn next(&mut self) -> Result<Vec<u8>, StoreError> {
        let mut piece = Vec::new();
        while piece.len() < PIECE {
            if self.rest.is_empty() {
                let next = async { self.stream.next().await.transpose() };
                match self.from.within(&self.key, next).await? {
                    Some(bytes) => self.rest = bytes,
                    None => break,
                }
            }
            let fits = self.rest.len().min(PIECE - piece.len());
            piece.extend_from_slice(&self.rest.split_to(fits));
        }
        self.hasher.update(&piece);
        self.size_bytes += piece.len() as u64;
        Ok(piece)
    }

    fn check(self, expected: Expected) -> Result<Sha256, StoreError> {
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
