//! Turns fetched bytes into rows, a batch at a time. Safe to repeat: every write is keyed by content.

mod facts;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::Context;
use domain::{Flags, FolderId, Limits, PackId, Sha256};
use jiff::Timestamp;
use store::TenantStore;
use store::blobs::{Blobs, Member, Pack, PackBuilder};
use store::sql::ingest::{NewEmail, NewPlacement};
use store::sql::mailboxes::Mailbox;

use crate::Engine;
use facts::Parsed;

/// A message as it came from its source.
#[derive(Debug)]
pub struct Message {
    pub raw: Vec<u8>,
    pub folder: FolderId,
    pub flags: Flags,
    /// When the source says that it arrived.
    pub received_at: Option<Timestamp>,
}

/// A batch whose bytes are durable and whose rows are ready to be committed.
#[derive(Debug)]
pub struct Prepared {
    emails: Vec<NewEmail>,
    placements: Vec<NewPlacement>,
    pack: Option<Written>,
    messages: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Written {
    id: PackId,
    size_bytes: u64,
    members: Vec<Member>,
}

/// What a batch came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ingested {
    pub stored: u64,
    pub duplicates: u64,
    pub attachments: u64,
    /// Raw bytes, duplicates included.
    pub bytes: u64,
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
        let count = messages.len() as u64;
        let hashed = self.cpu.run(|| messages.into_iter().map(Hashed::of).collect::<Vec<_>>()).await?;
        let placements = distinct_placements(hashed.iter().map(|hashed| hashed.placement(&mailbox)).collect());

        let ids = hashed.iter().map(|hashed| hashed.provider_message_id.clone()).collect();
        let known = store.processed_messages(mailbox.id, ids).await.context("looking up known messages")?;
        let (limits, now) = (self.limits.clone(), self.store.clock().now());
        let parsed = self.cpu.run(move || parse_new(hashed, &known, &mailbox, &limits, now)).await?;

        let (emails, pack) = self.save_blobs(&store, parsed).await?;
        Ok(Prepared { emails, placements, pack, messages: count, bytes })
    }

    /// One unit, durable when it returns.
    pub async fn commit(&self, mailbox: &Mailbox, batch: Prepared) -> anyhow::Result<Ingested> {
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        if let Some(pack) = &batch.pack {
            unit.record_pack(pack.id, pack.size_bytes, &pack.members);
        }
        let recorded = (!batch.emails.is_empty()).then(|| unit.record_emails(batch.emails));
        unit.record_placements(batch.placements);
        let committed = unit.commit().await.context("storing a batch of emails")?;
        let stored = recorded.map_or(0, |ops| committed.changed(ops.emails));
        Ok(Ingested {
            stored,
            duplicates: batch.messages - stored,
            attachments: recorded.map_or(0, |ops| committed.changed(ops.attachments)),
            bytes: batch.bytes,
        })
    }

    /// Bytes before rows: what the tenant does not have yet goes into one pack, durable when this returns.
    async fn save_blobs(
        &self,
        store: &TenantStore,
        parsed: Vec<Parsed>,
    ) -> anyhow::Result<(Vec<NewEmail>, Option<Written>)> {
        let hashes: Vec<Sha256> = parsed.iter().flat_map(Parsed::blob_hashes).collect();
        let stored = store.stored_blobs(hashes).await.context("looking up stored blobs")?;
        let (emails, pack) = self.cpu.run(move || pack_new(parsed, &stored)).await??;
        let Some(pack) = pack else { return Ok((emails, None)) };
        let id = PackId::new(store.clock());
        let key = Blobs::pack_key(store.id, id);
        store.announce_pack(id, &key).await.context("announcing a pack")?;
        let size_bytes = pack.bytes.len() as u64;
        self.blobs.write(&key, pack.bytes).await.context("writing a pack")?;
        Ok((emails, Some(Written { id, size_bytes, members: pack.members })))
    }
}

impl Hashed {
    fn of(message: Message) -> Self {
        let sha256 = Sha256::of(&message.raw);
        Self { message, sha256, provider_message_id: format!("sha256:{sha256}") }
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

/// Parses what is neither stored nor met earlier in the same batch.
fn parse_new(
    hashed: Vec<Hashed>,
    known: &HashSet<String>,
    mailbox: &Mailbox,
    limits: &Limits,
    now: Timestamp,
) -> Vec<Parsed> {
    let mut seen: HashSet<Sha256> = HashSet::new();
    let is_new = |hashed: &Hashed| !known.contains(&hashed.provider_message_id) && seen.insert(hashed.sha256);
    let new: Vec<Hashed> = hashed.into_iter().filter(is_new).collect();
    new.into_iter().map(|hashed| Parsed::of(hashed, mailbox, limits, now)).collect()
}

/// Compresses what is not stored yet, letting go of each part as soon as it is in the pack.
fn pack_new(parsed: Vec<Parsed>, stored: &HashSet<Sha256>) -> std::io::Result<(Vec<NewEmail>, Option<Pack>)> {
    let bytes = parsed.iter().map(Parsed::blob_bytes).sum();
    let mut builder = PackBuilder::with_capacity(bytes)?;
    let mut emails = Vec::with_capacity(parsed.len());
    for parsed in parsed {
        for (sha256, bytes) in parsed.blobs {
            if !stored.contains(&sha256) {
                builder.add(sha256, &bytes)?;
            }
        }
        emails.push(parsed.email);
    }
    Ok((emails, builder.finish()))
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
