//! Exports original messages, byte for byte.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use content::files::mbox::{self, MessageWriter};
use domain::MailboxId;
use domain::search::SearchQuery;
use store::blobs::BlobLocation;
use store::blobs::ReadError;
use store::sql::emails::Email;
use store::{StoreError, TenantStore};
use tempfile::{NamedTempFile, TempDir};

use crate::archive::search::all_matching;
use crate::{Engine, MAX_BUFFERED_BLOB_BYTES, Progress};

/// Emails that are read per query.
const EMAILS_PER_QUERY: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// One mboxrd file.
    Mbox,
    /// A folder with one file per email.
    Eml,
}

impl Engine {
    /// Exports the emails that match a query, oldest first, and returns how many. The result appears under its name
    /// only when it is whole and durable, and only its owner can read it.
    pub async fn export(
        &self,
        store: &TenantStore,
        query: &SearchQuery,
        mailbox: Option<MailboxId>,
        format: ExportFormat,
        out: &Path,
        progress: &Progress,
    ) -> anyhow::Result<u64> {
        let out = ExportTarget::new(out)?;
        let ids = all_matching(store, query, mailbox).await?;
        progress.set_total(ids.len() as u64);
        let mut sink = ExportSink::create(format, &out)
            .with_context(|| format!("cannot write {}; check the folder and its rights", out.path.display()))?;
        let mut written = 0;
        for ids in ids.chunks(EMAILS_PER_QUERY) {
            for email in store.get_emails(ids).await? {
                sink = match self.find_raw_location(store, &email).await? {
                    place if place.size_bytes > MAX_BUFFERED_BLOB_BYTES => {
                        self.copy_large(sink, &email, &place, &out).await?
                    }
                    place => {
                        let raw = self.read_blob(store, place).await?;
                        sink.write(&email, &raw).with_context(|| out.write_context())?;
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

    /// Reads the original message into memory, verified by its hash.
    pub async fn read_raw(&self, store: &TenantStore, email: &Email) -> anyhow::Result<Vec<u8>> {
        let place = self.find_raw_location(store, email).await?;
        Ok(self.read_blob(store, place).await?)
    }

    /// Reads a blob. One that was moved to another pack since it was looked up is looked up again.
    pub async fn read_blob(&self, store: &TenantStore, place: BlobLocation) -> Result<Vec<u8>, StoreError> {
        match self.blobs.read(&place).await {
            Err(e @ StoreError::BlobMissing(_)) => match store.find_blob(place.sha256).await? {
                Some(now) if now.object_key != place.object_key => self.blobs.read(&now).await,
                _ => Err(e),
            },
            read => read,
        }
    }

    /// Finds where the original message is stored.
    pub async fn find_raw_location(&self, store: &TenantStore, email: &Email) -> anyhow::Result<BlobLocation> {
        match store.find_blob(email.sha256).await? {
            Some(place) => Ok(place),
            None => bail!("the raw bytes of email {} are not stored yet", email.id),
        }
    }

    /// Copies a message piece by piece, because it may be larger than what we want to hold.
    async fn copy_large(
        &self,
        sink: ExportSink,
        email: &Email,
        place: &BlobLocation,
        out: &ExportTarget,
    ) -> anyhow::Result<ExportSink> {
        Ok(match sink {
            ExportSink::Mbox(file) => {
                let message = MessageWriter::begin(file, place.size_bytes, sender(email), email.received_at)
                    .with_context(|| out.write_context())?;
                let message = self.blobs.read_to(place, message).await.map_err(|e| out.read_error(e))?;
                ExportSink::Mbox(message.finish().with_context(|| out.write_context())?)
            }
            ExportSink::Eml(folder) => {
                let file = create_private(&eml_path(&folder, email)).with_context(|| out.write_context())?;
                let file = self.blobs.read_to(place, file).await.map_err(|e| out.read_error(e))?;
                file.sync_all().with_context(|| out.write_context())?;
                ExportSink::Eml(folder)
            }
        })
    }
}

/// Where an export is written.
struct ExportTarget {
    folder: PathBuf,
    path: PathBuf,
}

impl ExportTarget {
    /// Creates a target. Refuses a path that exists.
    fn new(out: &Path) -> anyhow::Result<Self> {
        let Some(name) = out.file_name() else {
            bail!("--out must name a new file or folder; {} names none", out.display())
        };
        let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let target = Self { folder: folder.to_owned(), path: out.with_file_name(name) };
        if exists(&target.path) { Err(target.already_exists()) } else { Ok(target) }
    }

    fn already_exists(&self) -> anyhow::Error {
        anyhow!("{} exists already; choose another name or remove it first", self.path.display())
    }

    fn read_error(&self, e: ReadError) -> anyhow::Error {
        match e {
            ReadError::Store(e) => e.into(),
            ReadError::Writer(e) => anyhow::Error::from(e).context(self.write_context()),
        }
    }

    fn write_context(&self) -> String {
        format!("writing {}", self.path.display())
    }
}

/// The unfinished export, beside its target under a temporary name. Removed if it is dropped before it is published.
enum ExportSink {
    Mbox(BufWriter<NamedTempFile>),
    Eml(TempDir),
}

impl ExportSink {
    fn create(format: ExportFormat, out: &ExportTarget) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("mailroom-export-").suffix(".partial");
        // A temporary file is private by default.
        #[cfg(unix)]
        if format == ExportFormat::Eml {
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        }
        Ok(match format {
            ExportFormat::Mbox => Self::Mbox(BufWriter::with_capacity(1 << 20, builder.tempfile_in(&out.folder)?)),
            ExportFormat::Eml => {
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

    /// Publishes the export under its name, unless that exists by now.
    fn publish(self, out: &ExportTarget) -> anyhow::Result<()> {
        let published = match self {
            Self::Mbox(file) => publish_file(file, &out.path),
            Self::Eml(folder) => publish_folder(folder, &out.path),
        };
        match published.and_then(|()| sync_folder(&out.folder)) {
            Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => {
                Err(out.already_exists())
            }
            published => published.with_context(|| out.write_context()),
        }
    }
}

fn sender(email: &Email) -> Option<&str> {
    email.from.as_ref().map(|from| from.address.as_str())
}

/// Returns the path of an email's file. Nothing of the name comes from the mail.
fn eml_path(folder: &TempDir, email: &Email) -> PathBuf {
    let time = email.received_at.strftime("%Y-%m-%dT%H%M%SZ");
    folder.path().join(format!("{time}_{}.eml", email.id))
}

/// Creates a file that only its owner can read.
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
    if exists(path) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    fs::rename(folder.path(), path)?;
    let _ = folder.keep(); // under its old name there is nothing left to remove
    Ok(())
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns whether a path exists; a dangling link counts.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
