//! Writes the packs of a batch: blobs that the tenant does not have yet become durable before any row references them.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use content::spool::{Spool, SpoolableBytes, SpooledBytes};
use domain::{MessageLimits, PackId, Sha256, redact_for_log};
use jiff::Timestamp;
use store::blobs::{Blobs, PackBuilder, PackMember};
use store::sql::ingest::NewEmail;
use store::sql::mailboxes::Mailbox;
use store::{StorageFault, StoreError, TenantStore};

use super::parsed_message::ParsedMessage;
use super::{HashedMessage, MessageSource};
use crate::Engine;

/// Decoded bytes that are held before they go into a pack, and the size at which a pack is written and another begun. A
/// batch of ordinary mail stays below it; archives that unpack to many times their size must not add up.
const PACK_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct WrittenPack {
    pub id: PackId,
    pub size_bytes: u64,
    pub members: Vec<PackMember>,
}

/// A batch whose bytes are durable.
#[derive(Default)]
pub(super) struct PackedBatch {
    pub emails: Vec<NewEmail>,
    pub packs: Vec<WrittenPack>,
    /// Blobs that the tenant had already.
    pub shared: HashSet<Sha256>,
    /// Blobs that blob storage did not take, because it is unavailable.
    pub lost: HashSet<Sha256>,
    /// Whether its messages come from a provider, where they can be fetched again without a person.
    is_fetched: bool,
}

impl Engine {
    pub(super) async fn parse_and_pack(
        &self,
        store: &TenantStore,
        mailbox: &Arc<Mailbox>,
        new: Vec<HashedMessage>,
    ) -> anyhow::Result<PackedBatch> {
        let is_fetched = new.iter().any(|new| matches!(new.message.source, MessageSource::Provider(_)));
        let mut packed = PackedBatch { is_fetched, ..PackedBatch::default() };
        if new.is_empty() {
            return Ok(packed);
        }
        let mut announced = announce_pack(store);
        let mut remaining = new.into_iter();
        let mut builder = PackBuilder::new()?;
        while remaining.len() > 0 {
            let (limits, spool) = (self.limits.clone(), self.spool.clone());
            let (now, mailbox) = (self.store.clock().now(), mailbox.clone());
            let is_large =
                remaining.as_slice().iter().any(|hashed| matches!(hashed.message.raw, SpoolableBytes::Spooled(_)));
            let parse = move || parse_next(remaining, &mailbox, &limits, &spool, now);
            let parsed = if is_large { self.cpu.run_large(parse).await? } else { self.cpu.run(parse).await? };
            let (parsed, rest) = parsed.context("parsing a message that is in the spool of the data folder")?;
            remaining = rest;
            let hashes: Vec<Sha256> = parsed.iter().flat_map(ParsedMessage::blob_hashes).collect();
            let stored = Arc::new(store.find_stored_blobs(hashes).await.context("looking up stored blobs")?);
            let known = stored.clone();
            let filled = self.cpu.run(move || pack_unstored_blobs(builder, parsed, &known)).await??;
            packed.emails.extend(filled.emails);
            packed.shared.extend(stored.iter());
            builder = filled.builder;
            for blob in filled.large {
                self.write_large(store, blob, &mut packed).await?;
            }
            if builder.size() >= PACK_BYTES {
                let full = std::mem::replace(&mut builder, PackBuilder::new()?);
                let next = announce_pack(store);
                self.write_pack(store, std::mem::replace(&mut announced, next), full, &mut packed).await?;
            }
        }
        self.write_pack(store, announced, builder, &mut packed).await?;
        Ok(packed)
    }

    async fn write_pack(
        &self,
        store: &TenantStore,
        announced: PackAnnouncement,
        builder: PackBuilder,
        packed: &mut PackedBatch,
    ) -> anyhow::Result<()> {
        let id = announced.await.context("announcing a pack")?.context("announcing a pack")?;
        let Some(pack) = builder.finish() else {
            return store.withdraw_pack(id).await.context("withdrawing an empty pack");
        };
        if packed.is_fetched && self.are_blobs_away().await {
            packed.lost.extend(pack.members.iter().map(|member| member.sha256));
            return store.withdraw_pack(id).await.context("withdrawing a pack");
        }
        let size_bytes = pack.bytes.len() as u64;
        match self.blobs.write(&Blobs::pack_key(store.id, id), pack.bytes).await {
            Ok(()) => packed.packs.push(WrittenPack { id, size_bytes, members: pack.members }),
            Err(e) if self.is_blob_outage(&e, packed.is_fetched).await => {
                tracing::warn!(tenant.id = %store.id, error = redact_for_log(&e), "blob storage unavailable; emails are stored without their bytes");
                packed.lost.extend(pack.members.iter().map(|member| member.sha256));
            }
            Err(e) => return Err(e).context("writing a pack"),
        }
        Ok(())
    }

    /// Writes a blob that is too large for memory as the only member of a pack.
    async fn write_large(
        &self,
        store: &TenantStore,
        blob: SpooledBytes,
        packed: &mut PackedBatch,
    ) -> anyhow::Result<()> {
        if packed.packs.iter().flat_map(|pack| &pack.members).any(|member| member.sha256 == blob.sha256) {
            return Ok(());
        }
        if packed.is_fetched && self.are_blobs_away().await {
            packed.lost.insert(blob.sha256);
            return Ok(());
        }
        let id = announce_pack(store).await.context("announcing a pack")?.context("announcing a pack")?;
        match self.blobs.write_stream(&Blobs::pack_key(store.id, id), blob.reader()).await {
            Ok(member) => {
                ensure!(
                    member.sha256 == blob.sha256,
                    "the spool gives back other bytes; check the disk of the data folder"
                );
                packed.packs.push(WrittenPack { id, size_bytes: member.stored_bytes, members: vec![member] });
            }
            Err(e) if self.is_blob_outage(&e, packed.is_fetched).await => {
                tracing::warn!(tenant.id = %store.id, error = redact_for_log(&e), "blob storage unavailable; an email is stored without its bytes");
                packed.lost.insert(blob.sha256);
            }
            Err(e) => return Err(e).context("writing a large blob"),
        }
        Ok(())
    }

    /// Returns whether blob storage was out of order and, if its pause is over, still is: then nothing is sent there.
    async fn are_blobs_away(&self) -> bool {
        self.storage_trouble().is_some() && self.check_blobs().await.is_some()
    }

    /// Returns whether a batch is to be stored without the bytes that this error has kept from being written. An import
    /// goes on only if blob storage cannot be reached, because anything else a person is told at once.
    async fn is_blob_outage(&self, e: &StoreError, is_fetched: bool) -> bool {
        if is_fetched {
            return e.storage_fault() == Some(StorageFault::Possible) && self.check_blobs().await.is_some();
        }
        matches!(e, StoreError::BlobsUnavailable(_))
    }

    /// Discards packs whose unit was refused. The collector would find them too, later.
    pub(super) async fn discard_packs(&self, store: &TenantStore, packs: &[WrittenPack]) {
        for pack in packs {
            if let Err(e) = self.discard_pack(store, pack.id).await {
                tracing::debug!(tenant.id = %store.id, pack.id = %pack.id, error = redact_for_log(&e), "pack not discarded; left to the collector");
            }
        }
    }

    /// Discards a pack, its row first: once that is dead, no row can reference the object.
    pub(crate) async fn discard_pack(&self, store: &TenantStore, id: PackId) -> Result<(), StoreError> {
        store.abandon_pack(id).await?;
        self.blobs.delete(&Blobs::pack_key(store.id, id)).await?;
        store.forget_dead_pack(id).await
    }
}

type PackAnnouncement = tokio::task::JoinHandle<Result<PackId, StoreError>>;

/// Announces a pack before it is filled: SQLite's one writer may be busy with the batch before, and waiting for it with
/// a full pack would delay the next commit too.
fn announce_pack(store: &TenantStore) -> PackAnnouncement {
    let store = store.clone();
    tokio::spawn(async move {
        let id = PackId::new(store.clock());
        store.announce_pack(id, &Blobs::pack_key(store.id, id)).await?;
        Ok(id)
    })
}

type RemainingMessages = std::vec::IntoIter<HashedMessage>;

/// Parses messages until enough bytes are held, and returns the remaining ones.
fn parse_next(
    mut remaining: RemainingMessages,
    mailbox: &Mailbox,
    limits: &MessageLimits,
    spool: &Spool,
    now: Timestamp,
) -> std::io::Result<(Vec<ParsedMessage>, RemainingMessages)> {
    let (mut parsed, mut held_bytes) = (Vec::new(), 0);
    while held_bytes < PACK_BYTES
        && let Some(hashed) = remaining.next()
    {
        let next = ParsedMessage::of(hashed, mailbox, limits, spool, now)?;
        held_bytes += next.blob_bytes();
        parsed.push(next);
    }
    Ok((parsed, remaining))
}

struct FilledPack {
    emails: Vec<NewEmail>,
    builder: PackBuilder,
    /// Blobs that are not stored yet and get a pack of their own.
    large: Vec<SpooledBytes>,
}

/// Adds blobs that are not stored yet to the pack, dropping each as soon as it is compressed.
fn pack_unstored_blobs(
    mut builder: PackBuilder,
    parsed: Vec<ParsedMessage>,
    stored: &HashSet<Sha256>,
) -> std::io::Result<FilledPack> {
    builder.reserve(parsed.iter().map(ParsedMessage::blob_bytes).sum::<usize>().min(PACK_BYTES));
    let (mut emails, mut large) = (Vec::with_capacity(parsed.len()), Vec::new());
    for parsed in parsed {
        for (sha256, blob) in parsed.blobs {
            match blob {
                _ if stored.contains(&sha256) => {}
                SpoolableBytes::InMemory(bytes) => builder.add(sha256, &bytes)?,
                SpoolableBytes::Spooled(spooled) => large.push(spooled),
            }
        }
        emails.push(parsed.email);
    }
    Ok(FilledPack { emails, builder, large })
}
