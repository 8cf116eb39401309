//! API keys: only a hash of the secret is here.

use domain::{ApiKeyId, Sha256};
use jiff::Timestamp;
use serde::Serialize;

use crate::{Row, StoreError, TenantStore, params};

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
}

impl TenantStore {
    pub async fn create_api_key(&self, key: NewApiKey<'_>) -> Result<(), StoreError> {
        let mut unit = self.write();
        unit.unit.op(
            "insert into api_keys (id, tenant_id, name, key_hash, scopes, expires_at, created_at)
             values ($1, $2, $3, $4, $5, $6, mailroom_now())",
            params![key.id, self.id, key.name, key.key_hash, serde_json::json!(key.scopes), key.expires_at],
        );
        unit.commit().await.map(drop)
    }

    pub async fn list_api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let sql = "select id, name, scopes, expires_at, last_used_at, revoked_at, created_at
                   from api_keys where tenant_id = $1 order by created_at, id";
        self.query(sql, params![self.id]).await?.iter().map(api_key).collect()
    }

    /// Whether there was such a key that was not revoked yet.
    pub async fn revoke_api_key(&self, id: ApiKeyId) -> Result<bool, StoreError> {
        let mut unit = self.write();
        let revoked = unit.unit.op(
            "update api_keys set revoked_at = mailroom_now() where tenant_id = $1 and id = $2 and revoked_at is null",
            params![self.id, id],
        );
        Ok(unit.commit().await?.changed(revoked) == 1)
    }
}

fn api_key(row: &Row) -> Result<ApiKey, StoreError> {
    let scopes: serde_json::Value = row.get(2)?;
    Ok(ApiKey {
        id: row.get(0)?,
        name: row.get(1)?,
        scopes: serde_json::from_value(scopes).map_err(|e| StoreError::corrupt(format!("scopes of a key: {e}")))?,
        expires_at: row.get(3)?,
        last_used_at: row.get(4)?,
        revoked_at: row.get(5)?,
        created_at: row.get(6)?,
    })
}
