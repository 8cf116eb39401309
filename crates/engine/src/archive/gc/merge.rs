//! Merges small packs and packs with holes into few full ones.

use anyhow::Context;
use domain::{PackId, TenantId};
use store::StoreError;
use store::blobs::{Blobs, PackBuilder};
use store::sql::blob_collection::{BlobCollector, MovedBlob, PackUse};

use super::CollectionReport;
use crate::{Engine, MAX_BUFFERED_BLOB_BYTES, Progress};

/// A smaller pack is merged. Merged packs grow to four times as much, so no blob is moved more than a few times.
const SMALL_PACK_BYTES: u64 = 4 << 20;

/// The size at which a new pack is written, which bounds memory.
const FULL_PACK_BYTES: u64 = 16 << 20;

/// Returns whether a pack has bytes that no row names, so that it is rewritten: mail that was erased must not stay in it.
fn has_holes(pack: &PackUse) -> bool {
    pack.used_bytes < pack.size_bytes
}

fn is_worth_merging(pack: &PackUse) -> bool {
    let is_small = pack.size_bytes < SMALL_PACK_BYTES && pack.largest_blob <= MAX_BUFFERED_BLOB_BYTES;
    pack.used_bytes > 0 && (has_holes(pack) || is_small)
}

/// Groups packs that are merged, in the order of their age; a single small one stays as it is.
fn group_packs(packs: Vec<PackUse>) -> Vec<Vec<PackUse>> {
    let mut groups: Vec<Vec<PackUse>> = Vec::new();
    let mut filled = FULL_PACK_BYTES;
    for pack in packs.into_iter().filter(is_worth_merging) {
        if filled + pack.used_bytes > FULL_PACK_BYTES {
            groups.push(Vec::new());
            filled = 0;
        }
        filled += pack.used_bytes;
        if let Some(group) = groups.last_mut() {
            group.push(pack);
        }
    }
    groups.retain(|group| group.len() > 1 || group.iter().any(has_holes));
    groups
}

impl Engine {
    pub(super) async fn merge_packs(
        &self,
        tenant: TenantId,
        collector: &BlobCollector,
        collected: &mut CollectionReport,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        for group in group_packs(collector.list_pack_use().await?) {
            match self.merge(tenant, collector, &group).await {
                Ok(true) => {
                    collected.packs_merged += group.len() as u64;
                    collected.packs_made += 1;
                    progress.add_items(group.len() as u64);
                }
                Ok(false) => {}
                // Damage is not carried over into a new pack; `verify` names it, and the rest goes on.
                Err(e) => match e.downcast_ref::<StoreError>() {
                    Some(damage @ (StoreError::Corrupt(_) | StoreError::BlobMissing(_))) => {
                        collected.problems.push(damage.to_string());
                    }
                    _ => return Err(e),
                },
            }
        }
        Ok(())
    }

    /// Copies the used blobs into a new pack and moves the rows over. Returns `false` if they were changed concurrently.
    async fn merge(&self, tenant: TenantId, collector: &BlobCollector, group: &[PackUse]) -> anyhow::Result<bool> {
        let store = self.store.tenant(tenant);
        let mut builder = PackBuilder::new()?;
        let mut from = Vec::new();
        for pack in group {
            for place in collector.list_pack_blobs(pack.id).await? {
                let blob = self.blobs.read(&place).await?;
                builder.add(place.sha256, &blob)?;
                from.push(pack.id);
            }
        }
        let Some(pack) = builder.finish() else { return Ok(false) };
        let (id, size_bytes) = (PackId::new(store.clock()), pack.bytes.len() as u64);
        let key = Blobs::pack_key(tenant, id);
        store.announce_pack(id, &key).await?;
        self.blobs.write(&key, pack.bytes).await.context("writing a merged pack")?;
        let moved: Vec<MovedBlob> =
            pack.members.into_iter().zip(from).map(|(member, from)| MovedBlob { member, from }).collect();
        match collector.move_blobs(id, size_bytes, &moved).await {
            Ok(_) => Ok(true),
            Err(StoreError::Precondition(_)) => {
                self.discard_pack(&store, id).await?;
                Ok(false)
            }
            Err(e) => Err(e).context("recording a merged pack"),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    fn pack(size: u64, used: u64) -> PackUse {
        PackUse { id: PackId::new(&SystemClock), size_bytes: size, used_bytes: used, largest_blob: 1 }
    }

    fn shape(packs: Vec<PackUse>) -> Vec<Vec<u64>> {
        group_packs(packs).iter().map(|group| group.iter().map(|pack| pack.size_bytes >> 20).collect()).collect()
    }

    #[test]
    fn small_packs_and_packs_with_holes_are_merged() {
        const MB: u64 = 1 << 20;
        assert_eq!(shape(vec![pack(MB, MB), pack(9 * MB, 9 * MB), pack(2 * MB, 2 * MB)]), [[1, 2]]);
        assert_eq!(shape(vec![pack(9 * MB, 9 * MB - 1)]), [[9]]);
        let one_attachment = [1, 2].map(|_| PackUse { largest_blob: 2 * MB, ..pack(2 * MB, 2 * MB) });
        assert_eq!(shape(one_attachment.into()), [[2, 2]]);
        assert_eq!(shape(vec![pack(20 * MB, 12 * MB), pack(20 * MB, 12 * MB)]), [[20], [20]]);
    }

    #[test]
    fn full_packs_are_left_alone() {
        const MB: u64 = 1 << 20;
        assert!(shape(vec![pack(MB, MB)]).is_empty());
        assert!(shape(vec![pack(9 * MB, 9 * MB), pack(100 * MB, 100 * MB)]).is_empty());
        assert!(shape(vec![pack(9 * MB, 0), pack(MB, 0)]).is_empty());
        let large = [1, 2].map(|_| PackUse { largest_blob: 100 * MB, ..pack(MB, MB) });
        assert!(shape(large.into()).is_empty());
    }
}
