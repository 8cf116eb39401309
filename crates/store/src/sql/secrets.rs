//! Encrypted secrets, such as credentials of mailboxes, and the wrapped tenant keys that they are encrypted with. Nothing here
//! can be read without the master key, of which the database has only a fingerprint.

use domain::{SecretId, SecretKind, TenantId};

use super::subscriptions::invalidate_subscriptions;
use crate::failpoint::Effect;
use crate::{Dialect, Precondition, Row, StoreError, SystemStore, TenantStore, TenantUnit, Unit, params};

/// The name under which fingerprints of master keys are kept.
const MASTER_KEY_NAME: &str = "master";

/// A secret as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    pub id: SecretId,
    pub kind: SecretKind,
    pub key_version: u32,
    pub ciphertext: Vec<u8>,
}

/// A tenant's key as it is stored. The last version encrypts, the others decrypt older secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    pub version: u32,
    pub wrapped: Vec<u8>,
    /// The fingerprint of the master key that wraps it.
    pub master: String,
}

/// The state of a master key in this database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MasterKeyState {
    /// It becomes the current one next, and wraps nothing yet.
    Next,
    Current,
    /// It may still wrap tenant keys.
    Retiring,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterFingerprint {
    pub fingerprint: String,
    pub state: MasterKeyState,
}

pub(crate) const SECRET_COLUMNS: &str = "id, kind, key_version, ciphertext";
const KEY_COLUMNS: &str = "version, wrapped, master";

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
    /// Stores or replaces a secret, together with the rest of the unit.
    pub fn put_secret(&mut self, secret: &SealedSecret) {
        self.unit.put_secret(self.tenant, secret);
    }

    pub fn delete_secret(&mut self, id: SecretId) {
        self.unit.op("delete from secrets where tenant_id = $1 and id = $2", params![self.tenant, id]);
    }
}

impl TenantStore {
    pub async fn find_secret(&self, id: SecretId) -> Result<Option<SealedSecret>, StoreError> {
        let sql = format!("select {SECRET_COLUMNS} from secrets where tenant_id = $1 and id = $2");
        self.query_one(sql, params![self.id, id]).await?.map(|row| sealed(&row)).transpose()
    }

    /// Finds the key that encrypts.
    pub async fn find_last_key(&self) -> Result<Option<WrappedKey>, StoreError> {
        let sql = format!("select {KEY_COLUMNS} from tenant_keys where tenant_id = $1 order by version desc limit 1");
        self.query_one(sql, params![self.id]).await?.map(|row| wrapped(&row)).transpose()
    }

    pub async fn find_key(&self, version: u32) -> Result<Option<WrappedKey>, StoreError> {
        let sql = format!("select {KEY_COLUMNS} from tenant_keys where tenant_id = $1 and version = $2");
        self.query_one(sql, params![self.id, version]).await?.map(|row| wrapped(&row)).transpose()
    }

    pub async fn list_keys(&self) -> Result<Vec<WrappedKey>, StoreError> {
        let sql = format!("select {KEY_COLUMNS} from tenant_keys where tenant_id = $1 order by version");
        self.query(sql, params![self.id]).await?.iter().map(wrapped).collect()
    }

    /// Lists secrets that are encrypted with an older key than the last one, after this id.
    pub async fn list_secrets_under_old_keys(
        &self,
        after: Option<SecretId>,
        limit: u64,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        let sql = format!(
            "select {SECRET_COLUMNS} from secrets where tenant_id = $1 and ($2 is null or id > $2)
             and key_version < (select max(version) from tenant_keys where tenant_id = $1) order by id limit $3"
        );
        let sql = match self.store.dialect() {
            Dialect::Postgres => sql.replace("$2 is null", "$2::uuid is null"),
            Dialect::Sqlite => sql,
        };
        self.query(sql, params![self.id, after, limit]).await?.iter().map(sealed).collect()
    }

    /// Replaces each first by its second, unless it was replaced or deleted meanwhile. Returns how many were replaced.
    pub async fn replace_sealed(&self, pairs: &[(SealedSecret, SealedSecret)]) -> Result<u64, StoreError> {
        let mut unit = self.write();
        let ops: Vec<_> = pairs
            .iter()
            .map(|(from, to)| {
                // Two ciphertexts are never the same, so this one shows whether the row is what was read.
                unit.unit.op(
                    "update secrets set key_version = $3, ciphertext = $4 where tenant_id = $1 and id = $2 and ciphertext = $5",
                    params![self.id, to.id, to.key_version, to.ciphertext.as_slice(), from.ciphertext.as_slice()],
                )
            })
            .collect();
        let committed = unit.commit_at(Effect::SealAgain).await?;
        Ok(ops.into_iter().map(|op| committed.changed(op)).sum())
    }
}

impl SystemStore {
    /// Adds a tenant key. Refused with [`Precondition::MasterKeyChanged`] unless the current master key wraps it. An
    /// existing version stays: read it again afterwards.
    pub async fn add_tenant_key(&self, tenant: TenantId, key: &WrappedKey) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        self.guard_current(&mut unit, &key.master);
        unit.op(INSERT_KEY, key_values(tenant, key));
        self.commit_at(Effect::MakeTenantKey, unit).await?;
        Ok(())
    }

    /// Lists the tenants with a key that this master key wraps.
    pub async fn list_tenants_wrapped_by(&self, master: &str) -> Result<Vec<TenantId>, StoreError> {
        let sql = "select distinct tenant_id from tenant_keys where master = $1 order by tenant_id";
        self.query(sql, params![master]).await?.iter().map(|row| row.get(0)).collect()
    }

    pub async fn list_tenants_with_keys(&self) -> Result<Vec<TenantId>, StoreError> {
        let sql = "select distinct tenant_id from tenant_keys order by tenant_id";
        self.query(sql, vec![]).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Rewraps all keys of a tenant with the current master key, adds a new one, and deletes those that encrypt nothing and were
    /// not the last one. Returns `false` if another process was first.
    pub async fn rotate_tenant_key(
        &self,
        tenant: TenantId,
        rewrapped: &[(WrappedKey, WrappedKey)],
        new: &WrappedKey,
    ) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        self.guard_current(&mut unit, &new.master);
        for (from, to) in rewrapped {
            unit.op_exactly(
                1,
                Precondition::TenantKeyChanged,
                "update tenant_keys set wrapped = $3, master = $4 where tenant_id = $1 and version = $2 and master = $5",
                params![tenant, to.version, to.wrapped.as_slice(), to.master.as_str(), from.master.as_str()],
            );
        }
        // The previous key stays until the next time: a process may have encrypted with it and not stored that yet.
        unit.op(
            "delete from tenant_keys where tenant_id = $1 and version < $2 - 1
             and not exists (select 1 from secrets s where s.tenant_id = $1 and s.key_version = tenant_keys.version)",
            params![tenant, new.version],
        );
        unit.op_exactly(1, Precondition::TenantKeyChanged, INSERT_KEY, key_values(tenant, new));
        let outcome = self.commit_at(Effect::RotateTenantKey, unit).await;
        match outcome {
            Ok(_) => Ok(true),
            Err(StoreError::Precondition(Precondition::TenantKeyChanged)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Refuses the unit unless this is the current master key, and locks it against a switch.
    fn guard_current(&self, unit: &mut Unit, master: &str) {
        let lock = match self.store.dialect() {
            Dialect::Postgres => "for share",
            Dialect::Sqlite => "",
        };
        unit.op_returning_exactly(
            1,
            Precondition::MasterKeyChanged,
            format!("select 1 from key_fingerprints where name = $1 and fingerprint = $2 and state = 'current' {lock}"),
            params![MASTER_KEY_NAME, master],
        );
    }
}

impl SystemStore {
    pub async fn list_master_fingerprints(&self) -> Result<Vec<MasterFingerprint>, StoreError> {
        let sql = "select fingerprint, state from key_fingerprints where name = $1 order by created_at, fingerprint";
        self.query(sql, params![MASTER_KEY_NAME])
            .await?
            .iter()
            .map(|row: &Row| {
                let state: String = row.get(1)?;
                let state = match state.as_str() {
                    "next" => MasterKeyState::Next,
                    "current" => MasterKeyState::Current,
                    "retiring" => MasterKeyState::Retiring,
                    _ => return Err(StoreError::corrupt(format!("a master key is {state}"))),
                };
                Ok(MasterFingerprint { fingerprint: row.get(0)?, state })
            })
            .collect()
    }

    /// Records a master key unless there is one; read them again to see which it is.
    pub async fn record_first_master_key(&self, fingerprint: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(ADD_MASTER_KEY, params![MASTER_KEY_NAME, fingerprint, "current"]);
        self.commit_at(Effect::RecordMasterKey, unit).await?;
        Ok(())
    }

    /// Announces the next master key, instead of any announced before: that one has wrapped nothing.
    pub async fn announce_master_key(&self, fingerprint: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "delete from key_fingerprints where name = $1 and state = 'next' and fingerprint <> $2",
            params![MASTER_KEY_NAME, fingerprint],
        );
        unit.op(ADD_MASTER_KEY, params![MASTER_KEY_NAME, fingerprint, "next"]);
        self.commit_at(Effect::AnnounceMasterKey, unit).await?;
        Ok(())
    }

    /// Makes the next master key the current one. Refused with [`Precondition::MasterKeyChanged`] when their states
    /// have changed.
    pub async fn switch_master_key(&self, current: &str, next: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        for (fingerprint, from, to) in [(current, "current", "retiring"), (next, "next", "current")] {
            unit.op_exactly(
                1,
                Precondition::MasterKeyChanged,
                "update key_fingerprints set state = $4 where name = $1 and fingerprint = $2 and state = $3",
                params![MASTER_KEY_NAME, fingerprint, from, to],
            );
        }
        invalidate_subscriptions(&mut unit);
        self.commit_at(Effect::TurnMasterKey, unit).await?;
        Ok(())
    }

    /// Forgets a retiring master key. Returns `false` if it still wraps something.
    pub async fn forget_master_key(&self, fingerprint: &str) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let forgotten = unit.op(
            "delete from key_fingerprints where name = $1 and fingerprint = $2 and state = 'retiring'
             and not exists (select 1 from tenant_keys where master = $2)",
            params![MASTER_KEY_NAME, fingerprint],
        );
        let committed = self.commit_at(Effect::ForgetMasterKey, unit).await?;
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

/// Reads a secret from this column on.
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
