//! What each failure of an object store means to its caller.

use std::io::ErrorKind;

use crate::StoreError;
use crate::error::chain;

pub(super) fn error(key: &str, e: object_store::Error) -> StoreError {
    match e {
        object_store::Error::NotFound { .. } => StoreError::BlobMissing(key.into()),
        e => of_io(io_kind(&e), &chain(&e)),
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

fn io_kind(e: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    let mut cause = Some(e);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = inner.source();
    }
    None
}
