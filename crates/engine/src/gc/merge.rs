//! Small packs and packs with holes become few full ones.

use anyhow::Context;
use domain::{PackId, TenantId};
use store::StoreError;
use store::blobs::{Blobs, PackBuilder};
use store::sql::collect::{Collector, Moved, PackUse};

use super::Collected;
use crate::{Engine, HELD_BYTES, Progress};

/// A pack below this is small. Merged ones grow to four times as much, so no blob is moved more than a few times.
const SMALL: u64 = 4 << 20;

/// New packs are written when they have grown to this, which is what bounds memory.
const FULL: u64 = 16 << 20;

/// A pack is rewritten when a quarter of it is of no use.
fn has_holes(pack: &PackUse) -> bool {
    pack.used_bytes * 4 < pack.size_bytes * 3
}

/// Packs that go together, in the order of their age; a small one alone stays as it is.
fn groups(packs: Vec<PackUse>) -> Vec<Vec<PackUse>> {
    let is_small = |pack: &PackUse| pack.size_bytes < SMALL && pack.largest_blob <= HELD_BYTES;
    let is_worth_it = |pack: &PackUse| pack.used_bytes > 0 && (has_holes(pack) || is_small(pack));
    let mut groups: Vec<Vec<PackUse>> = Vec::new();
    let mut filled = FULL;
    for pack in packs.into_iter().filter(is_worth_it) {
        if filled + pack.used_bytes > FULL {
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
        collector: &Collector,
        collected: &mut Collected,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        for group in groups(collector.list_pack_use().await?) {
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

    /// Copies what is used into a new pack and moves the rows over. `false` when others were quicker.
    async fn merge(&self, tenant: TenantId, collector: &Collector, group: &[PackUse]) -> anyhow::Result<bool> {
        let store = self.store.tenant(tenant);
        let mut builder = PackBuilder::new()?;
        let mut from = Vec::new();
        for pack in group {
            for place in collector.blobs_of_pack(pack.id).await? {
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
        let moved: Vec<Moved> =
            pack.members.into_iter().zip(from).map(|(member, from)| Moved { member, from }).collect();
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
        groups(packs).iter().map(|group| group.iter().map(|pack| pack.size_bytes >> 20).collect()).collect()
    }

    #[test]
    fn small_packs_and_packs_with_holes_go_together() {
        const MB: u64 = 1 << 20;
        assert_eq!(shape(vec![pack(MB, MB), pack(9 * MB, 9 * MB), pack(2 * MB, 2 * MB)]), [[1, 2]]);
        assert_eq!(shape(vec![pack(9 * MB, 6 * MB)]), [[9]]);
        let one_attachment = || PackUse { largest_blob: 2 * MB, ..pack(2 * MB, 2 * MB) };
        assert_eq!(shape(vec![one_attachment(), one_attachment()]), [[2, 2]]);
        assert_eq!(shape(vec![pack(20 * MB, 12 * MB), pack(20 * MB, 12 * MB)]), [[20], [20]]);
    }

    #[test]
    fn what_cannot_become_better_is_left_alone() {
        const MB: u64 = 1 << 20;
        assert!(shape(vec![pack(MB, MB)]).is_empty());
        assert!(shape(vec![pack(9 * MB, 8 * MB), pack(100 * MB, 100 * MB)]).is_empty());
        assert!(shape(vec![pack(9 * MB, 0), pack(MB, 0)]).is_empty());
        let large = || PackUse { largest_blob: 100 * MB, ..pack(MB, MB) };
        assert!(shape(vec![large(), large()]).is_empty());
    }
}
