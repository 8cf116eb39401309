//! Errors of the store, one variant per thing that a caller does differently.

use std::sync::Arc;

use crate::Precondition;

/// Cloneable, because one failed group commit answers many callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A precondition of a unit does not hold any more; nothing of it was written.
    #[error("{0}")]
    Precondition(Precondition),
    /// The database cannot be reached now; the same call may work later.
    #[error("the database is not reachable ({0}); check that it runs and that database.url is right")]
    Unavailable(Arc<str>),
    /// Blob storage cannot be used now; the same call may work later. The database is not to blame.
    #[error(
        "blob storage cannot be used now ({0}); check that it is up and that blobs.url is right, then run the command \
         again"
    )]
    BlobsUnavailable(Arc<str>),
    /// What was to be stored could not be read; blob storage is not to blame.
    #[error("cannot read what is to be stored ({0})")]
    Source(Arc<str>),
    /// The database refuses the operation.
    #[error("{0}")]
    Refused(Arc<str>),
    /// A setting is wrong: no later try can work.
    #[error("{0}")]
    Misconfigured(Arc<str>),
    #[error("there is no space left for {0}; free some and run the command again, nothing is half-stored")]
    Full(Arc<str>),
    /// Another process keeps the SQLite file locked for longer than we wait.
    #[error("the database is busy: another process has held it for {0} s; try again when it is done")]
    Busy(u64),
    #[error("the database schema is version {found}, this program needs {needed}; run `mailroom migrate`")]
    Outdated { found: u32, needed: u32 },
    #[error(
        "the database was made by a newer Mailroom (schema {found}, this program knows {known}); upgrade this program"
    )]
    Newer { found: u32, known: u32 },
    /// The stored data is not what was written.
    #[error("stored data is damaged: {0}; run `mailroom verify --deep`")]
    Corrupt(Arc<str>),
    /// A blob that a row names is not in blob storage.
    #[error("blob {0} is missing from blob storage; run `mailroom verify` and restore it from a backup")]
    BlobMissing(Arc<str>),
    #[error("database error: {0}")]
    Other(Arc<str>),
}

/// Whose trouble a failed write is, as far as its error tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFault {
    /// The database is away or full: that says nothing about what was to be written.
    Certain,
    /// Blob storage, a disk or a setting may be at fault. A probe write tells.
    Possible,
}

/// What [`StoreError::Full`] names when it is not the database.
pub(crate) const BLOB_STORAGE: &str = "blob storage";

impl StoreError {
    /// Returns whether storage itself may be what failed, rather than this one operation.
    pub fn storage_fault(&self) -> Option<StorageFault> {
        match self {
            Self::Full(what) if &**what == BLOB_STORAGE => Some(StorageFault::Possible),
            Self::Unavailable(_) | Self::Busy(_) | Self::Full(_) => Some(StorageFault::Certain),
            Self::BlobsUnavailable(_) | Self::Source(_) | Self::Refused(_) | Self::Misconfigured(_) => {
                Some(StorageFault::Possible)
            }
            _ => None,
        }
    }

    pub fn corrupt(what: impl AsRef<str>) -> Self {
        Self::Corrupt(what.as_ref().into())
    }

    pub(crate) fn other(what: impl AsRef<str>) -> Self {
        Self::Other(what.as_ref().into())
    }
}

/// Returns the whole chain of causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
