//! The folder of a backup: `manifest.json`, the database as one file, and `objects/` with the packs under their keys.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use domain::Sha256;
use domain::hash::Hasher;
use store::blobs::Blobs;

use super::manifest::{DatabaseFile, DatabaseKind, Manifest, ManifestError};

const MANIFEST_FILE: &str = "manifest.json";
const LOCK_FILE: &str = "lock";
const OBJECTS_FOLDER: &str = "objects";
const SNAPSHOT_FILE: &str = "snapshot.partial";
const NEXT_MANIFEST_FILE: &str = "manifest.partial";

#[derive(Debug)]
pub struct BackupFolder {
    path: PathBuf,
    /// Released when the process ends, however it ends.
    _lock: Option<File>,
}

impl BackupFolder {
    /// Opens a folder for a backup, and creates it if it does not exist. Refuses one with other files in it, because a
    /// backup removes what it does not reference.
    pub fn for_writing(path: &Path) -> anyhow::Result<Self> {
        make_folder(path).with_context(|| cannot_write(path))?;
        for entry in fs::read_dir(path).with_context(|| cannot_write(path))? {
            let name = entry.with_context(|| cannot_write(path))?.file_name();
            if !name.to_str().is_some_and(is_backup_file) {
                bail!(
                    "{} has other files in it than a backup; give --out a folder of its own, which is created if it does not exist",
                    path.display()
                );
            }
        }
        let lock = File::options().create(true).write(true).truncate(false).mode(0o600).open(path.join(LOCK_FILE));
        let lock = lock.with_context(|| cannot_write(path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(busy(path)),
            Err(TryLockError::Error(e)) => Err(e).with_context(|| cannot_write(path)),
        }
    }

    /// Opens a folder for a restore, which may be on a read-only medium.
    pub fn for_reading(path: &Path) -> anyhow::Result<Self> {
        if !path.is_dir() {
            bail!("there is no folder {}; give the one that `mailroom backup --out` made", path.display());
        }
        let lock = match File::open(path.join(LOCK_FILE)) {
            Ok(lock) => match lock.try_lock_shared() {
                Err(TryLockError::WouldBlock) => return Err(busy(path)),
                Ok(()) | Err(TryLockError::Error(_)) => Some(lock),
            },
            Err(_) => None,
        };
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Finds the manifest of the last complete backup.
    pub fn find_manifest(&self) -> anyhow::Result<Option<Manifest>> {
        let text = match fs::read_to_string(self.path.join(MANIFEST_FILE)) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == ErrorKind::InvalidData => String::new(),
            Err(e) => {
                return Err(e).with_context(|| format!("cannot read {}", self.path.join(MANIFEST_FILE).display()));
            }
        };
        match Manifest::parse(&text) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(ManifestError::Newer) => bail!("this backup was made by a newer Mailroom; upgrade this program"),
            Err(ManifestError::Damaged) => bail!(
                "the backup in {} is damaged: its manifest.json cannot be read; use another backup",
                self.path.display()
            ),
        }
    }

    /// Publishes the manifest, which completes the backup.
    pub fn publish(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let next = self.path.join(NEXT_MANIFEST_FILE);
        self.try_publish(&next, manifest).with_context(|| cannot_write(&self.path))
    }

    fn try_publish(&self, next: &Path, manifest: &Manifest) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(manifest)?;
        let mut file = private_file(next)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(next, self.path.join(MANIFEST_FILE))?;
        sync_folder(&self.path)
    }

    pub fn objects(&self) -> anyhow::Result<Blobs> {
        Ok(Blobs::local(&self.path.join(OBJECTS_FOLDER))?)
    }

    /// Creates an empty file for the next snapshot, whatever an earlier run left there.
    pub fn snapshot_file(&self) -> anyhow::Result<PathBuf> {
        let path = self.path.join(SNAPSHOT_FILE);
        // A new one: the `pg_dump` of a killed run may still be writing into the old.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).with_context(|| cannot_write(&self.path)),
            _ => {}
        }
        private_file(&path).with_context(|| cannot_write(&self.path))?;
        Ok(path)
    }

    /// Makes the snapshot durable and names it by its content.
    pub fn keep_snapshot(&self, kind: DatabaseKind) -> anyhow::Result<DatabaseFile> {
        self.try_keep_snapshot(kind).with_context(|| cannot_write(&self.path))
    }

    fn try_keep_snapshot(&self, kind: DatabaseKind) -> io::Result<DatabaseFile> {
        let snapshot = self.path.join(SNAPSHOT_FILE);
        File::open(&snapshot)?.sync_all()?;
        let (size_bytes, sha256) = measure(&snapshot)?;
        let file = kind.file_name(&sha256);
        fs::rename(&snapshot, self.path.join(&file))?;
        sync_folder(&self.path)?;
        Ok(DatabaseFile { kind, file, size_bytes, sha256 })
    }

    pub fn database(&self, file: &DatabaseFile) -> PathBuf {
        self.path.join(&file.file)
    }

    /// Removes the databases of earlier backups, and what killed runs left.
    pub fn remove_all_databases_but(&self, kept: &DatabaseFile) -> anyhow::Result<()> {
        self.try_remove_databases(kept).with_context(|| cannot_write(&self.path))
    }

    fn try_remove_databases(&self, kept: &DatabaseFile) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_current = name == kept.file || [MANIFEST_FILE, LOCK_FILE, OBJECTS_FOLDER].contains(&name);
            if is_backup_file(name) && !is_current {
                fs::remove_file(self.path.join(name))?;
            }
        }
        Ok(())
    }
}

/// Returns whether a file belongs to a backup, or was written by SQLite beside one.
fn is_backup_file(name: &str) -> bool {
    let is_database = name.starts_with("mailroom-") && (name.ends_with(".db") || name.ends_with(".dump"));
    [MANIFEST_FILE, NEXT_MANIFEST_FILE, LOCK_FILE, OBJECTS_FOLDER].contains(&name)
        || name.starts_with(SNAPSHOT_FILE)
        || is_database
}

fn cannot_write(path: &Path) -> String {
    format!(
        "cannot write the backup in {}; fix that and run the command again; it continues where it stopped",
        path.display()
    )
}

fn busy(path: &Path) -> anyhow::Error {
    anyhow!("another command uses {}; try again when it is done", path.display())
}

/// Creates a folder and makes its name durable.
fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_folder(parent.unwrap_or(Path::new(".")))
}

/// Creates or empties a file that only its owner can read.
fn private_file(path: &Path) -> io::Result<File> {
    File::options().create(true).write(true).truncate(true).mode(0o600).open(path)
}

/// Returns the size and hash of a file.
pub fn measure(path: &Path) -> io::Result<(u64, Sha256)> {
    let mut hasher = Hasher::default();
    let size = read_through(path, |piece| {
        hasher.update(piece);
        Ok(())
    })?;
    Ok((size, hasher.finish()))
}

/// Reads a file piece by piece and returns its size.
pub fn read_through(path: &Path, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => return Ok(size),
            Ok(read) => read,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        take(&piece[..read])?;
        size += read as u64;
    }
}

/// Makes the names in a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
