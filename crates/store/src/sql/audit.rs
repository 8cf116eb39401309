//! The audit log: who changed what, in the order of commits. Each entry's hash covers the hash before it and the entry's
//! bytes, so that an altered, removed or inserted entry is detected.

use domain::{Sha256, TenantId};
use jiff::Timestamp;

use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, Unit, params};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub seq: u64,
    pub at: Timestamp,
    /// JSON; its bytes are what the hash covers.
    pub entry: String,
    pub hash: String,
}

/// The last entry of a hash chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHead {
    pub tenant: TenantId,
    pub seq: u64,
    pub hash: String,
}

const COLUMNS: &str = "seq, at, entry, hash";

/// Returns the hash of an entry that follows the one with that hash; the first follows the empty text.
pub fn chain_hash(before: &str, entry: &str) -> String {
    Sha256::of(format!("{before}{entry}").as_bytes()).hex()
}

impl Unit {
    /// Appends an entry, as the last operation of the unit: a unit that holds the head is about to commit.
    pub(crate) fn audit(&mut self, dialect: Dialect, tenant: TenantId, at: Timestamp, entry: &str) {
        let text = match dialect {
            Dialect::Postgres => "$2::text",
            Dialect::Sqlite => "$2",
        };
        let (first, next) = (sha256(dialect, text), sha256(dialect, &format!("audit_heads.hash || {text}")));
        self.op(
            format!(
                "insert into audit_heads (tenant_id, seq, hash) values ($1, 1, {first})
                 on conflict (tenant_id) do update set seq = audit_heads.seq + 1, hash = {next}"
            ),
            params![tenant, entry],
        );
        self.op(
            "insert into audit (tenant_id, seq, at, entry, hash)
             select tenant_id, seq, $2, $3, hash from audit_heads where tenant_id = $1",
            params![tenant, at, entry],
        );
    }
}

fn sha256(dialect: Dialect, text: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("encode(sha256(convert_to({text}, 'UTF8')), 'hex')"),
        Dialect::Sqlite => format!("mailroom_sha256({text})"),
    }
}

impl TenantStore {
    /// Lists entries, the newest first, before a given number.
    pub async fn list_audit(&self, before: Option<u64>, limit: u64) -> Result<Vec<AuditEntry>, StoreError> {
        let before = before.unwrap_or(i64::MAX as u64);
        let sql = format!("select {COLUMNS} from audit where tenant_id = $1 and seq < $2 order by seq desc limit $3");
        self.query(sql, params![self.id, before, limit]).await?.iter().map(entry).collect()
    }
}

impl SystemStore {
    /// Lists the tenants that have an entry or a head.
    pub async fn list_audited_tenants(&self) -> Result<Vec<TenantId>, StoreError> {
        let sql = "select tenant_id from audit_heads union select distinct tenant_id from audit order by 1";
        self.query(sql, vec![]).await?.iter().map(|row| row.get(0)).collect()
    }

    pub async fn find_audit_head(&self, tenant: TenantId) -> Result<Option<AuditHead>, StoreError> {
        let row = self.query_one("select seq, hash from audit_heads where tenant_id = $1", params![tenant]).await?;
        row.map(|row| Ok(AuditHead { tenant, seq: row.get(0)?, hash: row.get(1)? })).transpose()
    }

    /// Reads entries in their order, after a number.
    pub async fn read_audit(&self, tenant: TenantId, after: u64, limit: u64) -> Result<Vec<AuditEntry>, StoreError> {
        let sql = format!("select {COLUMNS} from audit where tenant_id = $1 and seq > $2 order by seq limit $3");
        self.query(sql, params![tenant, after, limit]).await?.iter().map(entry).collect()
    }
}

fn entry(row: &Row) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry { seq: row.get(0)?, at: row.get(1)?, entry: row.get(2)?, hash: row.get(3)? })
}
