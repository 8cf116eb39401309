//! Sources of master keys: a file that we create, or the configuration.
//!
//! Beside the key file there may be `FILE.new`, the next key, and `FILE.old`, the retiring one. The database says which
//! of them is current, so any key may be in any of the files.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use domain::Secret;
use store::failpoint::{self, Effect};

use super::VaultError;
use super::master::MasterKey;

#[derive(Debug, Clone)]
pub enum KeySource {
    File(PathBuf),
    /// One key, or several separated by commas while one follows another.
    Given(Secret<String>),
}

/// All master keys of a source.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyRing(pub Vec<MasterKey>);

impl KeyRing {
    pub fn find(&self, fingerprint: &str) -> Option<&MasterKey> {
        self.0.iter().find(|key| key.fingerprint() == fingerprint)
    }
}

impl KeySource {
    /// Describes the source in error texts.
    pub fn describe(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Given(_) => "the setting secrets.key".to_owned(),
        }
    }

    /// Loads all keys; none if there is no file.
    pub(super) fn load(&self) -> Result<KeyRing, VaultError> {
        match self {
            Self::File(path) => {
                let paths = [path.clone(), beside(path, "new"), beside(path, "old")];
                let keys = paths.iter().filter_map(|path| read(path).transpose());
                keys.collect::<Result<_, _>>().map(KeyRing)
            }
            Self::Given(text) => {
                let keys = text.expose().split(',').map(|text| {
                    MasterKey::parse(text).map_err(|e| VaultError::Key(format!("secrets.key cannot be used: {e}")))
                });
                keys.collect::<Result<_, _>>().map(KeyRing)
            }
        }
    }
}

/// Returns the path with an extension added, such as `FILE.old`.
pub(super) fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// Reads a key file. Returns `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<MasterKey>, VaultError> {
    let shown = path.display();
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(path, &e)),
    };
    let mode = file.metadata().map_err(|e| unreadable(path, &e))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(VaultError::Key(format!(
            "the key file {shown} can be read or written by others (mode {:o}); run `chmod 600 {shown}`",
            mode & 0o777
        )));
    }
    // Longer than any key, so that a wrong file is refused without reading all of it.
    let mut text = String::with_capacity(1024);
    let outcome = (&mut file).take(1024).read_to_string(&mut text);
    let text = Secret::new(text);
    outcome.map_err(|e| unreadable(path, &e))?;
    MasterKey::parse(text.expose()).map(Some).map_err(|e| {
        VaultError::Key(format!("the key file {shown} cannot be used: {e}; put it back from where you keep a copy"))
    })
}

/// Creates a key file, whole and durable, for its owner only. Returns `false` if the file exists, which stays.
pub(super) fn make(path: &Path, key: &MasterKey) -> Result<bool, VaultError> {
    failpoint::around_blocking(Effect::MakeKeyFile, || write_new(path, &key.line(), key.fingerprint()))
        .map_err(|e| file_error("make", path, &e))
}

/// Creates a file, whole and durable, for its owner only; `name` distinguishes concurrent writers. Returns `false` if
/// the file exists, which stays.
pub(crate) fn write_new(path: &Path, line: &Secret<String>, name: &str) -> std::io::Result<bool> {
    let folder = folder(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // It appears under its name only when it is whole: another process may be about to read it.
    let written = beside(path, &format!("{name}.{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&written)?;
    let outcome = file
        .write_all(line.expose().as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&written, path));
    fs::remove_file(&written)?;
    match outcome {
        Ok(()) => sync(folder).map(|()| true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes a file that was created in vain.
pub(super) fn discard(path: &Path, key: &MasterKey) -> Result<(), VaultError> {
    match read(path)? {
        Some(there) if there.fingerprint() == key.fingerprint() => {
            fs::remove_file(path).map_err(|e| file_error("remove", path, &e))
        }
        _ => Ok(()),
    }
}

/// Replaces the key file by `FILE.new`, and keeps the former one as `FILE.old` if it is the key to keep.
pub(super) fn install_next(path: &Path, keep: &str, next: &str) -> Result<(), VaultError> {
    let (new, old) = (beside(path, "new"), beside(path, "old"));
    if has_key(path, next)? {
        return Ok(());
    }
    failpoint::around_blocking(Effect::SwitchKeyFile, || try_install_next(path, &new, &old, keep))
        .map_err(|e| file_error("replace", path, &e))
}

fn try_install_next(path: &Path, new: &Path, old: &Path, keep: &str) -> std::io::Result<()> {
    if has_key(path, keep).unwrap_or(false) && !has_key(old, keep).unwrap_or(false) {
        // The same file under a second name, so there is no moment without it.
        let linked = beside(path, &format!("link.{}", std::process::id()));
        fs::hard_link(path, &linked)?;
        fs::rename(&linked, old)?;
    }
    sync(folder(path))?;
    fs::rename(new, path)?;
    sync(folder(path))
}

fn has_key(path: &Path, fingerprint: &str) -> Result<bool, VaultError> {
    Ok(read(path)?.is_some_and(|key| key.fingerprint() == fingerprint))
}

/// Removes `FILE.old` and `FILE.new` if they hold none of these keys.
pub(super) fn remove_unneeded(path: &Path, needed: &[String]) -> Result<(), VaultError> {
    for extra in [beside(path, "old"), beside(path, "new")] {
        let in_place = read(path)?.map(|key| key.fingerprint().to_owned());
        if let Some(key) = read(&extra)?
            && (!needed.iter().any(|fingerprint| fingerprint == key.fingerprint())
                || in_place.as_deref() == Some(key.fingerprint()))
        {
            failpoint::around_blocking(Effect::RemoveKeyFile, || {
                fs::remove_file(&extra).and_then(|()| sync(folder(path)))
            })
            .map_err(|e| file_error("remove", &extra, &e))?;
        }
    }
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

fn file_error(what: &str, path: &Path, e: &std::io::Error) -> VaultError {
    VaultError::Key(format!("cannot {what} the key file {}: {e}", path.display()))
}

fn unreadable(path: &Path, e: &std::io::Error) -> VaultError {
    VaultError::Key(format!("the key file {} can't be read: {e}", path.display()))
}
