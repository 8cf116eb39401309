//! One contract for every object store: a folder, S3 and Azure Blob Storage.

mod contract;
mod faults;
mod proxy;

use std::time::Duration;

use store::blobs::{Blobs, RemoteKind, RemoteSettings};
use store::testing::object_stores;
use tempfile::TempDir;

/// Both servers that we have.
const REMOTE: [RemoteKind; 2] = [RemoteKind::S3, RemoteKind::Azure];

/// An empty blob store; its folder, if it has one, lives as long.
struct BlobStore {
    blobs: Blobs,
    folder: Option<TempDir>,
}

fn each_blob_store() -> Vec<BlobStore> {
    let folder = tempfile::tempdir().unwrap();
    let local = BlobStore { blobs: Blobs::local(folder.path()).unwrap(), folder: Some(folder) };
    let remote = REMOTE.map(|kind| BlobStore { blobs: Blobs::remote(&settings(kind)).unwrap(), folder: None });
    [local].into_iter().chain(remote).collect()
}

/// Patient: a busy machine is not a fault.
fn settings(kind: RemoteKind) -> RemoteSettings {
    object_stores::settings(kind, &object_stores::url(kind), Duration::from_secs(60))
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(&mut next).take(length.div_ceil(8)).flatten().collect();
    bytes.truncate(length);
    bytes
}
