//! API keys: only a hash of the secret is stored.

use domain::{ApiKeyId, PlanTier, Sha256, TenantId};
use jiff::Timestamp;
use serde::Serialize;

use super::any;
use crate::failpoint::Effect;
use crate::{Precondition, Row, StoreError, SystemStore, TenantStore, Unit, params};

#[derive(Debug, Clone, Serialize)]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub name: String,
    pub scopes: Vec<String>,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

#[derive(Debug)]
pub struct NewApiKey<'a> {
    pub id: ApiKeyId,
    pub name: &'a str,
    pub key_hash: Sha256,
    pub scopes: &'a [String],
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

impl TenantStore {
    pub async fn create_api_key(&self, key: NewApiKey<'_>) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op(
            "insert into api_keys (id, tenant_id, name, key_hash, scopes, expires_at, created_at)
             values ($1, $2, $3, $4, $5, $6, $7)",
            params![
                key.id,
                self.id,
                key.name,
                key.key_hash,
                serde_json::json!(key.scopes),
                key.expires_at,
                key.created_at
            ],
        );
        unit.commit().await.map(drop)
    }

    pub async fn list_api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let sql = "select id, name, scopes, expires_at, last_used_at, revoked_at, created_at
                   from api_keys where tenant_id = $1 order by created_at, id";
        self.query(sql, params![self.id]).await?.iter().map(api_key).collect()
    }

    /// Revokes a key; returns whether there was one that was not revoked yet.
    pub async fn revoke_api_key(&self, id: ApiKeyId) -> Result<bool, StoreError> {
        let mut unit = self.write();
        unit.unit.op_exactly(
            1,
            Precondition::NoSuchApiKey,
            "update api_keys set revoked_at = mailroom_now() where tenant_id = $1 and id = $2 and revoked_at is null",
            params![self.id, id],
        );
        match unit.commit().await {
            Ok(_) => Ok(true),
            Err(StoreError::Precondition(Precondition::NoSuchApiKey)) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// The owner and rights of a valid API key.
#[derive(Debug, Clone)]
pub struct KeyHolder {
    pub key: ApiKeyId,
    pub tenant: TenantId,
    pub is_tenant_active: bool,
    pub plan: PlanTier,
    pub scopes: Vec<String>,
}

/// The name of the operator's key among the fingerprints; its fingerprint is its whole hash, because it is random.
const OPERATOR_KEY_NAME: &str = "operator";

impl SystemStore {
    /// Finds the holder of a key that is neither revoked nor expired. One query per request, so that a revocation holds at
    /// once, everywhere.
    pub async fn find_key_holder(&self, key_hash: Sha256) -> Result<Option<KeyHolder>, StoreError> {
        let sql = "select k.id, k.tenant_id, t.is_active, k.scopes, t.plan_tier from api_keys k join tenants t on t.id = k.tenant_id
                   where k.key_hash = $1 and k.revoked_at is null
                   and (k.expires_at is null or k.expires_at > (select mailroom_now()))";
        let Some(row) = self.query_one(sql, params![key_hash]).await? else { return Ok(None) };
        let holder = KeyHolder {
            key: row.get(0)?,
            tenant: row.get(1)?,
            is_tenant_active: row.get(2)?,
            scopes: scopes(&row, 3)?,
            plan: row.get(4)?,
        };
        Ok(Some(holder))
    }

    /// Records that these keys were used now.
    pub async fn record_key_uses(&self, keys: Vec<ApiKeyId>) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        let sql =
            format!("update api_keys set last_used_at = mailroom_now() where {}", any(self.store.dialect(), "id", 1));
        unit.op(sql, params![keys]);
        self.commit(unit).await.map(drop)
    }

    pub async fn find_operator_key(&self) -> Result<Option<String>, StoreError> {
        let sql = "select fingerprint from key_fingerprints where name = $1 and state = 'current'";
        self.query_one(sql, params![OPERATOR_KEY_NAME]).await?.map(|row| row.get(0)).transpose()
    }

    /// Records a key unless there is one; read it again to see which it is.
    pub async fn record_first_operator_key(&self, key_hash: Sha256) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "insert into key_fingerprints (name, fingerprint, state, created_at)
             values ($1, $2, 'current', mailroom_now()) on conflict do nothing",
            params![OPERATOR_KEY_NAME, key_hash.hex()],
        );
        self.commit_at(Effect::RecordOperatorKey, unit).await?;
        Ok(())
    }
}

fn scopes(row: &Row, column: usize) -> Result<Vec<String>, StoreError> {
    let scopes: serde_json::Value = row.get(column)?;
    serde_json::from_value(scopes).map_err(|e| StoreError::corrupt(format!("scopes of a key: {e}")))
}

fn api_key(row: &Row) -> Result<ApiKey, StoreError> {
    Ok(ApiKey {
        id: row.get(0)?,
        name: row.get(1)?,
        scopes: scopes(row, 2)?,
        expires_at: row.get(3)?,
        last_used_at: row.get(4)?,
        revoked_at: row.get(5)?,
        created_at: row.get(6)?,
    })
}
