//! Where master keys come from: a file that we make, or the configuration.
//!
//! Beside the key file there may be `FILE.new`, which comes next, and `FILE.old`, which goes. Which of them wraps is said
//! by the database, so any of them may be in any place.

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

/// All master keys that are at hand.
#[derive(Debug, Clone, Default)]
pub(super) struct Ring(pub Vec<MasterKey>);

impl Ring {
    pub fn find(&self, fingerprint: &str) -> Option<&MasterKey> {
        self.0.iter().find(|key| key.fingerprint() == fingerprint)
    }
}

impl KeySource {
    /// For sentences.
    pub fn shown(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Given(_) => "the setting secrets.key".to_owned(),
        }
    }

    /// Empty when there is no file.
    pub(super) fn load(&self) -> Result<Ring, VaultError> {
        match self {
            Self::File(path) => {
                let paths = [path.clone(), beside(path, "new"), beside(path, "old")];
                let keys = paths.iter().filter_map(|path| read(path).transpose());
                keys.collect::<Result<_, _>>().map(Ring)
            }
            Self::Given(text) => {
                let wrong = |e| VaultError::Key(format!("secrets.key cannot be used: {e}"));
                let keys = text.expose().split(',').map(|text| MasterKey::parse(text).map_err(wrong));
                keys.collect::<Result<_, _>>().map(Ring)
            }
        }
    }
}

/// `FILE.old`
pub(super) fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// `None` when there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<MasterKey>, VaultError> {
    let shown = path.display();
    let unreadable = |e: std::io::Error| VaultError::Key(format!("the key file {shown} can't be read: {e}"));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(e)),
    };
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(VaultError::Key(format!(
            "the key file {shown} can be read or written by others (mode {:o}); run `chmod 600 {shown}`",
            mode & 0o777
        )));
    }
    // Longer than any key, so that a wrong file is refused and not taken in whole.
    let mut text = String::with_capacity(1024);
    let outcome = (&mut file).take(1024).read_to_string(&mut text);
    let text = Secret::new(text);
    outcome.map_err(unreadable)?;
    MasterKey::parse(text.expose()).map(Some).map_err(|e| {
        VaultError::Key(format!("the key file {shown} cannot be used: {e}; put it back from where you keep a copy"))
    })
}

/// Whole and durable, for its owner only. `false` when there is such a file, which stays.
pub(super) fn make(path: &Path, key: &MasterKey) -> Result<bool, VaultError> {
    failpoint::before(Effect::MakeKeyFile);
    let made = write_new(path, &key.line(), key.fingerprint()).map_err(|e| cannot("make", path, &e))?;
    failpoint::after(Effect::MakeKeyFile);
    Ok(made)
}

/// Whole and durable, for its owner only; `name` is of those who make it. `false` when there is such a file, which stays.
pub(crate) fn write_new(path: &Path, line: &Secret<String>, name: &str) -> std::io::Result<bool> {
    let folder = folder(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Under its own name it appears whole: another process may be about to read it.
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

/// Takes back a file that was made for nothing.
pub(super) fn discard(path: &Path, key: &MasterKey) -> Result<(), VaultError> {
    match read(path)? {
        Some(there) if there.fingerprint() == key.fingerprint() => {
            fs::remove_file(path).map_err(|e| cannot("remove", path, &e))
        }
        _ => Ok(()),
    }
}

/// `FILE.new` takes the place of the key file, and what was there is kept as `FILE.old` if it is the key to keep.
pub(super) fn switch(path: &Path, keep: &str, next: &str) -> Result<(), VaultError> {
    let is_at = |path: &Path, fingerprint: &str| -> Result<bool, VaultError> {
        Ok(read(path)?.is_some_and(|key| key.fingerprint() == fingerprint))
    };
    let (new, old) = (beside(path, "new"), beside(path, "old"));
    if is_at(path, next)? {
        return Ok(());
    }
    failpoint::before(Effect::SwitchKeyFile);
    let switched = || -> std::io::Result<()> {
        if is_at(path, keep).unwrap_or(false) && !is_at(&old, keep).unwrap_or(false) {
            // The same file under a second name, so there is no moment without it.
            let linked = beside(path, &format!("link.{}", std::process::id()));
            fs::hard_link(path, &linked)?;
            fs::rename(&linked, &old)?;
        }
        sync(folder(path))?;
        fs::rename(&new, path)?;
        sync(folder(path))
    };
    switched().map_err(|e| cannot("replace", path, &e))?;
    failpoint::after(Effect::SwitchKeyFile);
    Ok(())
}

/// `FILE.old` and `FILE.new` go when they hold none of these keys.
pub(super) fn tidy(path: &Path, needed: &[String]) -> Result<(), VaultError> {
    for extra in [beside(path, "old"), beside(path, "new")] {
        let is_needed = |key: &MasterKey| needed.iter().any(|fingerprint| fingerprint == key.fingerprint());
        let in_place = read(path)?.map(|key| key.fingerprint().to_owned());
        if let Some(key) = read(&extra)?
            && (!is_needed(&key) || in_place.as_deref() == Some(key.fingerprint()))
        {
            failpoint::before(Effect::RemoveKeyFile);
            fs::remove_file(&extra).and_then(|()| sync(folder(path))).map_err(|e| cannot("remove", &extra, &e))?;
            failpoint::after(Effect::RemoveKeyFile);
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

fn cannot(what: &str, path: &Path, e: &std::io::Error) -> VaultError {
    VaultError::Key(format!("cannot {what} the key file {}: {e}", path.display()))
}
