//! Blob storage in a folder: objects as files.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use object_store::local::LocalFileSystem;

use crate::StoreError;

/// Opens the folder, and makes it if it does not exist.
pub(super) fn open(folder: &Path) -> Result<LocalFileSystem, StoreError> {
    crate::private_folder(folder)?;
    let files = LocalFileSystem::new_with_prefix(folder).map_err(|e| {
        let folder = folder.display();
        StoreError::Refused(format!("cannot use the blob folder {folder}: {e}; check that it can be written").into())
    })?;
    // Without fsync a power cut could take bytes whose rows are already committed.
    Ok(files.with_fsync(true))
}

/// Removes files that a killed writer left half-written, if they were last written before the given time. They have
/// names that are no object's, so neither reading nor listing ever sees them.
pub(super) fn remove_unfinished(folder: &Path, before: Timestamp) -> io::Result<u64> {
    let before = UNIX_EPOCH + Duration::from_micros(u64::try_from(before.as_microsecond()).unwrap_or(0));
    let mut removed = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in none_if_missing(fs::read_dir(&folder))?.into_iter().flatten() {
            let Some(entry) = none_if_missing(entry)? else { continue };
            let Some(kind) = none_if_missing(entry.file_type())? else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && is_unfinished(&entry.file_name()) {
                removed += u64::from(remove_if_older(&entry.path(), before)?);
            }
        }
    }
    Ok(removed)
}

/// Returns whether a file is unfinished: `LocalFileSystem` writes `NAME#1` (or the next free number) and renames it when it
/// is complete.
fn is_unfinished(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.iter().rposition(|byte| *byte == b'#').is_some_and(|hash| {
        let number = &name[hash + 1..];
        !number.is_empty() && number.iter().all(u8::is_ascii_digit)
    })
}

fn remove_if_older(path: &PathBuf, before: SystemTime) -> io::Result<bool> {
    let Some(meta) = none_if_missing(fs::symlink_metadata(path))? else { return Ok(false) };
    Ok(meta.modified()? < before && none_if_missing(fs::remove_file(path))?.is_some())
}

/// Returns `None` if the file is gone: others write, rename and remove meanwhile.
fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
