//! Turns fetched bytes into rows, a batch at a time. Safe to repeat: every write is keyed by content.

mod facts;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::Context;
use domain::{Flags, FolderId, Limits, PackId, Sha256};
use jiff::Timestamp;
use store::blobs::{Blobs, Member, PackBuilder};
use store::sql::ingest::{NewEmail, NewPlacement, Recorded};
use store::sql::mailboxes::Mailbox;
use store::{Committed, StoreError, TenantStore, TenantUnit};

use crate::Engine;
use facts::Parsed;

/// Decoded bytes that are held before they go into a pack, and the size at which a pack is written and another begun.
/// A batch of ordinary mail stays below it; containers that unpack to many times their size must not add up.
const PACK_BYTES: usize = 16 << 20;

/// A message as it came from its source.
#[derive(Debug)]
pub struct Message {
    pub raw: Vec<u8>,
    pub folder: FolderId,
    pub flags: Flags,
    /// When the source says that it arrived.
    pub received_at: Option<Timestamp>,
    /// Where it was found, for people.
    pub origin: String,
}

/// A batch whose bytes are durable and whose unit is ready to be committed.
#[derive(Debug)]
pub struct Prepared {
    unit: TenantUnit,
    recorded: Option<Recorded>,
    packs: Vec<Written>,
    messages: Vec<Remembered>,
    bytes: u64,
}

/// What is left of a message once its bytes are packed and its rows are in the unit: enough to try it again alone.
#[derive(Debug)]
struct Remembered {
    sha256: Sha256,
    folder: FolderId,
    flags: Flags,
    received_at: Option<Timestamp>,
    origin: String,
}

#[derive(Debug)]
struct Written {
    id: PackId,
    size_bytes: u64,
    members: Vec<Member>,
}

/// What a batch came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingested {
    pub stored: u64,
    pub duplicates: u64,
    pub attachments: u64,
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
}

impl Engine {
    /// Everything up to the commit: hash, leave out what is known, parse, and make the bytes durable.
    pub async fn prepare(&self, mailbox: Arc<Mailbox>, messages: Vec<Message>) -> anyhow::Result<Prepared> {
        let store = self.store.tenant(mailbox.tenant_id);
        let bytes = messages.iter().map(|message| message.raw.len() as u64).sum();
        let hashed = self.cpu.run(|| messages.into_iter().map(Hashed::of).collect::<Vec<_>>()).await?;
        let placements = distinct_placements(hashed.iter().map(|hashed| hashed.placement(&mailbox)).collect());
        let messages = hashed.iter().map(Hashed::remember).collect();

        let ids = hashed.iter().map(|hashed| hashed.provider_message_id.clone()).collect();
        let known = store.processed_messages(mailbox.id, ids).await.context("looking up known messages")?;
        let (emails, packs) = self.parse_and_pack(&store, &mailbox, only_new(hashed, &known)).await?;
        let (unit, recorded) = unit_of(&store, &packs, emails, &placements);
        Ok(Prepared { unit, recorded, packs, messages, bytes })
    }

    /// One unit, durable when it returns. If the database refuses it for what is in it, the messages are tried one by
    /// one: one bad message harms only itself.
    pub async fn commit(&self, mailbox: &Mailbox, batch: Prepared) -> anyhow::Result<Ingested> {
        let Prepared { unit, recorded, packs, messages, bytes } = batch;
        let mut ingested = Ingested { bytes, ..Ingested::default() };
        match unit.commit().await {
            Ok(committed) => ingested.count(&committed, recorded),
            Err(StoreError::Other(reason)) => {
                tracing::warn!("a batch is stored message by message: {reason}");
                self.commit_one_by_one(mailbox, &packs, &messages, &mut ingested).await?;
            }
            Err(e) => return Err(e).context("storing a batch of emails"),
        }
        let known = ingested.stored + ingested.refused.len() as u64;
        ingested.duplicates = (messages.len() as u64).saturating_sub(known);
        Ok(ingested)
    }

    /// The bytes first; then each message is read back and goes through the same steps as a batch of its own.
    async fn commit_one_by_one(
        &self,
        mailbox: &Mailbox,
        packs: &[Written],
        messages: &[Remembered],
        ingested: &mut Ingested,
    ) -> anyhow::Result<()> {
        let store = self.store.tenant(mailbox.tenant_id);
        unit_of(&store, packs, Vec::new(), &[]).0.commit().await.context("storing the bytes of a batch")?;
        let mailbox = Arc::new(mailbox.clone());
        for message in messages {
            let place = store.find_blob(message.sha256).await?.context("a blob was removed meanwhile")?;
            let raw = self.blobs.read(&place).await?;
            let alone = self.prepare(mailbox.clone(), vec![message.with(raw)]).await?;
            match alone.unit.commit().await {
                Ok(committed) => ingested.count(&committed, alone.recorded),
                Err(StoreError::Other(reason)) => {
                    let origin = &message.origin;
                    ingested
                        .refused
                        .push(format!("{origin} is not taken by the database ({reason}); please report this"));
                }
                Err(e) => return Err(e).context("storing an email"),
            }
        }
        Ok(())
    }

    /// Bytes before rows: what the tenant does not have yet goes into packs, durable when this returns.
    async fn parse_and_pack(
        &self,
        store: &TenantStore,
        mailbox: &Arc<Mailbox>,
        new: Vec<Hashed>,
    ) -> anyhow::Result<(Vec<NewEmail>, Vec<Written>)> {
        if new.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let (mut emails, mut packs) = (Vec::with_capacity(new.len()), Vec::new());
        let mut announced = announce_pack(store);
        let mut left = new.into_iter();
        let mut builder = PackBuilder::new()?;
        while left.len() > 0 {
            let (limits, now, mailbox) = (self.limits.clone(), self.store.clock().now(), mailbox.clone());
            let (parsed, rest) = self.cpu.run(move || parse_some(left, &mailbox, &limits, now)).await?;
            left = rest;
            let hashes: Vec<Sha256> = parsed.iter().flat_map(Parsed::blob_hashes).collect();
            let stored = store.stored_blobs(hashes).await.context("looking up stored blobs")?;
            let (packed, filled) = self.cpu.run(move || pack_some(builder, parsed, &stored)).await??;
            emails.extend(packed);
            builder = filled;
            if builder.size() >= PACK_BYTES {
                let full = std::mem::replace(&mut builder, PackBuilder::new()?);
                let next = announce_pack(store);
                packs.extend(self.write_pack(store, std::mem::replace(&mut announced, next), full).await?);
            }
        }
        packs.extend(self.write_pack(store, announced, builder).await?);
        Ok((emails, packs))
    }

    async fn write_pack(
        &self,
        store: &TenantStore,
        announced: Announced,
        builder: PackBuilder,
    ) -> anyhow::Result<Option<Written>> {
        let id = announced.await.context("announcing a pack")?.context("announcing a pack")?;
        let Some(pack) = builder.finish() else { return Ok(None) };
        let size_bytes = pack.bytes.len() as u64;
        self.blobs.write(&Blobs::pack_key(store.id, id), pack.bytes).await.context("writing a pack")?;
        Ok(Some(Written { id, size_bytes, members: pack.members }))
    }
}

type Announced = tokio::task::JoinHandle<Result<PackId, StoreError>>;

/// Begun before the pack is filled: SQLite's one writer may be busy with the batch before, and whoever waits for it with
/// a full pack in hand keeps the next commit waiting too.
fn announce_pack(store: &TenantStore) -> Announced {
    let store = store.clone();
    tokio::spawn(async move {
        let id = PackId::new(store.clock());
        store.announce_pack(id, &Blobs::pack_key(store.id, id)).await?;
        Ok(id)
    })
}

fn unit_of(
    store: &TenantStore,
    packs: &[Written],
    emails: Vec<NewEmail>,
    placements: &[NewPlacement],
) -> (TenantUnit, Option<Recorded>) {
    let mut unit = store.write();
    for pack in packs {
        unit.record_pack(pack.id, pack.size_bytes, &pack.members);
    }
    let recorded = (!emails.is_empty()).then(|| unit.record_emails(emails));
    unit.record_placements(placements);
    (unit, recorded)
}

impl Ingested {
    fn count(&mut self, committed: &Committed, recorded: Option<Recorded>) {
        if let Some(ops) = recorded {
            self.stored += committed.changed(ops.emails);
            self.attachments += committed.changed(ops.attachments);
        }
    }
}

impl Remembered {
    fn with(&self, raw: Vec<u8>) -> Message {
        Message {
            raw,
            folder: self.folder,
            flags: self.flags.clone(),
            received_at: self.received_at,
            origin: self.origin.clone(),
        }
    }
}

impl Hashed {
    fn of(message: Message) -> Self {
        let sha256 = Sha256::of(&message.raw);
        Self { message, sha256, provider_message_id: format!("sha256:{sha256}") }
    }

    fn remember(&self) -> Remembered {
        Remembered {
            sha256: self.sha256,
            folder: self.message.folder,
            flags: self.message.flags.clone(),
            received_at: self.message.received_at,
            origin: self.message.origin.clone(),
        }
    }

    fn placement(&self, mailbox: &Mailbox) -> NewPlacement {
        NewPlacement {
            mailbox: mailbox.id,
            folder: self.message.folder,
            provider_message_id: self.provider_message_id.clone(),
            provider_uid: self.provider_message_id.clone(),
            flags: self.message.flags.clone(),
        }
    }
}

/// What is neither stored nor met earlier in the same batch.
fn only_new(hashed: Vec<Hashed>, known: &HashSet<String>) -> Vec<Hashed> {
    let mut seen: HashSet<Sha256> = HashSet::new();
    let is_new = |hashed: &Hashed| !known.contains(&hashed.provider_message_id) && seen.insert(hashed.sha256);
    hashed.into_iter().filter(is_new).collect()
}

type Left = std::vec::IntoIter<Hashed>;

/// Parses until enough bytes are held; the rest waits until these are packed.
fn parse_some(mut left: Left, mailbox: &Mailbox, limits: &Limits, now: Timestamp) -> (Vec<Parsed>, Left) {
    let (mut parsed, mut held) = (Vec::new(), 0);
    while held < PACK_BYTES
        && let Some(hashed) = left.next()
    {
        let next = Parsed::of(hashed, mailbox, limits, now);
        held += next.blob_bytes();
        parsed.push(next);
    }
    (parsed, left)
}

/// Compresses what is not stored yet, letting go of each part as soon as it is in the pack.
fn pack_some(
    mut builder: PackBuilder,
    parsed: Vec<Parsed>,
    stored: &HashSet<Sha256>,
) -> std::io::Result<(Vec<NewEmail>, PackBuilder)> {
    builder.reserve(parsed.iter().map(Parsed::blob_bytes).sum::<usize>().min(PACK_BYTES));
    let mut emails = Vec::with_capacity(parsed.len());
    for parsed in parsed {
        for (sha256, bytes) in parsed.blobs {
            if !stored.contains(&sha256) {
                builder.add(sha256, &bytes)?;
            }
        }
        emails.push(parsed.email);
    }
    Ok((emails, builder))
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
