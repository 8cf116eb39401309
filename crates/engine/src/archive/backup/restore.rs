//! Restores a backup into an empty place: every object first, then the database, which appears at once and whole. An
//! interrupted restore continues when it is run again.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use domain::Clock;
use domain::hash::Hasher;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use store::blobs::{Blobs, CopyError, ExpectedObject};
use store::failpoint::{self, Effect};
use store::{Location, Store, StoreError, backup, migrate, restored};
use tempfile::TempPath;

use super::CONCURRENT_COPIES;
use super::folder::{BackupFolder, measure, read_through, sync_folder};
use super::manifest::{DatabaseFile, DatabaseKind, Manifest, ManifestObject};
use crate::Progress;

/// Where a backup is restored to.
#[derive(Debug)]
pub struct RestoreTarget {
    pub location: Location,
    pub blobs: Blobs,
    pub clock: Arc<dyn Clock>,
    /// The folder for the lock that keeps two restores into PostgreSQL apart.
    pub data_dir: PathBuf,
    /// The login for restoring into PostgreSQL.
    pub dump_url: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RestoreSummary {
    pub database_bytes: u64,
    pub objects: u64,
    pub object_bytes: u64,
    /// Those of them that an earlier restore had not copied already.
    pub copied: u64,
}

/// Restores a backup. Nothing is written before the target is found empty and the backup complete.
pub async fn restore(from: &Path, target: &RestoreTarget, progress: &Progress) -> anyhow::Result<RestoreSummary> {
    let folder = BackupFolder::for_reading(from)?;
    let Some(manifest) = folder.find_manifest()? else {
        bail!(
            "{} holds no finished backup: there is no manifest.json in it; run `mailroom backup --out` to its end, or use another backup",
            from.display()
        );
    };
    check_version(&manifest)?;
    let database = DatabaseTarget::of(target, &manifest).await?;
    let objects = folder.objects()?;
    check_backup(&folder, &objects, &manifest).await?;
    progress.set_total(manifest.object_bytes + manifest.database.size_bytes);
    let copied = restore_objects(&objects, &target.blobs, &manifest, progress).await?;
    // From before the database is there until its counters are moved, so that nobody uses it in between.
    restored::mark(&target.location, &manifest.database.sha256.hex()).await?;
    failpoint::around(Effect::RestoreDatabase, database.install(&folder, &manifest.database)).await?;
    if matches!(target.location, Location::Sqlite { .. }) {
        // Afterwards the file has another hash: until here an interrupted restore is known again by it.
        Store::open(&target.location, target.clock.clone())?.migrate().await?;
    }
    progress.add_done(manifest.database.size_bytes);
    Ok(RestoreSummary {
        database_bytes: manifest.database.size_bytes,
        objects: manifest.objects.len() as u64,
        object_bytes: manifest.object_bytes,
        copied,
    })
}

fn check_version(manifest: &Manifest) -> anyhow::Result<()> {
    let (found, known) = (manifest.schema_version, migrate::latest_version());
    if found > known {
        bail!(
            "this backup was made by a newer Mailroom (schema {found}, this program knows {known}); upgrade this program"
        );
    }
    Ok(())
}

/// Checks a backup for missing or truncated files before the first byte is written; hashes of objects are checked while
/// they are copied.
async fn check_backup(folder: &BackupFolder, objects: &Blobs, manifest: &Manifest) -> anyhow::Result<()> {
    let database = &manifest.database;
    match measure(&folder.database(database)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(damaged(&format!("{} is missing", database.file))),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", folder.database(database).display())),
        Ok((size, _)) if size != database.size_bytes => {
            return Err(damaged(&format!("{} has {size} bytes instead of {}", database.file, database.size_bytes)));
        }
        Ok((_, sha256)) if sha256 != database.sha256 => {
            return Err(damaged(&format!("{} does not match its hash", database.file)));
        }
        Ok(_) => {}
    }
    let sizes = sizes(objects).await?;
    for object in &manifest.objects {
        match sizes.get(&object.key) {
            None => return Err(damaged(&format!("object {} is missing", object.key))),
            Some(size) if *size != object.size_bytes => {
                return Err(damaged(&format!(
                    "object {} has {size} bytes instead of {}",
                    object.key, object.size_bytes
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn damaged(what: &str) -> anyhow::Error {
    anyhow!("the backup is damaged: {what}; use another backup")
}

async fn sizes(blobs: &Blobs) -> Result<HashMap<String, u64>, StoreError> {
    blobs.list("").map_ok(|object| (object.key, object.size_bytes)).try_collect().await
}

/// Restores all objects and returns how many had to be copied.
async fn restore_objects(from: &Blobs, to: &Blobs, manifest: &Manifest, progress: &Progress) -> anyhow::Result<u64> {
    let existing = sizes(to).await?;
    let copies = stream::iter(&manifest.objects).map(|object| {
        let is_there = existing.get(&object.key) == Some(&object.size_bytes);
        async move {
            let is_new = restore_object(from, to, object, is_there).await?;
            progress.add_done(object.size_bytes);
            progress.add_items(1);
            Ok::<_, anyhow::Error>(u64::from(is_new))
        }
    });
    copies.buffer_unordered(CONCURRENT_COPIES).try_fold(0, |sum, new| async move { Ok(sum + new) }).await
}

/// Restores an object. One that an earlier restore copied is read back and compared.
async fn restore_object(from: &Blobs, to: &Blobs, object: &ManifestObject, is_there: bool) -> anyhow::Result<bool> {
    let ManifestObject { key, size_bytes, sha256 } = object;
    if is_there && to.measure(key).await? == (*size_bytes, *sha256) {
        return Ok(false);
    }
    let expected = ExpectedObject { size_bytes: *size_bytes, sha256: Some(*sha256) };
    match failpoint::around(Effect::RestoreObject, from.copy_to(to, key, expected)).await {
        Ok(_) => Ok(true),
        Err(CopyError::Reading(StoreError::Corrupt(what))) => {
            Err(anyhow!("the backup is damaged: {what}; use another backup"))
        }
        Err(CopyError::Reading(e) | CopyError::Writing(e)) => Err(e.into()),
    }
}

/// Where the database is restored to. Nothing is there yet.
enum DatabaseTarget {
    Sqlite(PathBuf),
    /// An earlier restore was interrupted after its last step.
    Restored,
    Postgres {
        url: String,
        store: Store,
        lock: RestoreLock,
    },
}

impl DatabaseTarget {
    async fn of(target: &RestoreTarget, manifest: &Manifest) -> anyhow::Result<Self> {
        let database = match (&target.location, manifest.database.kind) {
            (Location::Sqlite { path, .. }, DatabaseKind::Sqlite) => Self::sqlite(path, &manifest.database)?,
            (Location::Postgres { url, .. }, DatabaseKind::Postgres) => {
                // Before reading the database: the rest of a killed restore may be about to commit.
                let lock = RestoreLock::acquire(target.data_dir.join("restore.lock"))?;
                let store = Store::open(&target.location, target.clock.clone())?;
                if store.schema_version().await? != 0 {
                    bail!(
                        "the database at database.url is not empty; restore into an empty one, or finish an interrupted restore with `mailroom migrate`"
                    );
                }
                Self::Postgres { url: target.dump_url.clone().unwrap_or_else(|| url.clone()), store, lock }
            }
            (_, kind) => bail!(
                "this backup is of a Mailroom on {}; set database.url to a new {} database",
                kind.name(),
                kind.name()
            ),
        };
        let named: HashSet<&str> = manifest.objects.iter().map(|object| object.key.as_str()).collect();
        let mut existing = target.blobs.list("");
        while let Some(object) = existing.try_next().await? {
            if !named.contains(object.key.as_str()) {
                bail!(
                    "blobs.url contains objects that do not belong to this backup; move them away, or set data_dir (or blobs.url) to an empty place"
                );
            }
        }
        Ok(database)
    }

    /// Checks the target for SQLite. A left-over log would be replayed into the restored database.
    fn sqlite(path: &Path, database: &DatabaseFile) -> anyhow::Result<Self> {
        let marked = restored::marked_backup(path).with_context(|| format!("cannot read beside {}", path.display()))?;
        if fs::symlink_metadata(path).is_ok() && marked.as_deref() == Some(&*database.sha256.hex()) {
            return Ok(Self::Restored);
        }
        for suffix in ["-wal", "-journal"] {
            let beside = with_suffix(path, suffix);
            if fs::symlink_metadata(&beside).is_ok() {
                return Err(already_exists(&beside));
            }
        }
        if fs::symlink_metadata(path).is_err() {
            return Ok(Self::Sqlite(path.to_owned()));
        }
        let found = measure(path).with_context(|| format!("cannot read {}", path.display()))?;
        if found == (database.size_bytes, database.sha256) { Ok(Self::Restored) } else { Err(already_exists(path)) }
    }

    async fn install(self, folder: &BackupFolder, database: &DatabaseFile) -> anyhow::Result<()> {
        match self {
            Self::Restored => Ok(()),
            Self::Sqlite(path) => install_sqlite(&folder.database(database), database, &path),
            Self::Postgres { url, store, lock } => {
                backup::restore_dump(&url, &folder.database(database), lock.file.try_clone()?).await?;
                store.migrate().await?; // moves the counters, too
                lock.remove();
                Ok(())
            }
        }
    }
}

struct RestoreLock {
    path: PathBuf,
    file: File,
}

impl RestoreLock {
    fn acquire(path: PathBuf) -> anyhow::Result<Self> {
        make_private(path.parent().unwrap_or(Path::new("."))).with_context(|| lock_failed(&path))?;
        let mut options = File::options();
        let file = options.create(true).write(true).truncate(false).mode(0o600).open(&path);
        let file = file.with_context(|| lock_failed(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, file }),
            Err(TryLockError::WouldBlock) => {
                bail!("another restore is running, perhaps the rest of an interrupted one; try again when it has ended")
            }
            Err(TryLockError::Error(e)) => Err(e).with_context(|| lock_failed(&path)),
        }
    }

    /// Removes the lock file. A process that takes the lock meanwhile finds the database restored.
    fn remove(self) {
        let _ = fs::remove_file(self.path);
    }
}

fn lock_failed(path: &Path) -> String {
    format!("cannot write {}; check the rights of the folder", path.display())
}

fn write_failed(path: &Path) -> String {
    format!("cannot write {}; fix that and run the command again", path.display())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn already_exists(path: &Path) -> anyhow::Error {
    anyhow!(
        "{} already exists, and a restore replaces nothing; move the old data away, or set data_dir to another folder",
        path.display()
    )
}

/// Installs the database under its name only when it is whole and durable, and never over another file.
fn install_sqlite(from: &Path, database: &DatabaseFile, path: &Path) -> anyhow::Result<()> {
    let staged = with_suffix(path, ".restoring");
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_private(parent).with_context(|| write_failed(&staged))?;
    // Emptied only once it is ours: another restore may be writing to it.
    let mut options = File::options();
    let mut file = options
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(&staged)
        .with_context(|| write_failed(&staged))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!("another restore is running; it writes to {}", path.display()),
        Err(TryLockError::Error(e)) => return Err(e).with_context(|| write_failed(&staged)),
    }
    file.set_len(0).with_context(|| write_failed(&staged))?;
    copy_checked(from, &mut file, database).with_context(|| write_failed(&staged))?;
    let staged_path = TempPath::try_from_path(&staged).with_context(|| write_failed(&staged))?;
    match staged_path.persist_noclobber(path) {
        Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Err(already_exists(path)),
        Err(e) => Err(e.error).with_context(|| write_failed(&staged)),
        Ok(()) => sync_folder(parent).with_context(|| write_failed(&staged)),
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn copy_checked(from: &Path, to: &mut File, database: &DatabaseFile) -> io::Result<()> {
    let mut hasher = Hasher::default();
    read_through(from, |piece| {
        hasher.update(piece);
        to.write_all(piece)
    })?;
    if hasher.finish() != database.sha256 {
        return Err(io::Error::other("the backup changed while it was read"));
    }
    to.sync_all()
}
