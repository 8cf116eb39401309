//! Turns fetched bytes into rows, a batch at a time. Safe to repeat: every write is keyed by content.

mod facts;
mod packs;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use content::spool::Data;
use domain::{AttachmentStatus, EmailId, Flags, FolderId, LedgerState, MailboxId, Sha256};
use jiff::Timestamp;
use store::failpoint::{self, Effect};
use store::sql::ingest::{NewEmail, NewPlacement, Recorded};
use store::sql::ledger::Known;
use store::sql::mailboxes::Mailbox;
use store::{Committed, StoreError, TenantStore, TenantUnit};

use crate::Engine;
use packs::{Packed, Written};

/// A batch is prepared again when what it relied on was removed meanwhile; each time with fresh eyes and a new pack, so
/// more than two rounds in a row take a collector that runs all the time.
const MOST_TRIES: u32 = 5;

/// A message as it came from its source. Cheap to clone: the bytes are shared.
#[derive(Debug, Clone)]
pub struct Message {
    pub raw: Data,
    pub source: Source,
    /// When the source says that it arrived.
    pub received_at: Option<Timestamp>,
    /// Where it was found, for people.
    pub origin: String,
}

/// Where a message comes from, and so what it is known by.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file in this folder, known by its bytes.
    File { folder: FolderId, flags: Flags },
    /// What is stored already of an email that lacks bytes.
    Stored { message: String },
    /// Fetched from its provider, which has said where it is.
    Provider(Fetched),
}

/// A message as its provider knows it.
#[derive(Debug, Clone)]
pub struct Fetched {
    pub message: String,
    /// Whether the same bytes under another id are the same email.
    pub binds_by_content: bool,
    /// Of these very bytes, where the provider tells it.
    pub revision: Option<String>,
    /// As it was listed when it was asked for.
    pub listed_revision: Option<String>,
    pub thread: Option<String>,
    pub is_backfill: bool,
}

/// A batch whose bytes are durable and whose unit is ready to be committed. It keeps its messages until then: if the
/// unit is refused, they are prepared once more.
#[derive(Debug)]
pub struct Prepared {
    unit: TenantUnit,
    recorded: Option<Recorded>,
    packs: Vec<Written>,
    messages: Vec<Message>,
    expected: Ingested,
}

impl Prepared {
    /// For who commits it with more; and whether some of its bytes are missing.
    pub fn into_unit(self) -> (TenantUnit, bool) {
        (self.unit, self.expected.incomplete > 0)
    }
}

/// What a batch came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingested {
    pub stored: u64,
    pub duplicates: u64,
    pub attachments: u64,
    /// Emails that are stored without some of their bytes, because blob storage was away.
    pub incomplete: u64,
    /// Raw bytes, duplicates included.
    pub bytes: u64,
    /// Messages that the database does not take, each with the reason.
    pub refused: Vec<String>,
}

/// A message with the hash that it is known by.
struct Hashed {
    message: Message,
    sha256: Sha256,
    provider_message_id: String,
    content_key: Sha256,
    /// Of an earlier try that is not done. An id is given once; a second one would stand beside the first.
    email: Option<EmailId>,
    /// It was stored with another text.
    is_revised: bool,
}

/// How committing a batch ended.
enum Attempt {
    Stored(Ingested),
    /// The database does not take what is in it.
    Refused {
        reason: Arc<str>,
        packs: Vec<Written>,
        messages: Vec<Message>,
    },
}

impl Engine {
    /// Everything up to the commit: hash, leave out what is known, parse, and make the bytes durable.
    pub async fn prepare(&self, mailbox: Arc<Mailbox>, messages: Vec<Message>) -> anyhow::Result<Prepared> {
        let given = messages.clone();
        let binds = mailbox.provider.binds_by_content();
        let hashed =
            self.cpu.run(move || given.into_iter().map(|message| Hashed::of(message, binds)).collect::<Vec<_>>());
        let hashed = hashed.await?;
        let placements = distinct_placements(hashed.iter().filter_map(|hashed| hashed.placement(&mailbox)).collect());
        let store = self.store.tenant(mailbox.tenant_id);
        let ids = hashed.iter().map(|hashed| hashed.provider_message_id.clone()).collect();
        let known = store.known_messages(mailbox.id, ids).await.context("looking up known messages")?;
        // These are repaired, not taken in: whoever removed one meanwhile has the last word.
        let repaired = those(&hashed, |source| matches!(source, Source::Stored { .. }));
        let mut new = only_new(hashed, &known);
        complete_others(&store, mailbox.id, &mut new).await?;
        let fetched = those(&new, |source| matches!(source, Source::Provider(_)));
        let listed: Vec<(String, Option<String>)> = new.iter().filter_map(Hashed::listed).collect();
        let revised: Vec<EmailId> = new.iter().filter(|new| new.is_revised).filter_map(|new| new.email).collect();
        let Packed { mut emails, packs, shared, lost } = self.parse_and_pack(&store, &mailbox, new).await?;
        let incomplete = emails.iter_mut().map(|email| leave_out(email, &lost)).filter(|is_incomplete| *is_incomplete);
        let expected = Ingested {
            incomplete: incomplete.count() as u64,
            stored: emails.len() as u64,
            attachments: emails.iter().map(|email| email.attachments.len() as u64).sum(),
            bytes: messages.iter().map(|message| message.raw.len()).sum(),
            ..Ingested::default()
        };
        let mut unit = store.write();
        if !repaired.is_empty() {
            unit.expect_failed(mailbox.id, repaired);
        }
        if !fetched.is_empty() {
            unit.share_sync(mailbox.id);
            unit.take_messages(mailbox.id, listed);
        }
        for pack in &packs {
            unit.record_pack(pack.id, pack.size_bytes, &pack.members);
        }
        unit.reprieve_blobs(shared);
        let recorded = (!emails.is_empty()).then(|| unit.record_emails(emails, &revised));
        if !placements.is_empty() {
            unit.record_placements(&placements);
        }
        if !fetched.is_empty() {
            unit.bind_places(mailbox.id, fetched);
        }
        Ok(Prepared { unit, recorded, packs, messages, expected })
    }

    /// One unit, durable when it returns. If the database refuses it for what is in it, the messages are tried one by
    /// one: one bad message harms only itself.
    pub async fn commit(&self, mailbox: &Arc<Mailbox>, batch: Prepared) -> anyhow::Result<Ingested> {
        match self.try_commit(mailbox, batch).await? {
            Attempt::Stored(ingested) => Ok(ingested),
            Attempt::Refused { reason, packs, messages } => {
                tracing::warn!("a batch is stored message by message: {reason}");
                self.commit_one_by_one(mailbox, &packs, messages).await
            }
        }
    }

    /// Prepares the batch again for as long as others remove what it relies on, or the database is away.
    async fn try_commit(&self, mailbox: &Arc<Mailbox>, mut batch: Prepared) -> anyhow::Result<Attempt> {
        let store = self.store.tenant(mailbox.tenant_id);
        let (mut tries, mut away_since) = (1, None);
        loop {
            let Prepared { unit, recorded, packs, messages, expected } = batch;
            failpoint::before(Effect::CommitBatch);
            match unit.commit().await {
                Ok(committed) => {
                    failpoint::after(Effect::CommitBatch);
                    return Ok(Attempt::Stored(expected.counted(&messages, &committed, recorded)));
                }
                Err(StoreError::Other(reason)) => return Ok(Attempt::Refused { reason, packs, messages }),
                // Its pack was given up because we slept too long, or a blob that it shares was collected.
                Err(StoreError::Precondition(why)) if tries < MOST_TRIES => {
                    tracing::debug!(tries, "a batch is prepared again: {why}");
                    self.discard_packs(&store, &packs).await;
                }
                Err(e @ (StoreError::Unavailable(_) | StoreError::Busy(_))) => {
                    self.wait_for_database(*away_since.get_or_insert_with(Instant::now), e).await?;
                    if self.is_committed(&store, &packs).await? {
                        return Ok(Attempt::Stored(expected.known(&messages)));
                    }
                }
                Err(e) => return Err(e).context("storing a batch of emails"),
            }
            let again = || self.prepare(mailbox.clone(), messages.clone());
            batch = self.patiently(again).await?;
            tries += 1;
        }
    }

    /// The connection broke and nobody knows how the commit ended: the pack tells, for it became live with the rest.
    async fn is_committed(&self, store: &TenantStore, packs: &[Written]) -> anyhow::Result<bool> {
        let Some(pack) = packs.first() else { return Ok(false) };
        self.patiently(|| async { Ok(store.is_live_pack(pack.id).await?) }).await
    }

    /// The bytes first; then each message goes through the same steps as a batch of its own.
    async fn commit_one_by_one(
        &self,
        mailbox: &Arc<Mailbox>,
        packs: &[Written],
        messages: Vec<Message>,
    ) -> anyhow::Result<Ingested> {
        let store = self.store.tenant(mailbox.tenant_id);
        self.patiently(|| async {
            let mut unit = store.write();
            for pack in packs {
                unit.record_pack(pack.id, pack.size_bytes, &pack.members);
            }
            match unit.commit().await {
                // Given up meanwhile, or recorded by a try that nobody answered: either way the next step finds out.
                Ok(_) | Err(StoreError::Precondition(_)) => Ok(()),
                Err(e) => Err(e).context("storing the bytes of a batch"),
            }
        })
        .await?;
        let mut total = Ingested::default();
        for message in messages {
            let (origin, bytes) = (message.origin.clone(), message.raw.len());
            let alone = self.patiently(|| self.prepare(mailbox.clone(), vec![message.clone()])).await?;
            match self.try_commit(mailbox, alone).await? {
                Attempt::Stored(ingested) => total.add(ingested),
                Attempt::Refused { reason, .. } => {
                    total.bytes += bytes;
                    total.refused.push(format!("{origin} is not taken by the database ({reason}); please report this"));
                }
            }
        }
        Ok(total)
    }
}

impl Ingested {
    pub fn add(&mut self, other: Self) {
        self.stored += other.stored;
        self.duplicates += other.duplicates;
        self.attachments += other.attachments;
        self.incomplete += other.incomplete;
        self.bytes += other.bytes;
        self.refused.extend(other.refused);
    }

    /// With what the database says that it changed.
    fn counted(self, messages: &[Message], committed: &Committed, recorded: Option<Recorded>) -> Self {
        let count = |ops: Recorded| (committed.changed(ops.emails), committed.changed(ops.attachments));
        let (stored, attachments) = recorded.map_or((0, 0), count);
        Self { stored, attachments, ..self }.known(messages)
    }

    fn known(self, messages: &[Message]) -> Self {
        Self { duplicates: (messages.len() as u64).saturating_sub(self.stored), ..self }
    }
}

impl Hashed {
    /// `binds`: mail of this provider's is known by its bytes.
    fn of(message: Message, binds: bool) -> Self {
        let sha256 = message.raw.sha256();
        let by_content = format!("sha256:{sha256}");
        let (provider_message_id, binds) = match &message.source {
            Source::File { .. } => (by_content, true),
            Source::Stored { message } => (message.clone(), binds || *message == by_content),
            Source::Provider(fetched) => (fetched.message.clone(), fetched.binds_by_content),
        };
        let content_key = if binds { sha256 } else { Sha256::of(provider_message_id.as_bytes()) };
        Self { message, sha256, provider_message_id, content_key, email: None, is_revised: false }
    }

    fn listed(&self) -> Option<(String, Option<String>)> {
        let Source::Provider(fetched) = &self.message.source else { return None };
        Some((fetched.message.clone(), fetched.listed_revision.clone()))
    }

    fn placement(&self, mailbox: &Mailbox) -> Option<NewPlacement> {
        let Source::File { folder, flags } = &self.message.source else { return None };
        Some(NewPlacement {
            mailbox: mailbox.id,
            folder: *folder,
            provider_message_id: self.provider_message_id.clone(),
            provider_uid: self.provider_message_id.clone(),
            flags: flags.clone(),
        })
    }
}

/// The messages that come from such a source, each once and in order.
fn those(hashed: &[Hashed], is_such: impl Fn(&Source) -> bool) -> Vec<String> {
    let such = hashed.iter().filter(|hashed| is_such(&hashed.message.source));
    let mut messages: Vec<String> = such.map(|hashed| hashed.provider_message_id.clone()).collect();
    messages.sort();
    messages.dedup();
    messages
}

/// What is neither stored nor met earlier in the same batch. Of a fetched message nothing is left when it is gone by now.
fn only_new(hashed: Vec<Hashed>, known: &HashMap<String, Known>) -> Vec<Hashed> {
    let mut seen: HashSet<(String, Sha256)> = HashSet::new();
    let is_new = |hashed: Hashed| {
        let known = known.get(&hashed.provider_message_id);
        let state = known.map(|known| known.state);
        let is_wanted = match hashed.message.source {
            Source::Provider(_) => {
                matches!(state, Some(LedgerState::Queued | LedgerState::Processing | LedgerState::Failed))
            }
            Source::File { .. } | Source::Stored { .. } => state != Some(LedgerState::Processed),
        };
        let email = known.and_then(|known| known.email);
        let is_revised = email.is_some()
            && match state {
                Some(LedgerState::Queued | LedgerState::Processing) => true,
                // What was stored without its bytes has another text by now.
                Some(LedgerState::Failed) => known.and_then(|known| known.raw_sha256) != Some(hashed.sha256),
                _ => false,
            };
        (is_wanted && seen.insert((hashed.provider_message_id.clone(), hashed.content_key))).then_some(Hashed {
            email,
            is_revised,
            ..hashed
        })
    };
    hashed.into_iter().filter_map(is_new).collect()
}

/// The same bytes may be stored in part, under the name of a message that is no more: who brings them now completes that.
async fn complete_others(store: &TenantStore, mailbox: MailboxId, new: &mut [Hashed]) -> anyhow::Result<()> {
    let contents: Vec<Sha256> = new.iter().filter(|new| new.email.is_none()).map(|new| new.content_key).collect();
    if contents.is_empty() {
        return Ok(());
    }
    let mut unfinished = store.unfinished_emails(mailbox, contents).await.context("looking up emails without bytes")?;
    for new in new.iter_mut().filter(|new| new.email.is_none()) {
        // The first of several; the others bind to the same email by their content.
        new.email = unfinished.remove(&new.content_key);
    }
    Ok(())
}

/// Bytes that did not get to blob storage are not named; a later try fills them in. Whether anything is missing.
fn leave_out(email: &mut NewEmail, lost: &HashSet<Sha256>) -> bool {
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

/// Placements of one message in one folder count once; the last flags win, as a second statement would have it.
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
