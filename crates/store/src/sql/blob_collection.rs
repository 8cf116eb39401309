//! Garbage collection of blobs: abandoned packs, blobs without references, empty packs.
//!
//! Every step is one short unit that checks again what the collector read before; a reference that is added meanwhile wins.

use std::time::Instant;

use domain::{PackId, Sha256, TenantId};
use jiff::{SignedDuration, Timestamp};

use super::any;
use super::blobs::{LOCATION_COLUMNS, blob_location};
use crate::blobs::{BlobLocation, PackMember};
use crate::failpoint::Effect;
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{OpId, Precondition, Store, StoreError, SystemStore, Unit, params};

/// Blobs that are checked in one step, and deleted in one.
const CONDEMN_SLICE_BLOBS: u64 = 5000;
const DELETE_BATCH_BLOBS: u64 = 500;

/// How long the collector rests after each step, as a multiple of the step's time. It has time, and an import beside it should
/// not notice: on PostgreSQL deleting a blob checks every partition for references, which keeps a whole processor busy.
const COLLECTOR_REST_FACTOR: u32 = 2;

/// The collector of one tenant's blobs.
#[derive(Debug, Clone)]
pub struct BlobCollector {
    store: Store,
    tenant: TenantId,
}

/// A live pack and how much of it is still referenced.
#[derive(Debug, Clone)]
pub struct PackUse {
    pub id: PackId,
    pub size_bytes: u64,
    pub used_bytes: u64,
    /// The largest blob in it, decoded.
    pub largest_blob: u64,
}

#[derive(Debug, Clone)]
pub struct DeadPack {
    pub id: PackId,
    pub object_key: String,
}

/// A blob in its new pack, and the pack that it was in.
#[derive(Debug, Clone)]
pub struct MovedBlob {
    pub member: PackMember,
    pub from: PackId,
}

impl SystemStore {
    pub fn collector(&self, tenant: TenantId) -> BlobCollector {
        BlobCollector { store: self.store.clone(), tenant }
    }
}

impl BlobCollector {
    /// Returns the time before which a grace period began. By the database's clock, which wrote the times; rounded up, because
    /// it is known to the millisecond.
    pub async fn cutoff(&self, grace: SignedDuration) -> Result<Timestamp, StoreError> {
        Ok(self.store.system().now().await? - grace + SignedDuration::from_millis(1))
    }

    /// Abandons packs that were announced before the cutoff and never recorded. Writers that still run are refused.
    pub async fn abandon_packs(&self, cutoff: Timestamp) -> Result<u64, StoreError> {
        self.change(
            Effect::GiveUpPacks,
            "update packs set state = 'dead' where tenant_id = $1 and state = 'writing' and created_at <= $2".into(),
            params![self.tenant, cutoff],
        )
        .await
    }

    /// Marks blobs without references, so that they can be deleted once they have stayed so for the grace period. Slice by
    /// slice along the hashes: three ranges of three indexes, however large the tables are.
    pub async fn mark_unreferenced_blobs(&self) -> Result<u64, StoreError> {
        let (mut after, mut condemned) = (Sha256([0; 32]), 0);
        loop {
            let started = Instant::now();
            let next =
                "select sha256 from blobs where tenant_id = $1 and sha256 > $2 order by sha256 limit 1 offset $3";
            let end = self.query(next, params![self.tenant, after, CONDEMN_SLICE_BLOBS]).await?;
            let last = end.first().map(|row| row.get::<Sha256>(0)).transpose()?;
            let unnamed = "select sha256 from blobs
                           where tenant_id = $1 and sha256 > $2 and sha256 <= $3 and condemned_at is null
                           except select raw_blob_sha256 from emails
                           where tenant_id = $1 and raw_blob_sha256 > $2 and raw_blob_sha256 <= $3
                           except select blob_sha256 from attachments
                           where tenant_id = $1 and blob_sha256 > $2 and blob_sha256 <= $3";
            let upto = last.unwrap_or(Sha256([0xff; 32]));
            let rows = self.query(unnamed, params![self.tenant, after, upto]).await?;
            let unnamed: Vec<Sha256> = rows.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?;
            for hashes in unnamed.chunks(DELETE_BATCH_BLOBS as usize) {
                let sql = format!(
                    "update blobs set condemned_at = mailroom_now()
                     where tenant_id = $1 and condemned_at is null and {}",
                    any(self.store.dialect(), "sha256", 2)
                );
                condemned += self.change(Effect::CondemnBlobs, sql, params![self.tenant, hashes.to_vec()]).await?;
            }
            match last {
                Some(last) => after = last,
                None => return Ok(condemned),
            }
            rest(started).await;
        }
    }

    /// Deletes a batch of blobs that were condemned before the cutoff and still have no reference. Returns how many were
    /// checked, and how many deleted. Refused while the tenant is on legal hold.
    pub async fn delete_blobs(&self, cutoff: Timestamp) -> Result<(u64, u64), StoreError> {
        let started = Instant::now();
        let sql = "select sha256 from blobs where tenant_id = $1 and condemned_at is not null and condemned_at <= $2
                   order by condemned_at limit $3";
        let rows = self.query(sql, params![self.tenant, cutoff, DELETE_BATCH_BLOBS]).await?;
        let hashes: Vec<Sha256> = rows.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?;
        if hashes.is_empty() {
            return Ok((0, 0));
        }
        let dialect = self.store.dialect();
        let mut unit = Unit::default();
        unit.expect_not_held(dialect, self.tenant);
        // Referenced again by a unit that did not see the mark: it is removed here.
        unit.op(
            format!(
                "update blobs set condemned_at = null where tenant_id = $1 and condemned_at is not null and sha256 in (
                     select raw_blob_sha256 from emails where tenant_id = $1 and {}
                     union select blob_sha256 from attachments where tenant_id = $1 and {})",
                any(dialect, "raw_blob_sha256", 2),
                any(dialect, "blob_sha256", 2)
            ),
            params![self.tenant, hashes.clone()],
        );
        // A reference that is added from now on fails this unit or the other by the foreign key.
        let deleted = unit.op(
            format!(
                "delete from blobs where tenant_id = $1 and {} and condemned_at is not null and condemned_at <= $3",
                any(dialect, "sha256", 2)
            ),
            params![self.tenant, hashes.clone(), cutoff],
        );
        let deleted = self.run(Effect::DeleteBlobs, unit, deleted).await?;
        let seen = hashes.len() as u64;
        if seen == DELETE_BATCH_BLOBS {
            rest(started).await;
        }
        Ok((seen, deleted))
    }

    pub async fn count_condemned(&self) -> Result<u64, StoreError> {
        let sql = "select count(*) from blobs where tenant_id = $1 and condemned_at is not null";
        self.query(sql, params![self.tenant]).await?.first().map_or(Ok(0), |row| row.get(0))
    }

    /// Lists live packs with how much of each is used; unused ones too.
    pub async fn list_pack_use(&self) -> Result<Vec<PackUse>, StoreError> {
        let sql = "select p.id, p.size_bytes, coalesce(cast(sum(b.stored_bytes) as bigint), 0),
                          coalesce(max(b.size_bytes), 0)
                   from packs p left join blobs b on b.tenant_id = p.tenant_id and b.pack_id = p.id
                   where p.tenant_id = $1 and p.state = 'live' group by p.id, p.size_bytes order by p.id";
        self.query(sql, params![self.tenant])
            .await?
            .iter()
            .map(|row: &crate::Row| {
                let size_bytes: Option<u64> = row.get(1)?;
                Ok(PackUse {
                    id: row.get(0)?,
                    size_bytes: size_bytes.unwrap_or(0),
                    used_bytes: row.get(2)?,
                    largest_blob: row.get(3)?,
                })
            })
            .collect()
    }

    pub async fn list_pack_blobs(&self, id: PackId) -> Result<Vec<BlobLocation>, StoreError> {
        let sql = format!(
            "select {LOCATION_COLUMNS} from blobs b join packs p on p.tenant_id = b.tenant_id and p.id = b.pack_id
             where b.tenant_id = $1 and b.pack_id = $2 order by b.pack_offset"
        );
        self.query(&sql, params![self.tenant, id]).await?.iter().map(blob_location).collect()
    }

    /// Moves blobs of other packs to a written pack. Those that were deleted or moved meanwhile stay as they are. Refused when
    /// the new pack was abandoned.
    pub async fn move_blobs(&self, to: PackId, size_bytes: u64, moved: &[MovedBlob]) -> Result<u64, StoreError> {
        let mut unit = Unit::default();
        unit.op_exactly(
            1,
            Precondition::PackCollected,
            "update packs set state = 'live', size_bytes = $3 where tenant_id = $1 and id = $2 and state = 'writing'",
            params![self.tenant, to, size_bytes],
        );
        let mut moved: Vec<&MovedBlob> = moved.iter().collect();
        moved.sort_by_key(|moved| moved.member.sha256);
        let changed = unit.insert(Insert {
            into: "blobs (tenant_id, sha256, pack_id, pack_offset, stored_bytes, size_bytes, encoding, created_at)"
                .into(),
            columns: &[
                ("tenant_id", ColumnType::Uuid),
                ("sha256", ColumnType::Hash),
                ("pack_id", ColumnType::Uuid),
                ("from_pack_id", ColumnType::Uuid),
                ("pack_offset", ColumnType::Int),
                ("stored_bytes", ColumnType::Int),
                ("size_bytes", ColumnType::Int),
                ("encoding", ColumnType::Text),
            ],
            rows: moved
                .into_iter()
                .map(|MovedBlob { member, from }: &MovedBlob| {
                    let PackMember { sha256, offset, stored_bytes, size_bytes, encoding } = member;
                    params![self.tenant, *sha256, to, *from, *offset, *stored_bytes, *size_bytes, encoding.as_str()]
                })
                .collect(),
            select: "u.tenant_id, u.sha256, u.pack_id, u.pack_offset, u.stored_bytes, u.size_bytes, u.encoding,
                     mailroom_now()"
                .into(),
            join_where: "join blobs b on b.tenant_id = u.tenant_id and b.sha256 = u.sha256
                         and b.pack_id = u.from_pack_id where true",
            on_conflict: "on conflict (tenant_id, sha256)
                          do update set pack_id = excluded.pack_id, pack_offset = excluded.pack_offset,
                          stored_bytes = excluded.stored_bytes, encoding = excluded.encoding"
                .into(),
            batching: InsertBatching::Many,
        });
        self.run(Effect::MovePack, unit, changed).await
    }

    /// Marks packs without blobs as dead; a live pack never gets new ones.
    pub async fn mark_empty_packs_dead(&self) -> Result<u64, StoreError> {
        self.change(
            Effect::EmptyPacks,
            "update packs set state = 'dead' where tenant_id = $1 and state = 'live' and not exists (
                 select 1 from blobs b where b.tenant_id = packs.tenant_id and b.pack_id = packs.id)"
                .into(),
            params![self.tenant],
        )
        .await
    }

    pub async fn list_dead_packs(&self) -> Result<Vec<DeadPack>, StoreError> {
        let sql = "select id, object_key from packs where tenant_id = $1 and state = 'dead' order by id";
        let rows = self.query(sql, params![self.tenant]).await?;
        rows.iter().map(|row| Ok(DeadPack { id: row.get(0)?, object_key: row.get(1)? })).collect()
    }

    /// Returns those of the given objects that no pack refers to, in whatever state.
    pub async fn filter_unreferenced_objects(&self, keys: Vec<String>) -> Result<Vec<String>, StoreError> {
        let sql = format!(
            "select object_key from packs where tenant_id = $1 and {}",
            any(self.store.dialect(), "object_key", 2)
        );
        let rows = self.query(&sql, params![self.tenant, keys.clone()]).await?;
        let named: std::collections::HashSet<String> = rows.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?;
        Ok(keys.into_iter().filter(|key| !named.contains(key)).collect())
    }

    async fn query(&self, sql: &str, params: Vec<crate::Value>) -> Result<Vec<crate::Row>, StoreError> {
        self.store.system().query(sql, params).await
    }

    async fn change(&self, effect: Effect, sql: String, params: Vec<crate::Value>) -> Result<u64, StoreError> {
        let mut unit = Unit::default();
        let op = unit.op(sql, params);
        self.run(effect, unit, op).await
    }

    async fn run(&self, effect: Effect, unit: Unit, op: OpId) -> Result<u64, StoreError> {
        Ok(self.store.system().commit_at(effect, unit).await?.changed(op))
    }
}

async fn rest(started: Instant) {
    tokio::time::sleep(started.elapsed() * COLLECTOR_REST_FACTOR).await;
}
