//! Mail files into a mailbox: a bounded pipeline of read → parse → blobs → one unit per batch.
//!
//! Batches are prepared side by side but committed in the order of the files, so that the first of two messages with
//! the same bytes is the same one each time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use content::files::{self, Found, Problem};
use content::spool::{Data, Spool};
use domain::Limits;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use store::Dialect;
use store::sql::mailboxes::Mailbox;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::ingest::{Message, Prepared, Source};
use crate::{Engine, Progress};

#[derive(Debug, Clone)]
pub struct Import {
    pub paths: Vec<PathBuf>,
    pub format: files::Format,
    /// Instead of the folders that the files name.
    pub folder: Option<String>,
    pub batching: Batching,
}

/// Files that are open and hold mail, as far as can be told from outside.
#[derive(Debug)]
pub struct Opened {
    readers: Vec<files::Reader>,
    folder: Option<String>,
    batching: Batching,
}

impl Import {
    /// Opens everything first: a path that cannot be imported at all is told before anything is made or stored.
    pub fn open(self, limits: &Limits, spool: &Spool) -> Result<Opened, Problem> {
        let open = |path: &PathBuf| files::open(path, self.format, limits, spool);
        let readers = self.paths.iter().map(open).collect::<Result<_, _>>()?;
        let folder = self.folder.as_deref().map(files::folder_name);
        Ok(Opened { readers, folder, batching: self.batching })
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
pub struct Summary {
    pub read: u64,
    pub stored: u64,
    pub duplicates: u64,
    pub failed: u64,
    pub attachments: u64,
    /// Stored, but some of their bytes are not yet, because blob storage was away.
    pub incomplete: u64,
    pub bytes: u64,
    pub seconds: f64,
}

/// What the reading thread hands over.
struct Batch {
    found: Vec<Found>,
    /// How much of the files was read when the batch was full.
    bytes_read: u64,
    /// Given back when the batch is committed; bounds the bytes in memory.
    memory: OwnedSemaphorePermit,
}

/// Told each file or message that could not be imported, as a sentence.
pub type OnProblem = Arc<dyn Fn(&str) + Send + Sync>;

/// What a message in the spool costs while it is under way: the body that goes into its row, and a window on the rest.
const SPOOLED_BYTES: u64 = 4 << 20;

/// Semaphores count in kilobytes, for they cannot count far.
const PERMIT_BYTES: u64 = 1024;

impl Engine {
    /// Problems with single files or messages are told as they come up and counted as failed; the rest goes on.
    pub async fn import(
        &self,
        mailbox: &Mailbox,
        opened: Opened,
        progress: Arc<Progress>,
        on_problem: OnProblem,
    ) -> anyhow::Result<Summary> {
        let started = Instant::now();
        let mailbox = Arc::new(mailbox.clone());
        let (in_flight, folder) = (opened.batching.in_flight, opened.folder.clone());
        let (batches, reading) = start_reading(opened, &progress, on_problem.clone());
        let mut summary = Summary::default();
        self.keep_up().await;

        let prepared = batches.map(|batch| {
            let (engine, mailbox, folder) = (self.clone(), mailbox.clone(), folder.clone());
            // A task of its own, so that it goes on while an earlier batch is being committed.
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
        let unreadable = reading.await.context("reading the files")?;
        summary.failed += unreadable;
        summary.read += unreadable;
        self.keep_up().await;
        if summary.stored > 0 && self.store.dialect() == Dialect::Sqlite {
            // Nobody else does it there; PostgreSQL's autovacuum comes within a minute. Everything is stored by now, so
            // a disk that is full or a file that is busy spoils nothing.
            if let Err(e) = self.store.system().analyze().await {
                tracing::warn!("table statistics are not up to date: {e}");
            }
        }
        summary.seconds = started.elapsed().as_secs_f64();
        Ok(summary)
    }

    /// What the database needs now and then. Nothing is lost where it does not work out: the next time does it.
    async fn keep_up(&self) {
        if let Err(e) = self.store.system().upkeep().await {
            tracing::warn!("the database's upkeep did not work out: {e}");
        }
    }

    async fn prepare_found(
        &self,
        mailbox: &Arc<Mailbox>,
        batch: Batch,
        folder: Option<String>,
    ) -> anyhow::Result<(Prepared, u64, u64, OwnedSemaphorePermit)> {
        let Batch { mut found, bytes_read, memory } = batch;
        if let Some(folder) = folder {
            found.iter_mut().for_each(|found| found.folder.clone_from(&folder));
        }
        let mut names: Vec<String> = found.iter().map(|found| found.folder.clone()).collect();
        names.sort();
        names.dedup();
        let store = self.store.tenant(mailbox.tenant_id);
        let folders = self.patiently(|| async { Ok(store.ensure_folders(mailbox.id, &names).await?) }).await?;
        let message = |found: Found| -> anyhow::Result<Message> {
            let folder = *folders.get(&found.folder).context("a folder was removed meanwhile")?;
            Ok(Message {
                raw: found.raw,
                source: Source::File { folder, flags: found.flags },
                received_at: found.envelope_time,
                origin: found.origin,
            })
        };
        let messages: Vec<Message> = found.into_iter().map(message).collect::<anyhow::Result<_>>()?;
        let count = messages.len() as u64;
        let prepared = self.patiently(|| self.prepare(mailbox.clone(), messages.clone())).await?;
        Ok((prepared, count, bytes_read, memory))
    }
}

/// Reads on a thread of its own. The handle gives the number of problems.
fn start_reading(
    opened: Opened,
    progress: &Progress,
    on_problem: OnProblem,
) -> (impl Stream<Item = Batch> + use<>, tokio::task::JoinHandle<u64>) {
    let Opened { readers, batching, .. } = opened;
    progress.set_total(readers.iter().map(files::Reader::total_bytes).sum());
    let memory_bytes = batching.bytes * batching.in_flight as u64;
    let memory = Arc::new(Semaphore::new(permits(memory_bytes) as usize));
    let (sender, receiver) = mpsc::channel(1);
    let mut batcher = Batcher { batching, memory, memory_bytes, sender, found: Vec::new(), bytes: 0 };
    let reading = tokio::task::spawn_blocking(move || {
        let mut problems = 0;
        let on_problem = |problem: &Problem| {
            problems += 1;
            on_problem(&problem.to_string());
        };
        // Stopped early, the import has already failed for another reason, which its caller is told.
        let _ = read_all(readers, &mut batcher, on_problem);
        problems
    });
    let batches = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    (batches, reading)
}

fn read_all(
    readers: Vec<files::Reader>,
    batcher: &mut Batcher,
    mut on_problem: impl FnMut(&Problem),
) -> Result<(), Stopped> {
    let mut finished = 0;
    for mut reader in readers {
        while let Some(next) = reader.next() {
            match next {
                Ok(found) => batcher.add(found, finished + reader.bytes_read())?,
                Err(problem) => on_problem(&problem),
            }
        }
        finished += reader.total_bytes();
    }
    batcher.send(finished)
}

/// Fills batches on the reading thread.
struct Batcher {
    batching: Batching,
    memory: Arc<Semaphore>,
    memory_bytes: u64,
    sender: mpsc::Sender<Batch>,
    found: Vec<Found>,
    bytes: u64,
}

/// The other end has stopped listening.
struct Stopped;

impl Batcher {
    fn add(&mut self, found: Found, bytes_read: u64) -> Result<(), Stopped> {
        let Batching { messages, bytes, .. } = self.batching;
        let size = match &found.raw {
            Data::Held(raw) => raw.len() as u64,
            Data::Spooled(_) => SPOOLED_BYTES,
        };
        if !self.found.is_empty() && (self.found.len() >= messages || self.bytes + size > bytes) {
            self.send(bytes_read.saturating_sub(found.raw.len()))?;
        }
        self.bytes += size;
        self.found.push(found);
        Ok(())
    }

    fn send(&mut self, bytes_read: u64) -> Result<(), Stopped> {
        if self.found.is_empty() {
            return Ok(());
        }
        // A message larger than all the memory takes all of it and goes alone.
        let wanted = permits(self.bytes.min(self.memory_bytes));
        let runtime = tokio::runtime::Handle::current();
        let memory = runtime.block_on(self.memory.clone().acquire_many_owned(wanted)).map_err(|_| Stopped)?;
        let found = std::mem::take(&mut self.found);
        self.bytes = 0;
        self.sender.blocking_send(Batch { found, bytes_read, memory }).map_err(|_| Stopped)
    }
}

fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
}
