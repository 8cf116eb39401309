//! Verifies that packs are as they were written.
//!
//! Each pack is read from front to back in large steps, several packs at a time; decoding and hashing run on the CPU
//! pool. The collector may move blobs meanwhile: what looks damaged is looked up again before it is reported.

use std::collections::HashMap;

use domain::Sha256;
use futures_util::{StreamExt, TryStreamExt};
use store::blobs::{self, BlobLocation, ReadError};
use store::sql::verify::PackLocation;
use store::{StoreError, TenantStore};

use super::{Damage, DamagedPack};
use crate::{Engine, Progress};

/// Packs at once: one is fetched while another is hashed, on each core of a small machine.
const CONCURRENT_PACKS: usize = 4;

/// Bytes per read. A larger blob is read piece by piece.
const READ_STEP_BYTES: u64 = 1 << 20;

impl Engine {
    pub async fn verify_packs(
        &self,
        store: &TenantStore,
        deep: bool,
        progress: &Progress,
    ) -> anyhow::Result<Vec<DamagedPack>> {
        // Before the objects: a pack that is live now has its object.
        let packs = store.list_live_packs().await?;
        let sizes = self.object_sizes(store).await?;
        let checks = packs.into_iter().map(|pack| {
            let found = sizes.get(&pack.object_key).copied();
            self.verify_pack(store, pack, found, deep, progress)
        });
        let damaged = futures_util::stream::iter(checks).buffered(CONCURRENT_PACKS);
        damaged.try_filter_map(|damaged| async { Ok(damaged) }).try_collect().await
    }

    async fn object_sizes(&self, store: &TenantStore) -> anyhow::Result<HashMap<String, u64>> {
        let objects = self.blobs.list(&store.id.to_string());
        Ok(objects.map_ok(|object| (object.key, object.size_bytes)).try_collect().await?)
    }

    async fn verify_pack(
        &self,
        store: &TenantStore,
        pack: PackLocation,
        found: Option<u64>,
        deep: bool,
        progress: &Progress,
    ) -> anyhow::Result<Option<DamagedPack>> {
        let damage = match (found, pack.size_bytes) {
            // The list may be older than the pack's last change.
            (None, _) if self.blobs.object_size(&pack.object_key).await?.is_none() => Some(Damage::Missing),
            (Some(found_bytes), Some(written_bytes)) if found_bytes != written_bytes => {
                Some(Damage::OtherSize { written_bytes, found_bytes })
            }
            _ => None,
        };
        if damage.is_none() && !deep {
            return Ok(None);
        }
        let members = store.list_pack_members(pack.id).await?;
        let unreadable = match damage {
            Some(Damage::Missing) => members.iter().map(|member| member.sha256).collect(),
            Some(Damage::OtherSize { found_bytes, .. }) if !deep => {
                let cut = members.iter().filter(|member| member.offset + member.stored_bytes > found_bytes);
                cut.map(|member| member.sha256).collect()
            }
            _ => self.verify_members(&members).await?,
        };
        progress.add_done(members.len() as u64);
        progress.add_items(members.len() as u64);
        let unreadable = self.still_unreadable(store, &pack, unreadable).await?;
        let damage = match damage {
            Some(damage) if store.is_live_pack(pack.id).await? => damage,
            _ if unreadable.is_empty() => return Ok(None),
            _ => Damage::OtherBytes,
        };
        let blobs = unreadable.len() as u64;
        let emails = store.count_emails_with(unreadable).await?;
        Ok(Some(DamagedPack { object_key: pack.object_key, damage, blobs, emails }))
    }

    /// Returns those of a pack's blobs, in stored order, that are damaged.
    async fn verify_members(&self, members: &[BlobLocation]) -> anyhow::Result<Vec<Sha256>> {
        let mut unreadable = Vec::new();
        let mut rest = members;
        while let Some(first) = rest.first() {
            let fitting = rest.iter().take_while(|member| {
                member.size_bytes <= READ_STEP_BYTES
                    && member.offset + member.stored_bytes - first.offset <= READ_STEP_BYTES
            });
            let (step, after) = rest.split_at(fitting.count().max(1));
            rest = after;
            match step {
                [large] if large.stored_bytes > READ_STEP_BYTES || large.size_bytes > READ_STEP_BYTES => {
                    if !self.is_readable(large).await? {
                        unreadable.push(large.sha256);
                    }
                }
                step => unreadable.extend(self.verify_step(step).await?),
            }
        }
        Ok(unreadable)
    }

    async fn verify_step(&self, step: &[BlobLocation]) -> anyhow::Result<Vec<Sha256>> {
        let (Some(first), Some(last)) = (step.first(), step.last()) else { return Ok(Vec::new()) };
        let (start, end) = (first.offset, last.offset + last.stored_bytes);
        let bytes = if start < end {
            self.blobs.read_range(&first.object_key, start..end).await
        } else {
            Ok(Default::default()) // nothing but empty blobs
        };
        match bytes {
            Ok(bytes) => {
                let step = step.to_vec();
                let damaged = self.cpu.run(move || {
                    let damaged = step.iter().filter(|member| {
                        let at = (member.offset - start) as usize;
                        let stored = bytes.get(at..at + member.stored_bytes as usize);
                        stored.is_none_or(|stored| blobs::decode_blob(stored, member).is_err())
                    });
                    damaged.map(|member| member.sha256).collect()
                });
                damaged.await
            }
            // What lies before the damage may still be whole.
            Err(StoreError::Corrupt(_) | StoreError::BlobMissing(_)) => {
                let mut damaged = Vec::new();
                for member in step {
                    if !self.is_readable(member).await? {
                        damaged.push(member.sha256);
                    }
                }
                Ok(damaged)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Reads a blob of any size to its end.
    async fn is_readable(&self, place: &BlobLocation) -> anyhow::Result<bool> {
        match self.blobs.read_to(place, std::io::sink()).await {
            Ok(_) => Ok(true),
            Err(ReadError::Store(StoreError::Corrupt(_) | StoreError::BlobMissing(_))) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Drops blobs that were deleted or moved to another pack, where they are whole.
    async fn still_unreadable(
        &self,
        store: &TenantStore,
        pack: &PackLocation,
        unreadable: Vec<Sha256>,
    ) -> anyhow::Result<Vec<Sha256>> {
        let mut still = Vec::new();
        for sha256 in unreadable {
            match store.find_blob(sha256).await? {
                None => {}
                Some(place) if place.object_key != pack.object_key && self.is_readable(&place).await? => {}
                Some(_) => still.push(sha256),
            }
        }
        Ok(still)
    }
}
