//! Packs: many blobs in one object, so that a batch costs one fsync or one PUT: here a small file with fsync takes 5-7 ms,
//! which would cap everything else at 140 messages a second.

use std::collections::HashSet;

use domain::Sha256;

use crate::StoreError;

/// Fast enough to keep up with the parser; mail text still shrinks to a third.
pub(super) const COMPRESSION_LEVEL: i32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobEncoding {
    Identity,
    Zstd,
}

impl BlobEncoding {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Zstd => "zstd",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Identity, Self::Zstd].into_iter().find(|encoding| encoding.as_str() == text)
    }
}

/// One blob in a pack.
#[derive(Debug, Clone)]
pub struct PackMember {
    pub sha256: Sha256,
    pub offset: u64,
    pub stored_bytes: u64,
    pub size_bytes: u64,
    pub encoding: BlobEncoding,
}

/// The location of a blob in a pack.
#[derive(Debug, Clone)]
pub struct BlobLocation {
    pub sha256: Sha256,
    pub object_key: String,
    pub offset: u64,
    pub stored_bytes: u64,
    pub size_bytes: u64,
    pub encoding: BlobEncoding,
}

/// A finished pack, ready to be written as one object.
#[derive(Debug)]
pub struct Pack {
    pub bytes: Vec<u8>,
    pub members: Vec<PackMember>,
}

/// Collects blobs into a pack; the same bytes are stored once.
pub struct PackBuilder {
    compressor: zstd::bulk::Compressor<'static>,
    bytes: Vec<u8>,
    members: Vec<PackMember>,
    seen: HashSet<Sha256>,
}

impl std::fmt::Debug for PackBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackBuilder").field("members", &self.members.len()).finish_non_exhaustive()
    }
}

impl PackBuilder {
    pub fn new() -> std::io::Result<Self> {
        let compressor = zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?;
        Ok(Self { compressor, bytes: Vec::new(), members: Vec::new(), seen: HashSet::new() })
    }

    /// Reserves memory at once, since growing would hold the pack twice for a moment.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    pub fn add(&mut self, sha256: Sha256, blob: &[u8]) -> std::io::Result<()> {
        if !self.seen.insert(sha256) {
            return Ok(());
        }
        let offset = self.bytes.len();
        let encoding = self.append(blob)?;
        self.members.push(PackMember {
            sha256,
            offset: offset as u64,
            stored_bytes: (self.bytes.len() - offset) as u64,
            size_bytes: blob.len() as u64,
            encoding,
        });
        Ok(())
    }

    /// Compresses a blob straight into the pack, or appends it as it is when that would not make it smaller.
    fn append(&mut self, blob: &[u8]) -> std::io::Result<BlobEncoding> {
        let offset = self.bytes.len();
        self.bytes.resize(offset + zstd::zstd_safe::compress_bound(blob.len()), 0);
        let written = self.compressor.compress_to_buffer(blob, &mut self.bytes[offset..])?;
        if written < blob.len() {
            self.bytes.truncate(offset + written);
            return Ok(BlobEncoding::Zstd);
        }
        self.bytes.truncate(offset);
        self.bytes.extend_from_slice(blob);
        Ok(BlobEncoding::Identity)
    }

    /// Returns the pack; `None` when nothing was added.
    pub fn finish(self) -> Option<Pack> {
        (!self.members.is_empty()).then_some(Pack { bytes: self.bytes, members: self.members })
    }
}

/// Decodes a blob from its stored bytes and verifies its hash.
pub fn decode_blob(stored: &[u8], place: &BlobLocation) -> Result<Vec<u8>, StoreError> {
    let bytes = decode(stored, place)?;
    if Sha256::of(&bytes) != place.sha256 {
        return Err(StoreError::corrupt(format!("blob {} does not match its hash", place.sha256)));
    }
    Ok(bytes)
}

fn decode(stored: &[u8], place: &BlobLocation) -> Result<Vec<u8>, StoreError> {
    match place.encoding {
        BlobEncoding::Identity => Ok(stored.to_vec()),
        BlobEncoding::Zstd => {
            let size = usize::try_from(place.size_bytes).map_err(|e| StoreError::other(e.to_string()))?;
            zstd::bulk::decompress(stored, size)
                .map_err(|e| StoreError::corrupt(format!("blob {} does not decompress: {e}", place.sha256)))
        }
    }
}
