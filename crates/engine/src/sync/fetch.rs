//! The job that fetches a batch of messages of one mailbox and stores them as emails, in one commit.

use std::collections::BTreeMap;
use std::time::Duration;

use content::spool::{Spool, SpoolBuffer};
use domain::connector::{ConnectorFuture, FetchRequest, MessageMetadata, MessageSink, SeenMessage};
use domain::metrics as catalogue;
use domain::{Clock, ConnectorError, Lane, MailboxId, MailboxState, Provider, redact_for_log};
use jobs::{Completion, Job, JobContext, JobError, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, StartTime};
use store::sql::mailboxes::Mailbox;
use store::sql::sync::QueuedMessage;
use store::{Precondition, StorageFault, StoreError, TenantStore, TenantUnit};

use super::placements::{FetchOutcome, PlacedBatch, PlacementsByMessage};
use super::{MIN_RECORDED_PAUSE, MailboxSession, OPERATOR_RETRY_DELAY, Syncer, job_error, states};
use crate::Engine;
use crate::archive::ingest::{FetchedMessage, IncomingMessage, MessageSource, PreparedBatch};
use crate::archive::repair::RetryBlobs;
use crate::retry_policies::MAX_FETCH_ATTEMPTS;
use crate::storage_health::{StoragePart, StorageTrouble};
use outbound::limits::PROVIDER_RESERVE_BYTES;
use outbound::memory_budget::MemoryReservation;

/// Fetches messages that the ledger has queued.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchEmails {
    pub mailbox: MailboxId,
    pub messages: Vec<String>,
}

impl Job for FetchEmails {
    const KIND: &'static str = "fetch_emails";
}

/// Messages of a batch whose sizes are not known: so few that they fit into memory whatever their sizes are, because
/// after the first large one the others go through the spool.
const MAX_UNSIZED_BATCH: usize = 25;

impl FetchEmails {
    /// Creates jobs for messages whose sizes are not at hand. In the low lane: they have waited already, and new mail
    /// goes first.
    pub fn unsized_jobs(mailbox: MailboxId, messages: &[String], clock: &dyn Clock) -> anyhow::Result<Vec<NewJob>> {
        let mut jobs = Vec::new();
        for batch in messages.chunks(MAX_UNSIZED_BATCH) {
            let job = new_job(&Self { mailbox, messages: batch.to_vec() }, clock, None)?;
            jobs.push(NewJob { lane: Lane::Low, ..job });
        }
        Ok(jobs)
    }
}

const MAX_BATCH_MESSAGES: usize = 100;
const MAX_BATCH_BYTES: u64 = PROVIDER_RESERVE_BYTES;

/// The assumed size of a message whose provider does not list sizes.
const ASSUMED_MESSAGE_BYTES: u64 = 100 << 10;

/// A longer message goes through the spool: it would not fit into a provider's part of the memory budget. Parsing it
/// takes about as much memory.
const SPOOL_ABOVE_BYTES: u64 = PROVIDER_RESERVE_BYTES;

/// Once a batch has brought so many bytes, because its sizes were not known, messages above the second limit go through
/// the spool.
const LARGE_BATCH_BYTES: u64 = PROVIDER_RESERVE_BYTES;
const SPOOL_ABOVE_BYTES_IN_LARGE_BATCH: usize = 64 << 10;

/// How long a batch waits for a permit of its mailbox before its worker is freed, and when it is tried again.
const MAX_PERMIT_WAIT: Duration = Duration::from_secs(5);
const PERMIT_RETRY_DELAY: Duration = Duration::from_secs(2);

/// When messages of a mailbox are tried again that this process cannot open: its provider is not configured here, or its
/// tenant was switched off this moment.
const UNOPENED_RETRY_DELAY: Duration = Duration::from_secs(60);

/// When the bytes are asked for again that blob storage could not take.
const BLOB_RETRY_DELAY: Duration = Duration::from_secs(10);

const OVERSIZED: &str = "the message is larger than limits.message_size";

impl FetchEmails {
    /// Splits messages into batches by count and size; a large message is alone.
    pub fn batches(mailbox: MailboxId, wanted: &[&SeenMessage]) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::new();
        let mut bytes = 0;
        for seen in wanted {
            let size = seen.size_bytes.unwrap_or(ASSUMED_MESSAGE_BYTES);
            match batches.last_mut() {
                Some(last) if last.messages.len() < MAX_BATCH_MESSAGES && bytes + size <= MAX_BATCH_BYTES => {
                    last.messages.push(seen.message.clone());
                    bytes += size;
                }
                _ => {
                    batches.push(Self { mailbox, messages: vec![seen.message.clone()] });
                    bytes = size;
                }
            }
        }
        batches
    }
}

impl Syncer {
    /// Fetches, parses and stores the messages of a batch.
    pub(crate) async fn fetch(&self, ctx: &JobContext, job: FetchEmails) -> Result<Completion, JobError> {
        let store = self.engine.store.tenant(ctx.tenant());
        let session = match self.open(ctx.tenant(), job.mailbox).await {
            Ok(Some(session)) => session,
            Ok(None) => return park_or_drop(&store, job.mailbox).await,
            Err(e) => return Err(unopened(ctx, job.mailbox, e)),
        };
        let queued = store.list_queued_messages(job.mailbox, job.messages.clone()).await?;
        if queued.is_empty() {
            return Ok(Completion::Done);
        }
        if queued.len() > 1 && (ctx.job.attempt > 0 || ctx.job.is_suspect) {
            // A message of it failed, or crashed the process: alone, a bad message harms only itself.
            return split_into_singles(ctx, &queued, job.mailbox);
        }
        if ctx.job.attempt >= MAX_FETCH_ATTEMPTS {
            let message = "the message could not be stored; see the attempts before".to_owned();
            return Ok(give_up(&store, job.mailbox, &queued, "attempts", message));
        }
        if let Some(trouble) = self.find_disk_trouble().await {
            return Err(self.wait_for_storage(&store, job.mailbox, trouble).await?);
        }
        let mailbox = (session.mailbox.id, session.mailbox.provider);
        let Some(permit) = self.fetch_limiter.acquire(mailbox, ctx.job.lane, MAX_PERMIT_WAIT).await else {
            return Err(JobError::Deferred(PERMIT_RETRY_DELAY));
        };
        let (outcome, failures) = self.fetch_from(ctx, &session, &queued).await;
        drop(permit);
        ctx.report_progress();
        if let Some(e) = &failures.batch_error {
            let mut unit = store.write();
            self.record_pause(&mut unit, &session.mailbox, e);
            unit.commit().await?;
        }
        if let Some(message) = &failures.spool_error {
            return Err(JobError::Storage { fault: StorageFault::Possible, message: message.clone() });
        }
        let has_messages = !outcome.messages.is_empty();
        let placed = self.record_placements(ctx, &store, session.mailbox.id, &queued, outcome).await?;
        if has_messages && placed.messages.is_empty() && failures.is_none() {
            // None of them is in its folder any more, and some may be in another one.
            let mut unit = ctx.write();
            enqueue(ctx, &mut unit, job, ctx.job.lane, StartTime::Now)?;
            return Ok(Completion::Commit(unit));
        }
        self.store(ctx, &store, &session, &queued, placed, failures).await
    }

    async fn fetch_from(
        &self,
        ctx: &JobContext,
        session: &MailboxSession,
        queued: &[QueuedMessage],
    ) -> (FetchOutcome, FetchFailures) {
        let wanted: Vec<FetchRequest> = queued.iter().map(QueuedMessage::fetch_request).collect();
        let binds_by_content = self.binds_by_content(session);
        let memory = self.memory_budget.reservation(session.mailbox.provider, ctx.job.lane);
        let mut collector = MessageCollector::new(&self.engine, ctx, memory, binds_by_content, queued);
        let call = session.connector.fetch(&session.account, &wanted, &mut collector);
        let outcome = self.gateway.make_fetch(&session.target, ctx.job.lane, call).await;
        let MessageCollector { messages, placements, message_errors, bytes, oversized, spool_error, memory, .. } =
            collector;
        ctx.hold_until_settled(memory);
        self.gateway.spend_bytes(&session.target, bytes).await;
        // A message above our own size limit says nothing about the provider.
        let batch_error = outcome.err().filter(|_| oversized.is_none());
        (FetchOutcome { messages, placements }, FetchFailures { message_errors, oversized, spool_error, batch_error })
    }

    /// Returns why nothing must be fetched now: there is no room for it on our own disk. While blob storage alone is away,
    /// messages are fetched and stored without their bytes.
    async fn find_disk_trouble(&self) -> Option<StorageTrouble> {
        self.engine.storage_trouble()?;
        self.engine.check_storage().await.filter(|trouble| trouble.part == StoragePart::Disk)
    }

    /// Records why nothing comes, and returns the error that puts the job off.
    async fn wait_for_storage(
        &self,
        store: &TenantStore,
        mailbox: MailboxId,
        trouble: StorageTrouble,
    ) -> Result<JobError, JobError> {
        let mut unit = store.write();
        self.record_storage_pause(&mut unit, mailbox, &trouble);
        unit.commit().await?;
        Ok(trouble.into_job_error(self.engine.store.clock().now()))
    }

    fn record_storage_pause(&self, unit: &mut TenantUnit, mailbox: MailboxId, trouble: &StorageTrouble) {
        let wait = trouble.wait(self.engine.store.clock().now());
        if wait >= MIN_RECORDED_PAUSE {
            unit.record_pause(mailbox, wait, trouble.reason());
        }
    }

    /// Stores the messages that came whole. The others are recorded as gone or failed, or retried by a job of their own.
    async fn store(
        &self,
        ctx: &JobContext,
        store: &TenantStore,
        session: &MailboxSession,
        queued: &[QueuedMessage],
        placed: PlacedBatch,
        failures: FetchFailures,
    ) -> Result<Completion, JobError> {
        let PlacedBatch { messages, versions } = placed;
        let mailbox = session.mailbox.id;
        let mut missing = failures.missing(queued, &messages);
        if let Some(message) = &failures.oversized {
            if queued.len() == 1 {
                return Ok(give_up(store, mailbox, queued, "message_size", OVERSIZED.to_owned()));
            }
            missing.retry.retain(|id| id != message);
        }
        if messages.is_empty() && missing.gone.is_empty() {
            if let Some(e @ ConnectorError::Unauthorized(_)) = &failures.batch_error {
                let mut unit = store.write();
                let change = states::mark_needs_reauth(&mut unit, &session.mailbox, &e.to_string());
                unit.commit().await?;
                states::log(change);
                // Then it is parked, unless the credentials were replaced meanwhile.
                return Err(JobError::Deferred(PERMIT_RETRY_DELAY));
            }
            if queued.len() > 1 && failures.batch_error.is_none() {
                return split_into_singles(ctx, queued, mailbox);
            }
            if ctx.job.attempt + 1 < MAX_FETCH_ATTEMPTS || failures.is_transient() {
                return Err(match (&failures.batch_error, &missing.error) {
                    // An error of a single message concerns that message, so an attempt is spent.
                    (None, Some(e @ ConnectorError::Unavailable(_))) => {
                        JobError::Failed { class: "unavailable", message: e.to_string() }
                    }
                    (Some(e), _) | (None, Some(e)) => job_error(e, ctx),
                    (None, None) => no_messages_error(),
                });
            }
            return Ok(give_up(store, mailbox, queued, missing.class(), missing.reason()));
        }
        if !missing.gone.is_empty() && !mark_gone(ctx, store, mailbox, &missing.gone).await? {
            missing.retry.extend(missing.gone.into_iter().map(|gone| gone.message));
        }
        let (mut unit, is_incomplete) = if messages.is_empty() {
            (store.write(), false)
        } else {
            let batch = self.engine.prepare(session.mailbox.clone(), messages).await?;
            count_messages(session.mailbox.provider, &batch);
            batch.into_unit()
        };
        if !versions.is_empty() {
            unit.expect_placements_version(mailbox, versions);
        }
        if let Some(user) = user_of(&session.mailbox) {
            // If the address has passed to another person meanwhile, this is that person's mail.
            unit.expect_impersonated_user(mailbox, user);
        }
        let lane = ctx.job.lane;
        if !missing.retry.is_empty() {
            enqueue(ctx, &mut unit, FetchEmails { mailbox, messages: missing.retry }, lane, StartTime::Now)?;
        }
        if let Some(message) = failures.oversized {
            // Alone, it becomes a dead letter.
            enqueue(ctx, &mut unit, FetchEmails { mailbox, messages: vec![message] }, lane, StartTime::Now)?;
        }
        if is_incomplete {
            if let Some(trouble) = self.engine.storage_trouble() {
                self.record_storage_pause(&mut unit, mailbox, &trouble);
            }
            unit.enqueue(vec![RetryBlobs::request(self.engine.store.clock(), StartTime::In(BLOB_RETRY_DELAY))?]);
        }
        Ok(Completion::Commit(unit))
    }
}

fn count_messages(provider: Provider, batch: &PreparedBatch) {
    let (new, duplicates) = batch.counts();
    metrics::counter!(catalogue::EMAILS_INGESTED, "provider" => provider.as_str()).increment(new);
    metrics::counter!(catalogue::SYNC_DUPLICATES).increment(duplicates);
}

/// Records messages as gone. Returns `false` if a listing has recorded one of them since it was fetched, which is newer:
/// they are fetched once more.
async fn mark_gone(
    ctx: &JobContext,
    store: &TenantStore,
    mailbox: MailboxId,
    gone: &[QueuedMessage],
) -> Result<bool, JobError> {
    let mut unit = store.write();
    unit.lock_sync(mailbox);
    unit.guard_job(&ctx.job);
    unit.expect_placements_version(
        mailbox,
        gone.iter().map(|gone| (gone.message.clone(), gone.placements_version)).collect(),
    );
    unit.record_missing(mailbox, gone.iter().flat_map(|gone| &gone.placements));
    match unit.commit().await {
        Err(StoreError::Precondition(Precondition::PlacementsChanged)) => Ok(false),
        committed => Ok(committed.map(|_| true)?),
    }
}

/// Returns the error of a job whose mailbox cannot be opened, for want of its key or its secret. That says nothing about the
/// messages, so they spend no attempt; the syncs of the mailbox say what is wrong.
fn unopened(ctx: &JobContext, mailbox: MailboxId, e: anyhow::Error) -> JobError {
    tracing::warn!(tenant.id = %ctx.tenant(), mailbox.id = %mailbox, error = redact_for_log(&format!("{e:#}")), "mailbox not opened; its messages wait");
    match JobError::from(e) {
        certain @ JobError::Storage { fault: StorageFault::Certain, .. } => certain,
        _ => JobError::Waiting {
            delay: OPERATOR_RETRY_DELAY,
            reason: "its mailbox cannot be opened; its state says why".to_owned(),
        },
    }
}

/// Parks the job of a mailbox that is paused or needs a person, until its state changes. Ends the job of one that is
/// disconnected or gone, or whose owner has left, perhaps for ever: on their return the missing messages are requested
/// again.
async fn park_or_drop(store: &TenantStore, mailbox: MailboxId) -> Result<Completion, JobError> {
    let found = store.find_mailbox(&mailbox.to_string()).await?;
    let Some(mailbox) = found.filter(|found| found.is_active && found.state != MailboxState::Disconnected) else {
        return Ok(Completion::Done);
    };
    if mailbox.is_sync_enabled() {
        return Err(JobError::Deferred(UNOPENED_RETRY_DELAY));
    }
    let mut unit = store.write();
    unit.expect_mailbox(mailbox.id, mailbox.version);
    let reason = format!("its mailbox is {}", mailbox.state.as_str());
    Ok(Completion::Park { unit, on: mailbox.id.to_string(), reason })
}

/// Ends the job of a message that cannot be stored: both the message and the job say why.
fn give_up(
    store: &TenantStore,
    mailbox: MailboxId,
    queued: &[QueuedMessage],
    class: &'static str,
    message: String,
) -> Completion {
    let mut unit = store.write();
    unit.fail_messages(mailbox, queued.iter().map(|queued| queued.message.clone()).collect(), &message);
    Completion::GiveUp { unit, class, message }
}

/// Returns the user that our app impersonates by address, if it does: the address may be another person's tomorrow.
fn user_of(mailbox: &Mailbox) -> Option<&str> {
    let connection = &mailbox.settings.connection;
    let is_by_address = mailbox.provider.capabilities().identifies_users_by_address && connection["app_only"] == true;
    connection["user"].as_str().filter(|_| is_by_address)
}

/// Returns the memory that a message is expected to take.
fn expected_memory(queued: &QueuedMessage) -> u64 {
    in_memory(queued.size_bytes.unwrap_or(ASSUMED_MESSAGE_BYTES))
}

/// Returns the part of a message that is held in memory; a longer one goes through the spool.
fn in_memory(bytes: u64) -> u64 {
    bytes.min(SPOOL_ABOVE_BYTES)
}

fn no_messages_error() -> JobError {
    JobError::Failed { class: "protocol", message: "the provider answered without the messages".to_owned() }
}

fn provider_id(message: &IncomingMessage) -> Option<String> {
    match &message.source {
        MessageSource::Provider(fetched) => Some(fetched.message.clone()),
        _ => None,
    }
}

fn enqueue(
    ctx: &JobContext,
    unit: &mut TenantUnit,
    job: FetchEmails,
    lane: Lane,
    when: StartTime,
) -> Result<(), JobError> {
    let job = ctx.follow_up(&job).map_err(anyhow::Error::from)?;
    unit.enqueue(vec![NewJob { lane, when, ..job }]);
    Ok(())
}

fn split_into_singles(ctx: &JobContext, queued: &[QueuedMessage], mailbox: MailboxId) -> Result<Completion, JobError> {
    let mut unit = ctx.write();
    for queued in queued {
        let job = FetchEmails { mailbox, messages: vec![queued.message.clone()] };
        enqueue(ctx, &mut unit, job, ctx.job.lane, StartTime::Now)?;
    }
    Ok(Completion::Commit(unit))
}

/// The errors of a batch.
struct FetchFailures {
    /// A message above `limits.message_size`.
    oversized: Option<String>,
    /// Why our own disk did not take a message.
    spool_error: Option<String>,
    message_errors: BTreeMap<String, ConnectorError>,
    batch_error: Option<ConnectorError>,
}

/// The messages of a batch that the provider did not return.
struct MissingMessages {
    gone: Vec<QueuedMessage>,
    retry: Vec<String>,
    error: Option<ConnectorError>,
}

impl FetchFailures {
    fn missing(&self, queued: &[QueuedMessage], fetched: &[IncomingMessage]) -> MissingMessages {
        let fetched: Vec<String> = fetched.iter().filter_map(provider_id).collect();
        let mut missing = MissingMessages { gone: Vec::new(), retry: Vec::new(), error: None };
        for queued in queued.iter().filter(|queued| !fetched.contains(&queued.message)) {
            match self.message_errors.get(&queued.message) {
                Some(ConnectorError::Gone) => missing.gone.push(queued.clone()),
                error => {
                    missing.error = missing.error.or_else(|| error.cloned());
                    missing.retry.push(queued.message.clone());
                }
            }
        }
        missing
    }

    fn is_none(&self) -> bool {
        self.oversized.is_none() && self.message_errors.is_empty() && self.batch_error.is_none()
    }

    /// Returns whether the provider as a whole is unavailable or limited, which says nothing about a message.
    fn is_transient(&self) -> bool {
        use ConnectorError::{AppRejected, RateLimited, Throttled, Unavailable};
        matches!(self.batch_error, Some(Throttled { .. } | RateLimited(_) | Unavailable(_) | AppRejected(_)))
    }
}

impl MissingMessages {
    fn class(&self) -> &'static str {
        match self.error {
            Some(ConnectorError::Unavailable(_)) => "unavailable",
            Some(ConnectorError::Gone) => "gone",
            _ => "protocol",
        }
    }

    fn reason(&self) -> String {
        self.error.as_ref().map_or_else(|| "the provider did not return the message".to_owned(), ToString::to_string)
    }
}

/// Receives messages into memory or the spool. One that breaks off never becomes a message.
struct MessageCollector {
    ctx: JobContext,
    memory: MemoryReservation,
    spool: Spool,
    max_message_bytes: u64,
    /// A message above `limits.message_size`.
    oversized: Option<String>,
    /// Why our own disk did not take a message.
    spool_error: Option<String>,
    /// All bytes received, including those of messages that broke off.
    bytes: u64,
    binds_by_content: bool,
    queued: BTreeMap<String, QueuedMessage>,
    placements: PlacementsByMessage,
    current: Option<(String, SpoolBuffer)>,
    messages: Vec<IncomingMessage>,
    message_errors: BTreeMap<String, ConnectorError>,
}

impl MessageCollector {
    fn new(
        engine: &Engine,
        ctx: &JobContext,
        memory: MemoryReservation,
        binds_by_content: bool,
        queued: &[QueuedMessage],
    ) -> Self {
        Self {
            ctx: ctx.clone(),
            memory,
            spool: Spool { message_bytes: SPOOL_ABOVE_BYTES as usize, ..engine.spool.clone() },
            max_message_bytes: engine.limits.message_bytes,
            oversized: None,
            spool_error: None,
            bytes: 0,
            binds_by_content,
            queued: queued.iter().map(|queued| (queued.message.clone(), queued.clone())).collect(),
            placements: BTreeMap::new(),
            current: None,
            messages: Vec::new(),
            message_errors: BTreeMap::new(),
        }
    }
}

impl MessageSink for MessageCollector {
    fn reserve<'a>(&'a mut self, messages: &'a [&'a str]) -> ConnectorFuture<'a, ()> {
        let bytes = messages.iter().filter_map(|message| self.queued.get(*message)).map(expected_memory).sum();
        let Self { ctx, memory, .. } = self;
        Box::pin(memory.reserve(bytes, || ctx.report_progress()))
    }

    fn begin(&mut self, message: &str) {
        // Messages of unknown size may add up.
        let mut draft = if self.bytes > LARGE_BATCH_BYTES {
            Spool { message_bytes: SPOOL_ABOVE_BYTES_IN_LARGE_BATCH, ..self.spool.clone() }.buffer()
        } else {
            self.spool.buffer()
        };
        // A false size costs nothing for long: a batch is small, and counted by the same sizes.
        draft.expect(self.queued.get(message).and_then(|queued| queued.size_bytes).unwrap_or(0).min(MAX_BATCH_BYTES));
        self.current = Some((message.to_owned(), draft));
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.ctx.report_progress();
        let Some((message, draft)) = &mut self.current else { return Ok(()) };
        if draft.len() + bytes.len() as u64 > self.max_message_bytes {
            self.oversized = Some(message.clone());
            return Err(std::io::Error::other(OVERSIZED));
        }
        draft
            .push(bytes)
            .inspect_err(|e| self.spool_error = Some(format!("cannot write to the spool of the data folder: {e}")))
    }

    fn end(&mut self, facts: MessageMetadata) -> std::io::Result<()> {
        let Some((message, draft)) = self.current.take() else { return Ok(()) };
        // Only messages that were requested, and each once.
        let Some(queued) = self.queued.remove(&message) else { return Ok(()) };
        self.memory.release(expected_memory(&queued).saturating_sub(in_memory(draft.len())));
        if let Some(placements) = facts.placements {
            self.placements.insert(message.clone(), placements);
        }
        self.messages.push(IncomingMessage {
            raw: draft.finish(),
            // The listed time holds for providers that tell it only in listings.
            received_at: facts.received_at.or(queued.received_at),
            origin: format!("message {message}"),
            source: MessageSource::Provider(FetchedMessage {
                message,
                binds_by_content: self.binds_by_content,
                revision: facts.revision,
                listed_revision: queued.revision,
                thread: facts.thread,
                is_backfill: queued.is_backfill,
            }),
        });
        Ok(())
    }

    fn fail(&mut self, message: &str, error: ConnectorError) {
        self.current = None;
        self.memory.release(self.queued.get(message).map_or(0, expected_memory));
        self.message_errors.insert(message.to_owned(), error);
    }
}
