//! Which bytes are stored where. The bytes themselves are in [`crate::blobs`].

use std::collections::HashSet;

use domain::{PackId, PackState, Sha256};

use super::any;
use crate::blobs::{Encoding, Member};
use crate::failpoint::{self, Effect, Guard};
use crate::unit::{By, Insert};
use crate::value::Kind;
use crate::{Row, StoreError, TenantStore, TenantUnit, params};

/// Where one blob lies.
#[derive(Debug, Clone)]
pub struct BlobPlace {
    pub sha256: Sha256,
    pub object_key: String,
    pub offset: u64,
    pub stored_bytes: u64,
    pub size_bytes: u64,
    pub encoding: Encoding,
}

pub(super) const PLACE_COLUMNS: &str =
    "b.sha256, p.object_key, b.pack_offset, b.stored_bytes, b.size_bytes, b.encoding";

impl TenantStore {
    /// Those of the given blobs that need not be written again.
    pub async fn stored_blobs(&self, hashes: Vec<Sha256>) -> Result<HashSet<Sha256>, StoreError> {
        let sql =
            format!("select sha256 from blobs where tenant_id = $1 and {}", any(self.store.dialect(), "sha256", 2));
        let rows = self.query(sql, params![self.id, hashes]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub async fn find_blob(&self, sha256: Sha256) -> Result<Option<BlobPlace>, StoreError> {
        let sql = format!(
            "select {PLACE_COLUMNS} from blobs b join packs p on p.tenant_id = b.tenant_id and p.id = b.pack_id
             where b.tenant_id = $1 and b.sha256 = $2"
        );
        self.query_one(sql, params![self.id, sha256]).await?.as_ref().map(place).transpose()
    }

    pub async fn is_live_pack(&self, id: PackId) -> Result<bool, StoreError> {
        let sql = "select 1 from packs where tenant_id = $1 and id = $2 and state = 'live'";
        Ok(self.query_one(sql, params![self.id, id]).await?.is_some())
    }

    /// Says that an object is about to be written, so that one that no row ever names can be found and removed.
    pub async fn announce_pack(&self, id: PackId, object_key: &str) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op(
            "insert into packs (id, tenant_id, object_key, state, created_at) values ($1, $2, $3, $4, mailroom_now())",
            params![id, self.id, object_key, PackState::Writing],
        );
        failpoint::before(Effect::AnnouncePack);
        unit.commit().await?;
        failpoint::after(Effect::AnnouncePack);
        Ok(())
    }

    /// Takes an announcement back: nothing was written under that name.
    pub async fn withdraw_pack(&self, id: PackId) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op("delete from packs where tenant_id = $1 and id = $2 and state = 'writing'", params![self.id, id]);
        failpoint::before(Effect::WithdrawPack);
        unit.commit().await?;
        failpoint::after(Effect::WithdrawPack);
        Ok(())
    }

    /// From now on nobody can name what is in it.
    pub async fn give_up_pack(&self, id: PackId) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op(
            "update packs set state = 'dead' where tenant_id = $1 and id = $2 and state = 'writing'",
            params![self.id, id],
        );
        unit.commit().await.map(drop)
    }

    /// Whose object is deleted.
    pub async fn forget_dead_pack(&self, id: PackId) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op("delete from packs where tenant_id = $1 and id = $2 and state = 'dead'", params![self.id, id]);
        failpoint::before(Effect::ForgetPack);
        unit.commit().await?;
        failpoint::after(Effect::ForgetPack);
        Ok(())
    }
}

impl TenantUnit {
    /// Blobs that rows of this unit name again are not collected. One that is gone already fails the unit by its
    /// foreign key.
    pub fn reprieve_blobs(&mut self, hashes: HashSet<Sha256>) {
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

    /// Names the members of a pack whose object is durable. Refused when the pack was given up meanwhile.
    pub fn record_pack(&mut self, id: PackId, size_bytes: u64, members: &[Member]) {
        let sql = "update packs set state = 'live', size_bytes = $3 where tenant_id = $1 and id = $2";
        let params = params![self.tenant, id, size_bytes];
        if failpoint::is_off(Guard::PackIsWriting) {
            self.unit.op(sql, params);
        } else {
            let sql = format!("{sql} and state = 'writing'");
            self.unit.op_exactly(1, "the pack was collected before it was recorded", sql, params);
        }
        let row = |member: &Member| {
            params![
                self.tenant,
                member.sha256,
                id,
                member.offset,
                member.stored_bytes,
                member.size_bytes,
                member.encoding.as_str()
            ]
        };
        let mut members: Vec<&Member> = members.iter().collect();
        members.sort_by_key(|member| member.sha256);
        self.unit.insert(Insert {
            into: "blobs (tenant_id, sha256, pack_id, pack_offset, stored_bytes, size_bytes, encoding, created_at)"
                .into(),
            columns: &[
                ("tenant_id", Kind::Uuid),
                ("sha256", Kind::Hash),
                ("pack_id", Kind::Uuid),
                ("pack_offset", Kind::Int),
                ("stored_bytes", Kind::Int),
                ("size_bytes", Kind::Int),
                ("encoding", Kind::Text),
            ],
            rows: members.into_iter().map(row).collect(),
            select: "u.tenant_id, u.sha256, u.pack_id, u.pack_offset, u.stored_bytes, u.size_bytes, u.encoding,
                     mailroom_now()"
                .into(),
            join_where: "",
            on_conflict: "on conflict (tenant_id, sha256) do nothing".into(),
            by: By::Many,
        });
    }
}

pub(super) fn place(row: &Row) -> Result<BlobPlace, StoreError> {
    let encoding: String = row.get(5)?;
    Ok(BlobPlace {
        sha256: row.get(0)?,
        object_key: row.get(1)?,
        offset: row.get(2)?,
        stored_bytes: row.get(3)?,
        size_bytes: row.get(4)?,
        encoding: Encoding::parse(&encoding)
            .ok_or_else(|| StoreError::corrupt(format!("a blob has the unknown encoding {encoding}")))?,
    })
}
