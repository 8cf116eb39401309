//! Bytes before rows: what the tenant does not have yet becomes durable, and only then is it named.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use content::spool::{Data, Spool, Spooled};
use domain::{Limits, PackId, Sha256};
use jiff::Timestamp;
use store::blobs::{Blobs, Member, PackBuilder};
use store::sql::ingest::NewEmail;
use store::sql::mailboxes::Mailbox;
use store::{StoreError, TenantStore};

use super::Hashed;
use super::facts::Parsed;
use crate::Engine;

/// Decoded bytes that are held before they go into a pack, and the size at which a pack is written and another begun.
/// A batch of ordinary mail stays below it; containers that unpack to many times their size must not add up.
const PACK_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Written {
    pub id: PackId,
    pub size_bytes: u64,
    pub members: Vec<Member>,
}

/// A batch with its bytes put away.
#[derive(Default)]
pub(super) struct Packed {
    pub emails: Vec<NewEmail>,
    pub packs: Vec<Written>,
    /// Blobs that the tenant had already.
    pub shared: HashSet<Sha256>,
    /// Blobs that blob storage did not take, because it is away.
    pub lost: HashSet<Sha256>,
}

impl Engine {
    pub(super) async fn parse_and_pack(
        &self,
        store: &TenantStore,
        mailbox: &Arc<Mailbox>,
        new: Vec<Hashed>,
    ) -> anyhow::Result<Packed> {
        let mut packed = Packed::default();
        if new.is_empty() {
            return Ok(packed);
        }
        let mut announced = announce_pack(store);
        let mut left = new.into_iter();
        let mut builder = PackBuilder::new()?;
        while left.len() > 0 {
            let (limits, spool) = (self.limits.clone(), self.spool.clone());
            let (now, mailbox) = (self.store.clock().now(), mailbox.clone());
            let is_large = left.as_slice().iter().any(|hashed| matches!(hashed.message.raw, Data::Spooled(_)));
            let parse = move || parse_some(left, &mailbox, &limits, &spool, now);
            let parsed = if is_large { self.cpu.run_large(parse).await? } else { self.cpu.run(parse).await? };
            let (parsed, rest) = parsed.context("parsing a message that is in the spool of the data folder")?;
            left = rest;
            let hashes: Vec<Sha256> = parsed.iter().flat_map(Parsed::blob_hashes).collect();
            let stored = Arc::new(store.stored_blobs(hashes).await.context("looking up stored blobs")?);
            let known = stored.clone();
            let filled = self.cpu.run(move || pack_some(builder, parsed, &known)).await??;
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
        announced: Announced,
        builder: PackBuilder,
        packed: &mut Packed,
    ) -> anyhow::Result<()> {
        let id = announced.await.context("announcing a pack")?.context("announcing a pack")?;
        let Some(pack) = builder.finish() else {
            return store.withdraw_pack(id).await.context("withdrawing an empty pack");
        };
        let size_bytes = pack.bytes.len() as u64;
        match self.blobs.write(&Blobs::pack_key(store.id, id), pack.bytes).await {
            Ok(()) => packed.packs.push(Written { id, size_bytes, members: pack.members }),
            Err(e @ StoreError::BlobsUnavailable(_)) => {
                tracing::warn!("{e}; emails are stored without their bytes until then");
                packed.lost.extend(pack.members.iter().map(|member| member.sha256));
            }
            Err(e) => return Err(e).context("writing a pack"),
        }
        Ok(())
    }

    /// A blob that is too large to be held becomes the one member of a pack of its own.
    async fn write_large(&self, store: &TenantStore, blob: Spooled, packed: &mut Packed) -> anyhow::Result<()> {
        let is_written = |pack: &Written| pack.members.iter().any(|member| member.sha256 == blob.sha256);
        if packed.packs.iter().any(is_written) {
            return Ok(());
        }
        let id = announce_pack(store).await.context("announcing a pack")?.context("announcing a pack")?;
        match self.blobs.write_stream(&Blobs::pack_key(store.id, id), blob.reader()).await {
            Ok(member) => {
                ensure!(
                    member.sha256 == blob.sha256,
                    "the spool gives back other bytes; check the disk of the data folder"
                );
                packed.packs.push(Written { id, size_bytes: member.stored_bytes, members: vec![member] });
            }
            Err(e @ StoreError::BlobsUnavailable(_)) => {
                tracing::warn!("{e}; an email is stored without its bytes until then");
                packed.lost.insert(blob.sha256);
            }
            Err(e) => return Err(e).context("writing a large blob"),
        }
        Ok(())
    }

    /// Whose unit was refused. The collector would find them too, later.
    pub(super) async fn discard_packs(&self, store: &TenantStore, packs: &[Written]) {
        for pack in packs {
            if let Err(e) = self.discard_pack(store, pack.id).await {
                tracing::debug!("pack {} is left to the collector: {e}", pack.id);
            }
        }
    }

    /// The row first: once it is dead, nobody can name what the object holds.
    pub(crate) async fn discard_pack(&self, store: &TenantStore, id: PackId) -> Result<(), StoreError> {
        store.give_up_pack(id).await?;
        self.blobs.delete(&Blobs::pack_key(store.id, id)).await?;
        store.forget_dead_pack(id).await
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

type Left = std::vec::IntoIter<Hashed>;

/// Parses until enough bytes are held; the rest waits until these are packed.
fn parse_some(
    mut left: Left,
    mailbox: &Mailbox,
    limits: &Limits,
    spool: &Spool,
    now: Timestamp,
) -> std::io::Result<(Vec<Parsed>, Left)> {
    let (mut parsed, mut held) = (Vec::new(), 0);
    while held < PACK_BYTES
        && let Some(hashed) = left.next()
    {
        let next = Parsed::of(hashed, mailbox, limits, spool, now)?;
        held += next.blob_bytes();
        parsed.push(next);
    }
    Ok((parsed, left))
}

struct Filled {
    emails: Vec<NewEmail>,
    builder: PackBuilder,
    /// What is not stored yet and does not go into a pack with others.
    large: Vec<Spooled>,
}

/// Compresses what is not stored yet, letting go of each part as soon as it is in the pack.
fn pack_some(mut builder: PackBuilder, parsed: Vec<Parsed>, stored: &HashSet<Sha256>) -> std::io::Result<Filled> {
    builder.reserve(parsed.iter().map(Parsed::blob_bytes).sum::<usize>().min(PACK_BYTES));
    let (mut emails, mut large) = (Vec::with_capacity(parsed.len()), Vec::new());
    for parsed in parsed {
        for (sha256, blob) in parsed.blobs {
            match blob {
                _ if stored.contains(&sha256) => {}
                Data::Held(bytes) => builder.add(sha256, &bytes)?,
                Data::Spooled(spooled) => large.push(spooled),
            }
        }
        emails.push(parsed.email);
    }
    Ok(Filled { emails, builder, large })
}
