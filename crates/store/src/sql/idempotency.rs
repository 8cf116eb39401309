//! Kept replies to requests with an idempotency key.

use domain::{Sha256, TenantId};
use jiff::{SignedDuration, Timestamp};

use super::columns_of;
use super::secrets::{SECRET_COLUMNS, SealedSecret, sealed_from};
use crate::{Precondition, Row, StoreError, SystemStore, Unit, params};

/// How long a reply is kept for a repeated request.
const REPLY_RETENTION: SignedDuration = SignedDuration::from_hours(24);

/// The reply to a request with an idempotency key, returned again when the request is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredReply {
    /// The owner of the idempotency key.
    pub tenant: TenantId,
    pub key_hash: Sha256,
    pub request_hash: Sha256,
    pub status: u16,
    /// Headers besides those that every reply has.
    pub headers: Vec<(String, String)>,
    pub body: ReplyBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBody {
    Plain(String),
    /// A body that shows a secret.
    Sealed(SealedSecret),
}

impl Unit {
    pub(crate) fn put_reply(&mut self, answer: &StoredReply, at: Timestamp) {
        let (body, secret) = match &answer.body {
            ReplyBody::Plain(body) => (Some(body.as_str()), None),
            ReplyBody::Sealed(secret) => (None, Some(secret)),
        };
        // A reply that is too old is dropped, with the secret that it showed.
        self.op(
            "delete from secrets where tenant_id = $1 and id = (
                 select secret_id from idempotency_keys where tenant_id = $1 and key_hash = $2 and created_at <= $3)",
            params![answer.tenant, answer.key_hash, at - REPLY_RETENTION],
        );
        if let Some(secret) = secret {
            self.put_secret(answer.tenant, secret);
        }
        self.op_exactly(
            1,
            Precondition::IdempotencyKeyInUse,
            "insert into idempotency_keys (tenant_id, key_hash, request_hash, status, headers, body, secret_id, created_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8)
             on conflict (tenant_id, key_hash) do update set request_hash = excluded.request_hash,
                 status = excluded.status, headers = excluded.headers, body = excluded.body,
                 secret_id = excluded.secret_id, created_at = excluded.created_at
             where idempotency_keys.created_at <= $9",
            params![
                answer.tenant,
                answer.key_hash,
                answer.request_hash,
                u32::from(answer.status),
                serde_json::json!(answer.headers),
                body,
                secret.map(|secret| secret.id),
                at,
                at - REPLY_RETENTION,
            ],
        );
    }
}

impl SystemStore {
    /// Finds the kept reply to a request, unless it is too old.
    pub async fn find_reply(&self, tenant: TenantId, key_hash: Sha256) -> Result<Option<StoredReply>, StoreError> {
        let since = self.now().await? - REPLY_RETENTION;
        let sql = format!(
            "select k.request_hash, k.status, k.headers, k.body, {}
             from idempotency_keys k left join secrets s on s.tenant_id = k.tenant_id and s.id = k.secret_id
             where k.tenant_id = $1 and k.key_hash = $2 and k.created_at > $3",
            columns_of("s", SECRET_COLUMNS)
        );
        let Some(row) = self.query_one(sql, params![tenant, key_hash, since]).await? else { return Ok(None) };
        let headers: serde_json::Value = row.get(2)?;
        let status: u64 = row.get(1)?;
        Ok(Some(StoredReply {
            tenant,
            key_hash,
            request_hash: row.get(0)?,
            status: u16::try_from(status).map_err(corrupt)?,
            headers: serde_json::from_value(headers).map_err(corrupt)?,
            body: body(&row)?,
        }))
    }

    /// Deletes replies that are too old; returns whether there may be more of them.
    pub async fn prune_replies(&self, limit: u64) -> Result<bool, StoreError> {
        let until = self.now().await? - REPLY_RETENTION;
        let old = "(select key_hash from idempotency_keys where created_at <= $1 order by created_at limit $2)";
        let mut unit = Unit::default();
        unit.op(
            format!(
                "delete from secrets where (tenant_id, id) in (
                     select tenant_id, secret_id from idempotency_keys where created_at <= $1 and key_hash in {old})"
            ),
            params![until, limit],
        );
        let pruned = unit.op(
            format!("delete from idempotency_keys where created_at <= $1 and key_hash in {old}"),
            params![until, limit],
        );
        Ok(self.commit(unit).await?.changed(pruned) >= limit)
    }
}

fn corrupt(e: impl std::fmt::Display) -> StoreError {
    StoreError::corrupt(format!("a kept reply is not readable: {e}"))
}

fn body(row: &Row) -> Result<ReplyBody, StoreError> {
    match row.get::<Option<String>>(3)? {
        Some(body) => Ok(ReplyBody::Plain(body)),
        None => Ok(ReplyBody::Sealed(sealed_from(row, 4)?)),
    }
}
