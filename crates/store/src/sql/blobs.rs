//! The locations of blobs in packs. The bytes themselves are in [`crate::blobs`].

use std::collections::HashSet;

use domain::{PackId, PackState, Sha256};

use super::any;
use crate::blobs::{BlobEncoding, BlobLocation, PackMember};
use crate::failpoint::{self, Effect, Guard};
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Precondition, Row, StoreError, TenantStore, TenantUnit, params};

pub(super) const LOCATION_COLUMNS: &str =
    "b.sha256, p.object_key, b.pack_offset, b.stored_bytes, b.size_bytes, b.encoding";

impl TenantStore {
    /// Finds those of the given blobs that are stored already.
    pub async fn find_stored_blobs(&self, hashes: Vec<Sha256>) -> Result<HashSet<Sha256>, StoreError> {
        let sql =
            format!("select sha256 from blobs where tenant_id = $1 and {}", any(self.store.dialect(), "sha256", 2));
        let rows = self.query(sql, params![self.id, hashes]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub async fn find_blob(&self, sha256: Sha256) -> Result<Option<BlobLocation>, StoreError> {
        let sql = format!(
            "select {LOCATION_COLUMNS} from blobs b join packs p on p.tenant_id = b.tenant_id and p.id = b.pack_id
             where b.tenant_id = $1 and b.sha256 = $2"
        );
        self.query_one(sql, params![self.id, sha256]).await?.as_ref().map(blob_location).transpose()
    }

    pub async fn is_live_pack(&self, id: PackId) -> Result<bool, StoreError> {
        let sql = "select 1 from packs where tenant_id = $1 and id = $2 and state = 'live'";
        Ok(self.query_one(sql, params![self.id, id]).await?.is_some())
    }

    /// Records that an object is about to be written, so that one without references can be found and removed.
    pub async fn announce_pack(&self, id: PackId, object_key: &str) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op(
            "insert into packs (id, tenant_id, object_key, state, created_at) values ($1, $2, $3, $4, mailroom_now())",
            params![id, self.id, object_key, PackState::Writing],
        );
        unit.commit_at(Effect::AnnouncePack).await?;
        Ok(())
    }

    /// Withdraws an announcement: nothing was written under that key.
    pub async fn withdraw_pack(&self, id: PackId) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op("delete from packs where tenant_id = $1 and id = $2 and state = 'writing'", params![self.id, id]);
        unit.commit_at(Effect::WithdrawPack).await?;
        Ok(())
    }

    /// Abandons a pack that was not recorded; recording it fails from now on.
    pub async fn abandon_pack(&self, id: PackId) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op(
            "update packs set state = 'dead' where tenant_id = $1 and id = $2 and state = 'writing'",
            params![self.id, id],
        );
        unit.commit().await.map(drop)
    }

    /// Deletes the row of a dead pack whose object is deleted.
    pub async fn forget_dead_pack(&self, id: PackId) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op("delete from packs where tenant_id = $1 and id = $2 and state = 'dead'", params![self.id, id]);
        unit.commit_at(Effect::ForgetPack).await?;
        Ok(())
    }
}

impl TenantUnit {
    /// Keeps blobs from being collected that rows of this unit refer to again. One that is gone already fails the unit by its
    /// foreign key.
    pub fn keep_referenced_blobs(&mut self, hashes: HashSet<Sha256>) {
        if hashes.is_empty() {
            return;
        }
        let mut hashes: Vec<Sha256> = hashes.into_iter().collect();
        hashes.sort();
        let sql = format!(
            "update blobs set condemned_at = null where tenant_id = $1 and condemned_at is not null and {}",
            any(self.store.dialect(), "sha256", 2)
        );
        self.unit.op(sql, params![self.tenant, hashes]);
    }

    /// Records the members of a pack whose object is durable. Refused when the pack was abandoned meanwhile.
    pub fn record_pack(&mut self, id: PackId, size_bytes: u64, members: &[PackMember]) {
        let sql = "update packs set state = 'live', size_bytes = $3 where tenant_id = $1 and id = $2";
        let params = params![self.tenant, id, size_bytes];
        if failpoint::is_off(Guard::PackIsWriting) {
            self.unit.op(sql, params);
        } else {
            let sql = format!("{sql} and state = 'writing'");
            self.unit.op_exactly(1, Precondition::PackCollected, sql, params);
        }
        let mut members: Vec<&PackMember> = members.iter().collect();
        members.sort_by_key(|member| member.sha256);
        self.unit.insert(Insert {
            into: "blobs (tenant_id, sha256, pack_id, pack_offset, stored_bytes, size_bytes, encoding, created_at)"
                .into(),
            columns: &[
                ("tenant_id", ColumnType::Uuid),
                ("sha256", ColumnType::Hash),
                ("pack_id", ColumnType::Uuid),
                ("pack_offset", ColumnType::Int),
                ("stored_bytes", ColumnType::Int),
                ("size_bytes", ColumnType::Int),
                ("encoding", ColumnType::Text),
            ],
            rows: members
                .into_iter()
                .map(|member: &PackMember| {
                    params![
                        self.tenant,
                        member.sha256,
                        id,
                        member.offset,
                        member.stored_bytes,
                        member.size_bytes,
                        member.encoding.as_str()
                    ]
                })
                .collect(),
            select: "u.tenant_id, u.sha256, u.pack_id, u.pack_offset, u.stored_bytes, u.size_bytes, u.encoding,
                     mailroom_now()"
                .into(),
            join_where: "",
            on_conflict: "on conflict (tenant_id, sha256) do nothing".into(),
            batching: InsertBatching::Many,
        });
    }
}

pub(super) fn blob_location(row: &Row) -> Result<BlobLocation, StoreError> {
    let encoding: String = row.get(5)?;
    Ok(BlobLocation {
        sha256: row.get(0)?,
        object_key: row.get(1)?,
        offset: row.get(2)?,
        stored_bytes: row.get(3)?,
        size_bytes: row.get(4)?,
        encoding: BlobEncoding::parse(&encoding)
            .ok_or_else(|| StoreError::corrupt(format!("a blob has the unknown encoding {encoding}")))?,
    })
}
