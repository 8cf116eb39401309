//! The folder of a backup: `manifest.json`, the database as one file, and `objects/` with the packs under their keys.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use domain::Sha256;
use domain::hash::Hasher;
use store::blobs::Blobs;

use super::manifest::{DatabaseFile, Kind, Manifest, Unusable};

const MANIFEST: &str = "manifest.json";
const LOCK: &str = "lock";
const OBJECTS: &str = "objects";
const SNAPSHOT: &str = "snapshot.partial";
const NEXT_MANIFEST: &str = "manifest.partial";

#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Let go of when the process ends, however it ends.
    _lock: Option<File>,
}

impl Folder {
    /// Makes it if it is not there. Refuses one with anything else in it, for what a backup does not name it removes.
    pub fn for_writing(path: &Path) -> anyhow::Result<Self> {
        make_folder(path).with_context(|| cannot_write(path))?;
        for entry in fs::read_dir(path).with_context(|| cannot_write(path))? {
            let name = entry.with_context(|| cannot_write(path))?.file_name();
            if !name.to_str().is_some_and(is_ours) {
                bail!(
                    "{} has other things in it than a backup; give --out a folder of its own, which is made if it is not there",
                    path.display()
                );
            }
        }
        let lock = File::options().create(true).write(true).truncate(false).mode(0o600).open(path.join(LOCK));
        let lock = lock.with_context(|| cannot_write(path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(busy(path)),
            Err(TryLockError::Error(e)) => Err(e).with_context(|| cannot_write(path)),
        }
    }

    /// A folder that cannot be written, on a read-only medium say, can still be restored from.
    pub fn for_reading(path: &Path) -> anyhow::Result<Self> {
        if !path.is_dir() {
            bail!("there is no folder {}; give the one that `mailroom backup --out` made", path.display());
        }
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => match lock.try_lock_shared() {
                Err(TryLockError::WouldBlock) => return Err(busy(path)),
                Ok(()) | Err(TryLockError::Error(_)) => Some(lock),
            },
            Err(_) => None,
        };
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// That of the last backup that was finished.
    pub fn find_manifest(&self) -> anyhow::Result<Option<Manifest>> {
        let text = match fs::read_to_string(self.path.join(MANIFEST)) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == ErrorKind::InvalidData => String::new(),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", self.path.join(MANIFEST).display())),
        };
        match Manifest::parse(&text) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(Unusable::Newer) => bail!("this backup was made by a newer Mailroom; upgrade this program"),
            Err(Unusable::Damaged) => bail!(
                "the backup in {} is damaged: its manifest.json cannot be read; use another backup",
                self.path.display()
            ),
        }
    }

    /// From when it returns, this is the backup.
    pub fn publish(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let next = self.path.join(NEXT_MANIFEST);
        let publish = || {
            let text = serde_json::to_vec_pretty(manifest)?;
            let mut file = private_file(&next)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&next, self.path.join(MANIFEST))?;
            sync_folder(&self.path)
        };
        publish().with_context(|| cannot_write(&self.path))
    }

    pub fn objects(&self) -> anyhow::Result<Blobs> {
        Ok(Blobs::local(&self.path.join(OBJECTS))?)
    }

    /// An empty file for the next snapshot, whatever an earlier run left there.
    pub fn snapshot_file(&self) -> anyhow::Result<PathBuf> {
        let path = self.path.join(SNAPSHOT);
        // A new one: the `pg_dump` of a killed run may still be writing into the old.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).with_context(|| cannot_write(&self.path)),
            _ => {}
        }
        private_file(&path).with_context(|| cannot_write(&self.path))?;
        Ok(path)
    }

    /// Makes the snapshot durable and gives it the name of its content.
    pub fn keep_snapshot(&self, kind: Kind) -> anyhow::Result<DatabaseFile> {
        let keep = || {
            let snapshot = self.path.join(SNAPSHOT);
            File::open(&snapshot)?.sync_all()?;
            let (size_bytes, sha256) = measure(&snapshot)?;
            let file = kind.file_name(&sha256);
            fs::rename(&snapshot, self.path.join(&file))?;
            sync_folder(&self.path)?;
            Ok(DatabaseFile { kind, file, size_bytes, sha256 })
        };
        keep().map_err(|e: io::Error| anyhow!(e)).with_context(|| cannot_write(&self.path))
    }

    pub fn database(&self, file: &DatabaseFile) -> PathBuf {
        self.path.join(&file.file)
    }

    /// Databases of earlier backups, and what killed runs left.
    pub fn remove_all_databases_but(&self, kept: &DatabaseFile) -> anyhow::Result<()> {
        let remove = || {
            for entry in fs::read_dir(&self.path)? {
                let name = entry?.file_name();
                let Some(name) = name.to_str() else { continue };
                let is_current = name == kept.file || [MANIFEST, LOCK, OBJECTS].contains(&name);
                if is_ours(name) && !is_current {
                    fs::remove_file(self.path.join(name))?;
                }
            }
            Ok(())
        };
        remove().map_err(|e: io::Error| anyhow!(e)).with_context(|| cannot_write(&self.path))
    }
}

/// The names that a backup gives, and those that SQLite gives beside a file that it writes.
fn is_ours(name: &str) -> bool {
    let is_database = name.starts_with("mailroom-") && (name.ends_with(".db") || name.ends_with(".dump"));
    [MANIFEST, NEXT_MANIFEST, LOCK, OBJECTS].contains(&name) || name.starts_with(SNAPSHOT) || is_database
}

fn cannot_write(path: &Path) -> String {
    format!(
        "cannot write the backup in {}; mend that and run the command again, it goes on where it stopped",
        path.display()
    )
}

fn busy(path: &Path) -> anyhow::Error {
    anyhow!("another command is at work in {}; try again when it is done", path.display())
}

/// With its name durable, too.
fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_folder(parent.unwrap_or(Path::new(".")))
}

/// Made or emptied, for its owner's eyes only.
fn private_file(path: &Path) -> io::Result<File> {
    File::options().create(true).write(true).truncate(true).mode(0o600).open(path)
}

/// Size and hash.
pub fn measure(path: &Path) -> io::Result<(u64, Sha256)> {
    let mut hasher = Hasher::default();
    let size = read_through(path, |piece| {
        hasher.update(piece);
        Ok(())
    })?;
    Ok((size, hasher.finish()))
}

/// Gives a file piece by piece and returns its size.
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

/// Names are as durable as their folder.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
