//! Turns fetched bytes into rows, a batch at a time. Safe to repeat: every write is keyed by content.

mod packs;
mod parsed_message;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use content::spool::SpoolableBytes;
use domain::metrics as catalogue;
use domain::{AttachmentStatus, EmailId, Flags, FolderId, LedgerState, MailboxId, Sha256, redact_for_log};
use jiff::Timestamp;
use store::failpoint::Effect;
use store::sql::ingest::{NewEmail, NewPlacement, RecordedOps};
use store::sql::ledger::LedgerEntry;
use store::sql::mailboxes::Mailbox;
use store::{CommitOutcome, StoreError, TenantStore, TenantUnit};

use crate::Engine;
use packs::{PackedBatch, WrittenPack};
pub(crate) use parsed_message::parse_and_tokenise;

/// Attempts per batch: it is prepared again when a blob that it relied on was collected meanwhile, each time from fresh
/// reads and with a new pack, so more than two attempts take a collector that runs all the time.
const MAX_ATTEMPTS: u32 = 5;

/// A message as it came from its source. Cheap to clone: the bytes are shared.
#[derive(Debug, Clone)]
pub struct IncomingMessage {
    pub raw: SpoolableBytes,
    pub source: MessageSource,
    /// When the source says that it arrived.
    pub received_at: Option<Timestamp>,
    /// Where the message was found, for people.
    pub origin: String,
}

/// Where a message comes from, which determines its id.
#[derive(Debug, Clone)]
pub enum MessageSource {
    /// A file in this folder, identified by its bytes.
    File { folder: FolderId, flags: Flags },
    /// The stored original of an email that lacks bytes.
    Stored { message: String },
    /// Fetched from its provider, whose placements are recorded already.
    Provider(FetchedMessage),
}

/// A message as its provider identifies it.
#[derive(Debug, Clone)]
pub struct FetchedMessage {
    pub message: String,
    /// Whether the same bytes under another id are the same email.
    pub binds_by_content: bool,
    /// The revision of these very bytes, where the provider tells it.
    pub revision: Option<String>,
    /// The revision that was listed when it was requested.
    pub listed_revision: Option<String>,
    pub thread: Option<String>,
    pub is_backfill: bool,
}

/// A batch whose bytes are durable and whose unit is ready to be committed. It keeps its messages until then: if the
/// unit is refused, they are prepared once more.
#[derive(Debug)]
pub struct PreparedBatch {
    unit: TenantUnit,
    recorded: Option<RecordedOps>,
    packs: Vec<WrittenPack>,
    messages: Vec<IncomingMessage>,
    expected: IngestReport,
}

impl PreparedBatch {
    /// Returns how many of its messages are new, and how many are stored already.
    pub fn counts(&self) -> (u64, u64) {
        let report = self.expected.clone().known(&self.messages);
        (report.stored, report.duplicates)
    }

    /// Returns the unit, to be committed with more operations, and whether some of its bytes are missing.
    pub fn into_unit(self) -> (TenantUnit, bool) {
        (self.unit, self.expected.incomplete > 0)
    }
}

/// The counts of an ingested batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IngestReport {
    pub stored: u64,
    pub duplicates: u64,
    pub attachments: u64,
    /// Emails that are stored without some of their bytes, because blob storage was unavailable.
    pub incomplete: u64,
    /// Raw bytes, duplicates included.
    pub bytes: u64,
    /// Messages that the database refuses, each with the reason.
    pub refused: Vec<String>,
}

/// A message with its hash and ids.
struct HashedMessage {
    message: IncomingMessage,
    sha256: Sha256,
    provider_message_id: String,
    content_key: Sha256,
    /// The email of an earlier unfinished attempt: a second id would make a second email.
    email: Option<EmailId>,
    /// It was stored with other bytes before.
    is_revised: bool,
}

/// The outcome of committing a batch.
enum CommitAttempt {
    Stored(IngestReport),
    /// The database refuses the content.
    Refused {
        reason: Arc<str>,
        packs: Vec<WrittenPack>,
        messages: Vec<IncomingMessage>,
    },
}

impl Engine {
    /// Does everything up to the commit: hashes, drops known messages, parses, and makes the bytes durable.
    pub async fn prepare(
        &self,
        mailbox: Arc<Mailbox>,
        messages: Vec<IncomingMessage>,
    ) -> anyhow::Result<PreparedBatch> {
        let started = Instant::now();
        let given = messages.clone();
        let is_identified_by_content = mailbox.provider.capabilities().identifies_messages_by_content;
        let hashed = self.cpu.run(move || {
            given.into_iter().map(|message| HashedMessage::of(message, is_identified_by_content)).collect::<Vec<_>>()
        });
        let hashed = hashed.await?;
        let placements = distinct_placements(hashed.iter().filter_map(|hashed| hashed.placement(&mailbox)).collect());
        let store = self.store.tenant(mailbox.tenant_id);
        let ids = hashed.iter().map(|hashed| hashed.provider_message_id.clone()).collect();
        let known = store.find_ledger_entries(mailbox.id, ids).await.context("looking up known messages")?;
        // These are repaired, not added: one that was removed meanwhile stays removed.
        let repaired = ids_from(&hashed, |source| matches!(source, MessageSource::Stored { .. }));
        let mut new = only_new(hashed, &known);
        let known_contents = complete_unfinished(&store, mailbox.id, &mut new).await?;
        let bound: Vec<String> = new.iter().filter_map(|new| new.imported_copy_of(&known_contents)).collect();
        let fetched = ids_from(&new, |source| matches!(source, MessageSource::Provider(_)));
        let listed: Vec<(String, Option<String>)> = new.iter().filter_map(HashedMessage::listed).collect();
        let revised: Vec<EmailId> = new.iter().filter(|new| new.is_revised).filter_map(|new| new.email).collect();
        let PackedBatch { mut emails, packs, shared, lost, .. } = self.parse_and_pack(&store, &mailbox, new).await?;
        let incomplete =
            emails.iter_mut().map(|email| mark_lost_blobs(email, &lost)).filter(|is_incomplete| *is_incomplete);
        let expected = IngestReport {
            incomplete: incomplete.count() as u64,
            stored: emails.len() as u64,
            attachments: emails.iter().map(|email| email.attachments.len() as u64).sum(),
            bytes: messages.iter().map(|message| message.raw.len()).sum(),
            ..IngestReport::default()
        };
        let mut unit = store.write();
        if !repaired.is_empty() {
            unit.expect_failed(mailbox.id, repaired);
        }
        if !fetched.is_empty() {
            unit.expect_unstored_messages(mailbox.id, listed);
        }
        for pack in &packs {
            unit.record_pack(pack.id, pack.size_bytes, &pack.members);
        }
        unit.keep_referenced_blobs(shared);
        let recorded = (!emails.is_empty()).then(|| unit.record_emails(emails, &revised));
        if !placements.is_empty() {
            unit.record_imported_placements(mailbox.id, &placements, bound);
        }
        if !fetched.is_empty() {
            unit.bind_placements(mailbox.id, fetched);
        }
        let seconds = started.elapsed().as_secs_f64();
        metrics::histogram!(catalogue::EMAIL_PROCESSING_SECONDS).record_many(seconds, expected.stored as usize);
        Ok(PreparedBatch { unit, recorded, packs, messages, expected })
    }

    /// Commits a batch as one unit, durable when it returns. If the database refuses its content, the messages are
    /// committed one by one: one bad message harms only itself.
    pub async fn commit(&self, mailbox: &Arc<Mailbox>, batch: PreparedBatch) -> anyhow::Result<IngestReport> {
        match self.try_commit(mailbox, batch).await? {
            CommitAttempt::Stored(ingested) => Ok(ingested),
            CommitAttempt::Refused { reason, packs, messages } => {
                tracing::warn!(tenant.id = %mailbox.tenant_id, mailbox.id = %mailbox.id, error = redact_for_log(&reason), "batch refused by the database; storing message by message");
                self.commit_one_by_one(mailbox, &packs, messages).await
            }
        }
    }

    /// Commits the batch, preparing it again while others remove what it relies on or the database is unavailable.
    async fn try_commit(&self, mailbox: &Arc<Mailbox>, mut batch: PreparedBatch) -> anyhow::Result<CommitAttempt> {
        let store = self.store.tenant(mailbox.tenant_id);
        let (mut attempt, mut unavailable_since) = (1, None);
        loop {
            let PreparedBatch { unit, recorded, packs, messages, expected } = batch;
            match unit.commit_at(Effect::CommitBatch).await {
                Ok(committed) => {
                    return Ok(CommitAttempt::Stored(expected.with_counts(&messages, &committed, recorded)));
                }
                Err(StoreError::Other(reason)) => return Ok(CommitAttempt::Refused { reason, packs, messages }),
                // Its pack was given up because we were suspended too long, or a blob that it shares was collected.
                Err(StoreError::Precondition(why)) if attempt < MAX_ATTEMPTS => {
                    tracing::debug!(tenant.id = %mailbox.tenant_id, mailbox.id = %mailbox.id, attempt, error = %why, "preparing batch again");
                    self.discard_packs(&store, &packs).await;
                }
                Err(e @ (StoreError::Unavailable(_) | StoreError::Busy(_))) => {
                    self.wait_for_database(*unavailable_since.get_or_insert_with(Instant::now), e).await?;
                    if self.is_committed(&store, &packs).await? {
                        return Ok(CommitAttempt::Stored(expected.known(&messages)));
                    }
                }
                Err(e) => return Err(e).context("storing a batch of emails"),
            }
            batch = self.with_database_retry(|| self.prepare(mailbox.clone(), messages.clone())).await?;
            attempt += 1;
        }
    }

    /// Returns whether a commit whose connection broke has succeeded: its pack became live with the rest.
    async fn is_committed(&self, store: &TenantStore, packs: &[WrittenPack]) -> anyhow::Result<bool> {
        let Some(pack) = packs.first() else { return Ok(false) };
        self.with_database_retry(|| async { Ok(store.is_live_pack(pack.id).await?) }).await
    }

    /// Commits the bytes first, then each message as a batch of its own.
    async fn commit_one_by_one(
        &self,
        mailbox: &Arc<Mailbox>,
        packs: &[WrittenPack],
        messages: Vec<IncomingMessage>,
    ) -> anyhow::Result<IngestReport> {
        let store = self.store.tenant(mailbox.tenant_id);
        self.with_database_retry(|| async {
            let mut unit = store.write();
            for pack in packs {
                unit.record_pack(pack.id, pack.size_bytes, &pack.members);
            }
            match unit.commit().await {
                // Given up meanwhile, or recorded by an attempt whose answer was lost: either way the next step finds
                // out.
                Ok(_) | Err(StoreError::Precondition(_)) => Ok(()),
                Err(e) => Err(e).context("storing the bytes of a batch"),
            }
        })
        .await?;
        let mut total = IngestReport::default();
        for message in messages {
            let (origin, bytes) = (message.origin.clone(), message.raw.len());
            let alone = self.with_database_retry(|| self.prepare(mailbox.clone(), vec![message.clone()])).await?;
            match self.try_commit(mailbox, alone).await? {
                CommitAttempt::Stored(ingested) => total.add(ingested),
                CommitAttempt::Refused { reason, .. } => {
                    total.bytes += bytes;
                    total.refused.push(format!("the database refuses {origin} ({reason}); please report this"));
                }
            }
        }
        Ok(total)
    }
}

impl IngestReport {
    pub fn add(&mut self, other: Self) {
        self.stored += other.stored;
        self.duplicates += other.duplicates;
        self.attachments += other.attachments;
        self.incomplete += other.incomplete;
        self.bytes += other.bytes;
        self.refused.extend(other.refused);
    }

    /// Returns the counts with the rows that the database changed.
    fn with_counts(
        self,
        messages: &[IncomingMessage],
        committed: &CommitOutcome,
        recorded: Option<RecordedOps>,
    ) -> Self {
        let (stored, attachments) = recorded.map_or((0, 0), |operations| {
            (committed.changed(operations.emails), committed.changed(operations.attachments))
        });
        Self { stored, attachments, ..self }.known(messages)
    }

    fn known(self, messages: &[IncomingMessage]) -> Self {
        Self { duplicates: (messages.len() as u64).saturating_sub(self.stored), ..self }
    }
}

impl HashedMessage {
    /// Hashes a message. `is_identified_by_content`: mail of this provider is identified by its bytes.
    fn of(message: IncomingMessage, is_identified_by_content: bool) -> Self {
        let sha256 = message.raw.sha256();
        let by_content = format!("sha256:{sha256}");
        let (provider_message_id, is_identified_by_content) = match &message.source {
            MessageSource::File { .. } => (by_content, true),
            MessageSource::Stored { message } => (message.clone(), is_identified_by_content || *message == by_content),
            MessageSource::Provider(fetched) => (fetched.message.clone(), fetched.binds_by_content),
        };
        let content_key = if is_identified_by_content { sha256 } else { Sha256::of(provider_message_id.as_bytes()) };
        Self { message, sha256, provider_message_id, content_key, email: None, is_revised: false }
    }

    fn listed(&self) -> Option<(String, Option<String>)> {
        let MessageSource::Provider(fetched) = &self.message.source else { return None };
        Some((fetched.message.clone(), fetched.listed_revision.clone()))
    }

    /// Returns the id of an imported message whose bytes another message of the mailbox has as well.
    fn imported_copy_of(&self, known_contents: &HashSet<Sha256>) -> Option<String> {
        let is_imported = matches!(self.message.source, MessageSource::File { .. });
        (is_imported && known_contents.contains(&self.content_key)).then(|| self.provider_message_id.clone())
    }

    fn placement(&self, mailbox: &Mailbox) -> Option<NewPlacement> {
        let MessageSource::File { folder, flags } = &self.message.source else { return None };
        Some(NewPlacement {
            mailbox: mailbox.id,
            folder: *folder,
            provider_message_id: self.provider_message_id.clone(),
            provider_uid: self.provider_message_id.clone(),
            flags: flags.clone(),
        })
    }
}

/// Returns the ids of messages from such a source, each once and in order.
fn ids_from(hashed: &[HashedMessage], is_such: impl Fn(&MessageSource) -> bool) -> Vec<String> {
    let such = hashed.iter().filter(|hashed| is_such(&hashed.message.source));
    let mut messages: Vec<String> = such.map(|hashed| hashed.provider_message_id.clone()).collect();
    messages.sort();
    messages.dedup();
    messages
}

/// Returns the messages that are neither stored nor earlier in the same batch. A fetched message that is gone by now is
/// dropped.
fn only_new(hashed: Vec<HashedMessage>, known: &HashMap<String, LedgerEntry>) -> Vec<HashedMessage> {
    let mut seen: HashSet<(String, Sha256)> = HashSet::new();
    let new = hashed.into_iter().filter_map(|hashed| {
        let known = known.get(&hashed.provider_message_id);
        let state = known.map(|known| known.state);
        let is_wanted = match hashed.message.source {
            MessageSource::Provider(_) => {
                matches!(state, Some(LedgerState::Queued | LedgerState::Processing | LedgerState::Failed))
            }
            MessageSource::File { .. } | MessageSource::Stored { .. } => state != Some(LedgerState::Processed),
        };
        let email = known.and_then(|known| known.email);
        let is_revised = email.is_some()
            && match state {
                Some(LedgerState::Queued | LedgerState::Processing) => true,
                // It was stored without its bytes, and has other ones by now.
                Some(LedgerState::Failed) => known.and_then(|known| known.raw_sha256) != Some(hashed.sha256),
                _ => false,
            };
        let is_new = is_wanted && seen.insert((hashed.provider_message_id.clone(), hashed.content_key));
        is_new.then_some(HashedMessage { email, is_revised, ..hashed })
    });
    new.collect()
}

/// Assigns messages to unfinished emails of the same content: the bytes may be stored in part under the id of a message
/// that is gone. Returns the contents that the mailbox knows.
async fn complete_unfinished(
    store: &TenantStore,
    mailbox: MailboxId,
    new: &mut [HashedMessage],
) -> anyhow::Result<HashSet<Sha256>> {
    let contents: Vec<Sha256> = new.iter().filter(|new| new.email.is_none()).map(|new| new.content_key).collect();
    if contents.is_empty() {
        return Ok(HashSet::new());
    }
    let mut unfinished = store.find_emails_by_content(mailbox, contents).await.context("looking up known contents")?;
    let known_contents = unfinished.keys().copied().collect();
    let emails = unfinished.values().copied().collect();
    let without_bytes = store.find_unfinished_emails(emails).await.context("looking up emails without bytes")?;
    unfinished.retain(|_, email| without_bytes.contains(email));
    for new in new.iter_mut().filter(|new| new.email.is_none()) {
        // The first of several; the others bind to the same email by content.
        new.email = unfinished.remove(&new.content_key);
    }
    Ok(known_contents)
}

/// Marks bytes that did not reach blob storage as missing; a later attempt fills them in. Returns whether any are.
fn mark_lost_blobs(email: &mut NewEmail, lost: &HashSet<Sha256>) -> bool {
    email.raw_is_stored = !lost.contains(&email.raw_sha256);
    let mut is_incomplete = !email.raw_is_stored;
    for attachment in &mut email.attachments {
        if attachment.status == AttachmentStatus::Stored && lost.contains(&attachment.sha256) {
            attachment.status = AttachmentStatus::Pending;
            is_incomplete = true;
        }
    }
    is_incomplete
}

/// Merges placements of one message in one folder; the last flags win, as with a second statement.
fn distinct_placements(placements: Vec<NewPlacement>) -> Vec<NewPlacement> {
    let mut by_place: HashMap<(FolderId, String), usize> = HashMap::new();
    let mut distinct: Vec<NewPlacement> = Vec::with_capacity(placements.len());
    for placement in placements {
        match by_place.get(&(placement.folder, placement.provider_uid.clone())) {
            Some(index) => distinct[*index] = placement,
            None => {
                by_place.insert((placement.folder, placement.provider_uid.clone()), distinct.len());
                distinct.push(placement);
            }
        }
    }
    distinct
}
