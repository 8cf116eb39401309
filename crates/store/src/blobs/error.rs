//! Maps failures of an object store to errors of this crate.

use std::error::Error;
use std::io::ErrorKind;

use object_store::client::{HttpError, HttpErrorKind};

use crate::StoreError;
use crate::error::{BLOB_STORAGE, chain};

/// The same number on every Unix; the standard library has no name for it.
const EIO: i32 = 5;

/// Maps an error of a folder; see [`super::remote`] for a bucket's.
pub(super) fn error(key: &str, e: object_store::Error) -> StoreError {
    match e {
        object_store::Error::NotFound { .. } => StoreError::BlobMissing(key.into()),
        // The process is ending; blob storage is not what failed.
        object_store::Error::JoinError { .. } => StoreError::other("blob work was cancelled"),
        e => match find::<std::io::Error>(&e) {
            // A disk, not a server: waiting mends nothing, and what it failed to sync may be lost.
            Some(io) if io.raw_os_error() == Some(EIO) => StoreError::Refused(
                format!("the disk of blob storage fails ({}); check it, then run the command again", chain(&e)).into(),
            ),
            io => of_io(io.map(std::io::Error::kind), &chain(&e)),
        },
    }
}

pub(super) fn of_io(kind: Option<ErrorKind>, text: &str) -> StoreError {
    match kind {
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => StoreError::Full(BLOB_STORAGE.into()),
        Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => StoreError::Refused(
            format!("blob storage cannot be written ({text}); check the rights of the folder and that its disk is not read-only")
                .into(),
        ),
        Some(ErrorKind::NotFound) => StoreError::Refused(
            format!("something in the blob folder was removed while it was written ({text}); check which other programs use the folder")
                .into(),
        ),
        _ => StoreError::BlobsUnavailable(text.into()),
    }
}

/// Returns whether a request may have been carried out though its answer was lost.
pub(super) fn is_lost(e: &object_store::Error) -> bool {
    find::<HttpError>(e).is_some_and(|e| matches!(e.kind(), HttpErrorKind::Timeout | HttpErrorKind::Interrupted))
}

/// Finds the first cause of a type.
fn find<'a, T: Error + 'static>(e: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut cause = Some(e);
    while let Some(inner) = cause {
        if let Some(found) = inner.downcast_ref() {
            return Some(found);
        }
        cause = inner.source();
    }
    None
}
