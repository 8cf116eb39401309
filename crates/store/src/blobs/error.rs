//! What each failure of an object store means to its caller.

use std::io::ErrorKind;

use crate::StoreError;
use crate::error::chain;

/// The same number on every Unix; the standard library has no name for it.
const EIO: i32 = 5;

pub(super) fn error(key: &str, e: object_store::Error) -> StoreError {
    match e {
        object_store::Error::NotFound { .. } => StoreError::BlobMissing(key.into()),
        e => match io(&e) {
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
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => StoreError::Full("blob storage".into()),
        Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => StoreError::Refused(
            format!("blob storage cannot be written ({text}); check the rights of the folder and that its disk is not read-only")
                .into(),
        ),
        _ => StoreError::BlobsUnavailable(text.into()),
    }
}

fn io<'a>(e: &'a (dyn std::error::Error + 'static)) -> Option<&'a std::io::Error> {
    let mut cause = Some(e);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return Some(io);
        }
        cause = inner.source();
    }
    None
}
