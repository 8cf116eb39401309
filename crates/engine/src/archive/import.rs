//! Imports mail files into a mailbox: a bounded pipeline of read → parse → blobs → one unit per batch.
//!
//! Batches are prepared side by side but committed in the order of the files, so that the first of two messages with
//! the same bytes is the same one each time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use content::files::{self, FileMessage, ImportProblem};
use content::spool::{Spool, SpoolableBytes};
use domain::{MessageLimits, redact_for_log};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use store::Dialect;
use store::sql::mailboxes::Mailbox;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::archive::ingest::{IncomingMessage, MessageSource, PreparedBatch};
use crate::{Engine, Progress};

#[derive(Debug, Clone)]
pub struct Import {
    pub paths: Vec<PathBuf>,
    pub format: files::MailFileFormat,
    /// Replaces the folders that the files name.
    pub folder: Option<String>,
    pub batching: Batching,
}

/// An import whose files are open and appear to contain mail.
#[derive(Debug)]
pub struct OpenImport {
    readers: Vec<files::MailFileReader>,
    folder: Option<String>,
    batching: Batching,
}

impl Import {
    /// Opens all files first: a path that cannot be imported at all is reported before anything is created or stored.
    pub fn open(self, limits: &MessageLimits, spool: &Spool) -> Result<OpenImport, ImportProblem> {
        let readers = self.paths.iter().map(|path| files::open(path, self.format, limits, spool));
        let readers = readers.collect::<Result<_, _>>()?;
        let folder = self.folder.as_deref().map(files::folder_name);
        Ok(OpenImport { readers, folder, batching: self.batching })
    }
}

#[derive(Debug, Clone)]
pub struct Batching {
    pub messages: usize,
    pub bytes: u64,
    /// Batches that are prepared at once.
    pub in_flight: usize,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ImportSummary {
    pub read: u64,
    pub stored: u64,
    pub duplicates: u64,
    pub failed: u64,
    /// Files in the folders that are no mail, and were passed over.
    pub skipped: u64,
    pub attachments: u64,
    /// Stored without some of their bytes, because blob storage was unavailable.
    pub incomplete: u64,
    pub bytes: u64,
    pub seconds: f64,
}

/// A batch of the reading thread.
struct ImportBatch {
    found: Vec<FileMessage>,
    /// The bytes of the files that were read when the batch was full.
    bytes_read: u64,
    /// Released when the batch is committed; bounds the bytes in memory.
    memory: OwnedSemaphorePermit,
}

/// Receives each file or message that could not be imported, as a sentence.
pub type OnProblem = Arc<dyn Fn(&str) + Send + Sync>;

/// The memory of a message in the spool: the body that goes into its row, and a window on the rest.
const SPOOLED_BYTES: u64 = 4 << 20;

/// The bytes of one permit: a semaphore cannot count single bytes so far.
const PERMIT_BYTES: u64 = 1024;

impl Engine {
    /// Imports the files. Problems with single files or messages are reported at once and counted as failed; the rest
    /// goes on.
    pub async fn import(
        &self,
        mailbox: &Mailbox,
        import: OpenImport,
        progress: Arc<Progress>,
        on_problem: OnProblem,
    ) -> anyhow::Result<ImportSummary> {
        let started = Instant::now();
        let mailbox = Arc::new(mailbox.clone());
        let (in_flight, folder) = (import.batching.in_flight, import.folder.clone());
        let (batches, reading) = start_reading(import, &progress, on_problem.clone());
        let mut summary = ImportSummary::default();
        self.run_upkeep().await;

        let prepared = batches.map(|batch| {
            let (engine, mailbox, folder) = (self.clone(), mailbox.clone(), folder.clone());
            // A task of its own, so that it continues while an earlier batch is committed.
            let task = tokio::spawn(async move { engine.prepare_found(&mailbox, batch, folder).await });
            async move { task.await.context("preparing a batch")? }
        });
        let mut prepared = std::pin::pin!(prepared.buffered(in_flight));
        while let Some(batch) = prepared.next().await {
            let (batch, count, bytes_read, memory) = batch?;
            let ingested = self.commit(&mailbox, batch).await?;
            drop(memory);
            summary.read += count;
            summary.stored += ingested.stored;
            summary.duplicates += ingested.duplicates;
            summary.attachments += ingested.attachments;
            summary.incomplete += ingested.incomplete;
            summary.bytes += ingested.bytes;
            summary.failed += ingested.refused.len() as u64;
            ingested.refused.iter().for_each(|problem| on_problem(problem));
            progress.add_items(count);
            progress.set_done(bytes_read);
        }
        let outcome = reading.await.context("reading the files")?;
        summary.failed += outcome.problems;
        summary.read += outcome.problems;
        summary.skipped = outcome.skipped;
        self.run_upkeep().await;
        if summary.stored > 0 && self.store.dialect() == Dialect::Sqlite {
            // SQLite does not do it by itself; PostgreSQL's autovacuum comes within a minute. Everything is stored by
            // now, so a full disk or a busy file does no harm.
            if let Err(e) = self.store.system().refresh_statistics().await {
                tracing::warn!(error = redact_for_log(&e), "table statistics not updated");
            }
        }
        summary.seconds = started.elapsed().as_secs_f64();
        Ok(summary)
    }

    /// Runs the database's upkeep. A failure is harmless: the next run does it.
    async fn run_upkeep(&self) {
        if let Err(e) = self.store.system().upkeep().await {
            tracing::warn!(error = redact_for_log(&e), "database upkeep failed");
        }
    }

    async fn prepare_found(
        &self,
        mailbox: &Arc<Mailbox>,
        batch: ImportBatch,
        folder: Option<String>,
    ) -> anyhow::Result<(PreparedBatch, u64, u64, OwnedSemaphorePermit)> {
        let ImportBatch { mut found, bytes_read, memory } = batch;
        if let Some(folder) = folder {
            found.iter_mut().for_each(|found| found.folder.clone_from(&folder));
        }
        let mut names: Vec<String> = found.iter().map(|found| found.folder.clone()).collect();
        names.sort();
        names.dedup();
        let store = self.store.tenant(mailbox.tenant_id);
        let folders =
            self.with_database_retry(|| async { Ok(store.ensure_folders(mailbox.id, &names).await?) }).await?;
        let mut messages: Vec<IncomingMessage> = Vec::with_capacity(found.len());
        for found in found {
            let folder = *folders.get(&found.folder).context("a folder was removed meanwhile")?;
            messages.push(IncomingMessage {
                raw: found.raw,
                source: MessageSource::File { folder, flags: found.flags },
                received_at: found.envelope_time,
                origin: found.origin,
            });
        }
        let count = messages.len() as u64;
        let prepared = self.with_database_retry(|| self.prepare(mailbox.clone(), messages.clone())).await?;
        Ok((prepared, count, bytes_read, memory))
    }
}

/// What the reading thread could not hand over.
#[derive(Debug, Default)]
struct ReadingOutcome {
    problems: u64,
    skipped: u64,
}

/// Starts a thread that reads the files.
fn start_reading(
    import: OpenImport,
    progress: &Progress,
    on_problem: OnProblem,
) -> (impl Stream<Item = ImportBatch> + use<>, tokio::task::JoinHandle<ReadingOutcome>) {
    let OpenImport { readers, batching, .. } = import;
    progress.set_total(readers.iter().map(files::MailFileReader::total_bytes).sum());
    let memory_bytes = batching.bytes * batching.in_flight as u64;
    let memory = Arc::new(Semaphore::new(permits(memory_bytes) as usize));
    let (sender, receiver) = mpsc::channel(1);
    let mut batcher = BatchBuilder { batching, memory, memory_bytes, sender, found: Vec::new(), bytes: 0 };
    let reading = tokio::task::spawn_blocking(move || {
        let mut outcome = ReadingOutcome::default();
        // If it stopped early, the import has already failed for another reason, which its caller gets.
        let _ = read_all(readers, &mut batcher, &mut outcome, |problem| on_problem(&problem.to_string()));
        outcome
    });
    let batches = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    (batches, reading)
}

fn read_all(
    readers: Vec<files::MailFileReader>,
    batcher: &mut BatchBuilder,
    outcome: &mut ReadingOutcome,
    on_problem: impl Fn(&ImportProblem),
) -> Result<(), ReceiverClosed> {
    let mut finished = 0;
    for mut reader in readers {
        while let Some(next) = reader.next() {
            match next {
                Ok(found) => batcher.add(found, finished + reader.bytes_read())?,
                Err(problem) => {
                    outcome.problems += 1;
                    on_problem(&problem);
                }
            }
        }
        outcome.skipped += reader.skipped();
        reader.take_containers().iter().for_each(&on_problem);
        finished += reader.total_bytes();
    }
    batcher.send(finished)
}

/// Fills batches on the reading thread.
struct BatchBuilder {
    batching: Batching,
    memory: Arc<Semaphore>,
    memory_bytes: u64,
    sender: mpsc::Sender<ImportBatch>,
    found: Vec<FileMessage>,
    bytes: u64,
}

/// The receiver of batches is gone.
struct ReceiverClosed;

impl BatchBuilder {
    fn add(&mut self, found: FileMessage, bytes_read: u64) -> Result<(), ReceiverClosed> {
        let Batching { messages, bytes, .. } = self.batching;
        let size = match &found.raw {
            SpoolableBytes::InMemory(raw) => raw.len() as u64,
            SpoolableBytes::Spooled(_) => SPOOLED_BYTES,
        };
        if !self.found.is_empty() && (self.found.len() >= messages || self.bytes + size > bytes) {
            self.send(bytes_read.saturating_sub(found.raw.len()))?;
        }
        self.bytes += size;
        self.found.push(found);
        Ok(())
    }

    fn send(&mut self, bytes_read: u64) -> Result<(), ReceiverClosed> {
        if self.found.is_empty() {
            return Ok(());
        }
        // A message larger than all the memory takes all of it.
        let wanted = permits(self.bytes.min(self.memory_bytes));
        let runtime = tokio::runtime::Handle::current();
        let memory = runtime.block_on(self.memory.clone().acquire_many_owned(wanted)).map_err(|_| ReceiverClosed)?;
        let found = std::mem::take(&mut self.found);
        self.bytes = 0;
        self.sender.blocking_send(ImportBatch { found, bytes_read, memory }).map_err(|_| ReceiverClosed)
    }
}

fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
}
