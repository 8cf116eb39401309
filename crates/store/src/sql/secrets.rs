//! What opens mailboxes, encrypted, and the keys that it is encrypted with, wrapped. Nothing here can be read without the
//! master key, which is never in the database; of that there is only a fingerprint.

use domain::{SecretId, SecretKind, TenantId};

use super::subscriptions::disown_subscriptions;
use crate::failpoint::{self, Effect};
use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, TenantUnit, Unit, params};

/// What somebody is told who wraps with a master key that is not the current one any more.
pub const MASTER_KEY_CHANGED: &str = "the master key was changed meanwhile";

/// The name under which fingerprints of master keys are kept.
const MASTER: &str = "master";

/// A secret as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    pub id: SecretId,
    pub kind: SecretKind,
    pub key_version: u32,
    pub ciphertext: Vec<u8>,
}

/// A tenant's key as it is stored. The last version encrypts, the others open what they encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    pub version: u32,
    pub wrapped: Vec<u8>,
    /// The fingerprint of the master key that wraps it.
    pub master: String,
}

/// Where a master key stands in the life of this database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MasterState {
    /// It will be the current one, and wraps nothing yet.
    Next,
    Current,
    /// There may still be something that it wraps.
    Retiring,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterFingerprint {
    pub fingerprint: String,
    pub state: MasterState,
}

pub(crate) const SECRET: &str = "id, kind, key_version, ciphertext";
const KEY: &str = "version, wrapped, master";

impl Unit {
    pub(crate) fn put_secret(&mut self, tenant: TenantId, secret: &SealedSecret) {
        self.op(
            "insert into secrets (tenant_id, id, kind, key_version, ciphertext, created_at, updated_at)
             values ($1, $2, $3, $4, $5, mailroom_now(), mailroom_now())
             on conflict (tenant_id, id) do update set kind = excluded.kind, key_version = excluded.key_version,
                 ciphertext = excluded.ciphertext, updated_at = excluded.updated_at",
            params![tenant, secret.id, secret.kind, secret.key_version, secret.ciphertext.as_slice()],
        );
    }
}

impl TenantUnit {
    /// Stores or replaces it, together with the rest of the unit.
    pub fn put_secret(&mut self, secret: &SealedSecret) {
        self.unit.put_secret(self.tenant, secret);
    }

    pub fn delete_secret(&mut self, id: SecretId) {
        self.unit.op("delete from secrets where tenant_id = $1 and id = $2", params![self.tenant, id]);
    }
}

impl TenantStore {
    pub async fn find_secret(&self, id: SecretId) -> Result<Option<SealedSecret>, StoreError> {
        let sql = format!("select {SECRET} from secrets where tenant_id = $1 and id = $2");
        self.query_one(sql, params![self.id, id]).await?.map(|row| sealed(&row)).transpose()
    }

    /// The key that encrypts.
    pub async fn find_last_key(&self) -> Result<Option<WrappedKey>, StoreError> {
        let sql = format!("select {KEY} from tenant_keys where tenant_id = $1 order by version desc limit 1");
        self.query_one(sql, params![self.id]).await?.map(|row| wrapped(&row)).transpose()
    }

    pub async fn find_key(&self, version: u32) -> Result<Option<WrappedKey>, StoreError> {
        let sql = format!("select {KEY} from tenant_keys where tenant_id = $1 and version = $2");
        self.query_one(sql, params![self.id, version]).await?.map(|row| wrapped(&row)).transpose()
    }

    pub async fn list_keys(&self) -> Result<Vec<WrappedKey>, StoreError> {
        let sql = format!("select {KEY} from tenant_keys where tenant_id = $1 order by version");
        self.query(sql, params![self.id]).await?.iter().map(wrapped).collect()
    }

    /// Secrets that an older key than the last one encrypts, after this id.
    pub async fn list_secrets_under_old_keys(
        &self,
        after: Option<SecretId>,
        limit: u64,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        let sql = format!(
            "select {SECRET} from secrets where tenant_id = $1 and ($2 is null or id > $2)
             and key_version < (select max(version) from tenant_keys where tenant_id = $1) order by id limit $3"
        );
        let sql = match self.store.dialect() {
            Dialect::Postgres => sql.replace("$2 is null", "$2::uuid is null"),
            Dialect::Sqlite => sql,
        };
        self.query(sql, params![self.id, after, limit]).await?.iter().map(sealed).collect()
    }

    /// Puts each second in the place of its first, unless that was replaced or deleted meanwhile. How many were put.
    pub async fn replace_sealed(&self, pairs: &[(SealedSecret, SealedSecret)]) -> Result<u64, StoreError> {
        let mut unit = self.write();
        let ops: Vec<_> = pairs
            .iter()
            .map(|(from, to)| {
                // Two ciphertexts are never the same, so this one tells whether the row is what was read.
                unit.unit.op(
                    "update secrets set key_version = $3, ciphertext = $4 where tenant_id = $1 and id = $2 and ciphertext = $5",
                    params![self.id, to.id, to.key_version, to.ciphertext.as_slice(), from.ciphertext.as_slice()],
                )
            })
            .collect();
        failpoint::before(Effect::SealAgain);
        let committed = unit.commit().await?;
        failpoint::after(Effect::SealAgain);
        Ok(ops.into_iter().map(|op| committed.changed(op)).sum())
    }
}

impl SystemStore {
    /// Refused with [`MASTER_KEY_CHANGED`] unless the current master key wraps it. When there is such a version already,
    /// that one stays: read it again afterwards.
    pub async fn add_tenant_key(&self, tenant: TenantId, key: &WrappedKey) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        self.guard_current(&mut unit, &key.master);
        unit.op(INSERT_KEY, key_values(tenant, key));
        failpoint::before(Effect::MakeTenantKey);
        self.commit(unit).await?;
        failpoint::after(Effect::MakeTenantKey);
        Ok(())
    }

    /// Tenants with a key that this master key wraps.
    pub async fn list_tenants_wrapped_by(&self, master: &str) -> Result<Vec<TenantId>, StoreError> {
        let sql = "select distinct tenant_id from tenant_keys where master = $1 order by tenant_id";
        self.query(sql, params![master]).await?.iter().map(|row| row.get(0)).collect()
    }

    pub async fn list_tenants_with_keys(&self) -> Result<Vec<TenantId>, StoreError> {
        let sql = "select distinct tenant_id from tenant_keys order by tenant_id";
        self.query(sql, vec![]).await?.iter().map(|row| row.get(0)).collect()
    }

    /// All of a tenant's keys go over to the current master key, a new one comes, and those go that encrypt nothing and
    /// were not the last one. `false` when somebody else was first.
    pub async fn rotate_tenant_key(
        &self,
        tenant: TenantId,
        rewrapped: &[(WrappedKey, WrappedKey)],
        new: &WrappedKey,
    ) -> Result<bool, StoreError> {
        const OTHERS_WERE_FIRST: &str = "a key of this tenant was changed meanwhile";
        let mut unit = Unit::default();
        self.guard_current(&mut unit, &new.master);
        for (from, to) in rewrapped {
            unit.op_exactly(
                1,
                OTHERS_WERE_FIRST,
                "update tenant_keys set wrapped = $3, master = $4 where tenant_id = $1 and version = $2 and master = $5",
                params![tenant, to.version, to.wrapped.as_slice(), to.master.as_str(), from.master.as_str()],
            );
        }
        // The one before stays until the next time: somebody may have encrypted with it and not stored that yet.
        unit.op(
            "delete from tenant_keys where tenant_id = $1 and version < $2 - 1
             and not exists (select 1 from secrets s where s.tenant_id = $1 and s.key_version = tenant_keys.version)",
            params![tenant, new.version],
        );
        unit.op_exactly(1, OTHERS_WERE_FIRST, INSERT_KEY, key_values(tenant, new));
        failpoint::before(Effect::RotateTenantKey);
        let outcome = self.commit(unit).await;
        failpoint::after(Effect::RotateTenantKey);
        match outcome {
            Ok(_) => Ok(true),
            Err(StoreError::Precondition(OTHERS_WERE_FIRST)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whoever changes the current master key waits for this unit.
    fn guard_current(&self, unit: &mut Unit, master: &str) {
        let lock = match self.store.dialect() {
            Dialect::Postgres => "for share",
            Dialect::Sqlite => "",
        };
        unit.op_returning_exactly(
            1,
            MASTER_KEY_CHANGED,
            format!("select 1 from key_fingerprints where name = $1 and fingerprint = $2 and state = 'current' {lock}"),
            params![MASTER, master],
        );
    }
}

impl SystemStore {
    pub async fn list_master_fingerprints(&self) -> Result<Vec<MasterFingerprint>, StoreError> {
        let sql = "select fingerprint, state from key_fingerprints where name = $1 order by created_at, fingerprint";
        let fingerprint = |row: &Row| {
            let state: String = row.get(1)?;
            let state = match state.as_str() {
                "next" => MasterState::Next,
                "current" => MasterState::Current,
                "retiring" => MasterState::Retiring,
                _ => return Err(StoreError::corrupt(format!("a master key is {state}"))),
            };
            Ok(MasterFingerprint { fingerprint: row.get(0)?, state })
        };
        self.query(sql, params![MASTER]).await?.iter().map(fingerprint).collect()
    }

    /// The first one stays; read them again to see whose that is.
    pub async fn record_first_master_key(&self, fingerprint: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(ADD_MASTER_KEY, params![MASTER, fingerprint, "current"]);
        failpoint::before(Effect::RecordMasterKey);
        self.commit(unit).await?;
        failpoint::after(Effect::RecordMasterKey);
        Ok(())
    }

    /// It comes next, in the place of whichever was to: that one has wrapped nothing.
    pub async fn announce_master_key(&self, fingerprint: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "delete from key_fingerprints where name = $1 and state = 'next' and fingerprint <> $2",
            params![MASTER, fingerprint],
        );
        unit.op(ADD_MASTER_KEY, params![MASTER, fingerprint, "next"]);
        failpoint::before(Effect::AnnounceMasterKey);
        self.commit(unit).await?;
        failpoint::after(Effect::AnnounceMasterKey);
        Ok(())
    }

    /// The next one becomes the current one, in one step. Refused when they are not that any more.
    pub async fn turn_master_key(&self, current: &str, next: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        for (fingerprint, from, to) in [(current, "current", "retiring"), (next, "next", "current")] {
            unit.op_exactly(
                1,
                MASTER_KEY_CHANGED,
                "update key_fingerprints set state = $4 where name = $1 and fingerprint = $2 and state = $3",
                params![MASTER, fingerprint, from, to],
            );
        }
        disown_subscriptions(&mut unit);
        failpoint::before(Effect::TurnMasterKey);
        self.commit(unit).await?;
        failpoint::after(Effect::TurnMasterKey);
        Ok(())
    }

    /// A retired key that wraps nothing any more is no key of this database. `false`: it still wraps something.
    pub async fn forget_master_key(&self, fingerprint: &str) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let forgotten = unit.op(
            "delete from key_fingerprints where name = $1 and fingerprint = $2 and state = 'retiring'
             and not exists (select 1 from tenant_keys where master = $2)",
            params![MASTER, fingerprint],
        );
        failpoint::before(Effect::ForgetMasterKey);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::ForgetMasterKey);
        Ok(committed.changed(forgotten) == 1)
    }
}

const ADD_MASTER_KEY: &str = "insert into key_fingerprints (name, fingerprint, state, created_at)
                              values ($1, $2, $3, mailroom_now()) on conflict do nothing";

const INSERT_KEY: &str = "insert into tenant_keys (tenant_id, version, wrapped, master, created_at)
                          values ($1, $2, $3, $4, mailroom_now()) on conflict (tenant_id, version) do nothing";

fn key_values(tenant: TenantId, key: &WrappedKey) -> Vec<crate::Value> {
    params![tenant, key.version, key.wrapped.as_slice(), key.master.as_str()]
}

pub(crate) fn sealed(row: &Row) -> Result<SealedSecret, StoreError> {
    sealed_from(row, 0)
}

/// From this column on.
pub(crate) fn sealed_from(row: &Row, first: usize) -> Result<SealedSecret, StoreError> {
    let key_version = version(row, first + 2)?;
    Ok(SealedSecret { id: row.get(first)?, kind: row.get(first + 1)?, key_version, ciphertext: row.get(first + 3)? })
}

fn wrapped(row: &Row) -> Result<WrappedKey, StoreError> {
    Ok(WrappedKey { version: version(row, 0)?, wrapped: row.get(1)?, master: row.get(2)? })
}

fn version(row: &Row, column: usize) -> Result<u32, StoreError> {
    u32::try_from(row.get::<u64>(column)?).map_err(|_| StoreError::corrupt("the version of a key is out of range"))
}
