//! Originals out again, byte for byte.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use content::files::mbox;
use domain::search::Query;
use domain::{EmailId, MailboxId};
use store::TenantStore;
use store::sql::emails::Email;
use store::sql::search::{Page, Start};

use crate::{Engine, Progress};

/// Ids are read this many at a time, and so are emails.
const IDS: u64 = 10_000;
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
    /// is whole.
    pub async fn export(
        &self,
        store: &TenantStore,
        query: &Query,
        mailbox: Option<MailboxId>,
        format: Format,
        out: &Path,
        progress: &Progress,
    ) -> anyhow::Result<u64> {
        if out.exists() {
            bail!("{} exists already; choose another name or remove it first", out.display());
        }
        let ids = matching(store, query, mailbox).await?;
        progress.set_total(ids.len() as u64);
        let partial = partial_name(out)?;
        let mut sink = Sink::create(format, &partial)
            .with_context(|| format!("cannot write {}; check the folder and its rights", partial.display()))?;
        for ids in ids.chunks(EMAILS) {
            for email in store.get_emails(ids).await? {
                let raw = self.read_raw(store, &email).await?;
                sink.write(&email, &raw).with_context(|| format!("writing to {}", partial.display()))?;
                progress.add_done(1);
                progress.add_items(1);
            }
        }
        sink.finish().with_context(|| format!("writing to {}", partial.display()))?;
        fs::rename(&partial, out).with_context(|| format!("naming the finished export {}", out.display()))?;
        Ok(ids.len() as u64)
    }

    /// The original message, proven by its hash.
    pub async fn read_raw(&self, store: &TenantStore, email: &Email) -> anyhow::Result<Vec<u8>> {
        let Some(place) = store.find_blob(email.sha256).await? else {
            bail!("the raw bytes of email {} are not stored yet", email.id);
        };
        Ok(self.blobs.read(&place).await?)
    }
}

/// Oldest first.
async fn matching(store: &TenantStore, query: &Query, mailbox: Option<MailboxId>) -> anyhow::Result<Vec<EmailId>> {
    let mut ids: Vec<EmailId> = Vec::new();
    loop {
        let page = Page { mailbox, start: ids.last().copied().map(Start::After), limit: IDS };
        let found = store.search(query, &page).await?;
        let is_last = (found.len() as u64) < IDS;
        ids.extend(found);
        if is_last {
            ids.reverse();
            return Ok(ids);
        }
    }
}

fn partial_name(out: &Path) -> anyhow::Result<PathBuf> {
    let Some(name) = out.file_name() else { bail!("{} names no file; give --out a path to make", out.display()) };
    let mut name = name.to_owned();
    name.push(".partial");
    Ok(out.with_file_name(name))
}

enum Sink {
    Mbox(BufWriter<File>),
    Eml(PathBuf),
}

impl Sink {
    fn create(format: Format, path: &Path) -> std::io::Result<Self> {
        // What an interrupted export left is ours and worth nothing.
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        }
        Ok(match format {
            Format::Mbox => Self::Mbox(BufWriter::with_capacity(1 << 20, File::create(path)?)),
            Format::Eml => {
                fs::create_dir_all(path)?;
                Self::Eml(path.to_owned())
            }
        })
    }

    fn write(&mut self, email: &Email, raw: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Mbox(file) => {
                let sender = email.from.as_ref().map(|from| from.address.as_str());
                mbox::write_message(file, raw, sender, email.received_at)
            }
            // Nothing of the name comes from the mail.
            Self::Eml(folder) => {
                let time = email.received_at.strftime("%Y-%m-%dT%H%M%SZ");
                fs::write(folder.join(format!("{time}_{}.eml", email.id)), raw)
            }
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Self::Mbox(file) => file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all(),
            Self::Eml(folder) => File::open(folder)?.sync_all(),
        }
    }
}
