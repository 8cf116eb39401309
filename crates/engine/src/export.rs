//! Originals out again, byte for byte.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use content::files::mbox::{self, MessageWriter};
use domain::MailboxId;
use domain::search::Query;
use store::blobs::ReadError;
use store::sql::blobs::BlobPlace;
use store::sql::emails::Email;
use store::{StoreError, TenantStore};
use tempfile::{NamedTempFile, TempDir};

use crate::search::all_matching;
use crate::{Engine, HELD_BYTES, Progress};

/// Emails are read this many at a time.
const EMAILS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One mboxrd file.
    Mbox,
    /// A folder with one file per email.
    Eml,
}

impl Engine {
    /// Writes what the query finds, oldest first, and returns how many. The result appears under its name only when it
    /// is whole and durable, and only its owner can read it.
    pub async fn export(
        &self,
        store: &TenantStore,
        query: &Query,
        mailbox: Option<MailboxId>,
        format: Format,
        out: &Path,
        progress: &Progress,
    ) -> anyhow::Result<u64> {
        let out = Target::free(out)?;
        let ids = all_matching(store, query, mailbox).await?;
        progress.set_total(ids.len() as u64);
        let mut sink = Sink::create(format, &out)
            .with_context(|| format!("cannot write {}; check the folder and its rights", out.path.display()))?;
        let mut written = 0;
        for ids in ids.chunks(EMAILS) {
            for email in store.get_emails(ids).await? {
                sink = match self.raw_place(store, &email).await? {
                    place if place.size_bytes > HELD_BYTES => self.copy_large(sink, &email, &place, &out).await?,
                    place => {
                        let raw = self.read_blob(store, place).await?;
                        sink.write(&email, &raw).with_context(|| out.writing())?;
                        sink
                    }
                };
                written += 1;
                progress.add_done(1);
                progress.add_items(1);
            }
        }
        sink.publish(&out)?;
        Ok(written)
    }

    /// The original message, proven by its hash, all of it in memory.
    pub async fn read_raw(&self, store: &TenantStore, email: &Email) -> anyhow::Result<Vec<u8>> {
        let place = self.raw_place(store, email).await?;
        Ok(self.read_blob(store, place).await?)
    }

    /// A blob that was moved to another pack since its place was looked up is looked up again.
    pub async fn read_blob(&self, store: &TenantStore, place: BlobPlace) -> Result<Vec<u8>, StoreError> {
        match self.blobs.read(&place).await {
            Err(e @ StoreError::BlobMissing(_)) => match store.find_blob(place.sha256).await? {
                Some(now) if now.object_key != place.object_key => self.blobs.read(&now).await,
                _ => Err(e),
            },
            read => read,
        }
    }

    /// Where the original message lies.
    pub async fn raw_place(&self, store: &TenantStore, email: &Email) -> anyhow::Result<BlobPlace> {
        match store.find_blob(email.sha256).await? {
            Some(place) => Ok(place),
            None => bail!("the raw bytes of email {} are not stored yet", email.id),
        }
    }

    /// Piece by piece: a message may be larger than what we want to hold.
    async fn copy_large(&self, sink: Sink, email: &Email, place: &BlobPlace, out: &Target) -> anyhow::Result<Sink> {
        let failed = |e: ReadError| match e {
            ReadError::Store(e) => e.into(),
            ReadError::Writer(e) => anyhow::Error::from(e).context(out.writing()),
        };
        Ok(match sink {
            Sink::Mbox(file) => {
                let message = MessageWriter::begin(file, place.size_bytes, sender(email), email.received_at)
                    .with_context(|| out.writing())?;
                let message = self.blobs.read_to(place, message).await.map_err(failed)?;
                Sink::Mbox(message.finish().with_context(|| out.writing())?)
            }
            Sink::Eml(folder) => {
                let file = create_private(&eml_path(&folder, email)).with_context(|| out.writing())?;
                let file = self.blobs.read_to(place, file).await.map_err(failed)?;
                file.sync_all().with_context(|| out.writing())?;
                Sink::Eml(folder)
            }
        })
    }
}

/// Where an export will be found.
struct Target {
    folder: PathBuf,
    path: PathBuf,
}

impl Target {
    /// Refuses a name that is taken.
    fn free(out: &Path) -> anyhow::Result<Self> {
        let Some(name) = out.file_name() else { bail!("{} names no file; give --out a path to make", out.display()) };
        let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let target = Self { folder: folder.to_owned(), path: out.with_file_name(name) };
        if is_taken(&target.path) { Err(target.taken()) } else { Ok(target) }
    }

    fn taken(&self) -> anyhow::Error {
        anyhow!("{} exists already; choose another name or remove it first", self.path.display())
    }

    fn writing(&self) -> String {
        format!("writing {}", self.path.display())
    }
}

/// What is written so far, beside its target under a name of its own. Removed if it is dropped before it is published.
enum Sink {
    Mbox(BufWriter<NamedTempFile>),
    Eml(TempDir),
}

impl Sink {
    fn create(format: Format, out: &Target) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("mailroom-export-").suffix(".partial");
        // A file is its owner's alone without being told.
        #[cfg(unix)]
        if format == Format::Eml {
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        }
        Ok(match format {
            Format::Mbox => Self::Mbox(BufWriter::with_capacity(1 << 20, builder.tempfile_in(&out.folder)?)),
            Format::Eml => {
                fs::create_dir_all(&out.folder)?;
                Self::Eml(builder.tempdir_in(&out.folder)?)
            }
        })
    }

    fn write(&mut self, email: &Email, raw: &[u8]) -> io::Result<()> {
        match self {
            Self::Mbox(file) => mbox::write_message(file, raw, sender(email), email.received_at),
            Self::Eml(folder) => {
                let mut file = create_private(&eml_path(folder, email))?;
                file.write_all(raw)?;
                file.sync_all()
            }
        }
    }

    /// Gives it its name, unless somebody else has taken that meanwhile.
    fn publish(self, out: &Target) -> anyhow::Result<()> {
        let published = match self {
            Self::Mbox(file) => publish_file(file, &out.path),
            Self::Eml(folder) => publish_folder(folder, &out.path),
        };
        match published.and_then(|()| sync_folder(&out.folder)) {
            Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => Err(out.taken()),
            published => published.with_context(|| out.writing()),
        }
    }
}

fn sender(email: &Email) -> Option<&str> {
    email.from.as_ref().map(|from| from.address.as_str())
}

/// Nothing of the name comes from the mail.
fn eml_path(folder: &TempDir, email: &Email) -> PathBuf {
    let time = email.received_at.strftime("%Y-%m-%dT%H%M%SZ");
    folder.path().join(format!("{time}_{}.eml", email.id))
}

/// A file for its owner's eyes only, since it holds somebody's mail.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create_new(true).open(path)
}

fn publish_file(file: BufWriter<NamedTempFile>, path: &Path) -> io::Result<()> {
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    Ok(())
}

fn publish_folder(folder: TempDir, path: &Path) -> io::Result<()> {
    sync_folder(folder.path())?;
    // A rename would replace an empty folder.
    if is_taken(path) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    fs::rename(folder.path(), path)?;
    let _ = folder.keep(); // under its old name there is nothing left to remove
    Ok(())
}

/// Names are as durable as their folder.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A link to nowhere is something, too.
fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
