//! Erases a tenant, table by table and in batches.

use super::tenants::Tenant;
use crate::{Dialect, Precondition, StoreError, SystemStore, Unit, params};
use domain::TenantId;
use jiff::SignedDuration;

/// Few enough that no other unit waits noticeably.
const ERASE_BATCH_ROWS: u64 = 5000;

/// Tables that can be emptied directly, in the order of their foreign keys. Mail is purged before, and bytes are collected
/// after.
const TABLES: &[(&str, &str)] = &[
    ("webhook_deliveries", "id"),
    ("webhooks", "id"),
    ("idempotency_keys", "key_hash"),
    ("discarded_emails", "email_id"),
    ("restored_emails", "email_id"),
    ("secrets", "id"),
    ("tenant_keys", "version"),
    ("event_drafts", "unit"),
    ("events", "seq"),
    ("event_gaps", "after_seq"),
    ("provider_usage", "hour"),
    ("push_watches", "mailbox_id"),
    ("sync_cursors", "mailbox_id"),
    ("sync_states", "mailbox_id"),
    ("email_contents", "mailbox_id"),
    ("placements", "provider_message_id"),
    ("ledger", "provider_message_id"),
    ("folders", "id"),
    ("users", "id"),
    ("directories", "provider"),
    ("mailboxes", "id"),
    ("api_keys", "id"),
    ("probe_effects", "job_id"),
    ("job_edges", "child_id"),
    ("jobs", "id"),
    ("job_keys", "order_key"),
    ("job_attempts", "job_id"),
    ("finished_jobs", "id"),
    ("job_schedules", "name"),
];

impl SystemStore {
    /// Deletes a batch of a tenant's rows; returns whether there may be more.
    pub async fn erase_rows(&self, tenant: TenantId) -> Result<bool, StoreError> {
        for (table, key) in TABLES {
            let mut unit = Unit::default();
            unit.request_scrub(self.store.dialect());
            let erased = unit.op(
                format!(
                    "delete from {table} where tenant_id = $1 and {key} in (
                         select {key} from {table} where tenant_id = $1 limit $2)"
                ),
                params![tenant, ERASE_BATCH_ROWS],
            );
            if self.commit(unit).await?.changed(erased) > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a pack was announced within the last hour and is not recorded yet.
    pub async fn is_writing_packs(&self, tenant: TenantId) -> Result<bool, StoreError> {
        let since = self.now().await? - SignedDuration::from_hours(1);
        let sql = "select 1 from packs where tenant_id = $1 and state = 'writing' and created_at > $2 limit 1";
        Ok(self.query_one(sql, params![tenant, since]).await?.is_some())
    }

    /// Deletes the tenant itself, with an entry in the system's audit that records where its own audit ended. Returns `false` if
    /// blobs or packs are left.
    pub async fn forget_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        let left = "select 1 where exists (select 1 from blobs where tenant_id = $1)
                    or exists (select 1 from packs where tenant_id = $1)";
        if self.query_one(left, params![tenant.id]).await?.is_some() {
            return Ok(false);
        }
        let head = self.find_audit_head(tenant.id).await?;
        let now = self.now().await?;
        let entry = serde_json::json!({
            "at": now, "actor": "system", "action": "tenant.erase", "target": tenant.id, "address": null, "request_id": null,
            "before": {"name": tenant.name, "deleted_at": tenant.deleted_at, "audit_seq": head.as_ref().map(|head| head.seq),
                       "audit_hash": head.map(|head| head.hash)},
            "after": null,
        });
        let mut unit = Unit::default();
        unit.request_scrub(self.store.dialect());
        let mut tables = vec!["audit", "audit_heads", "tenant_counters", "job_queues", "job_tenants"];
        if self.store.dialect() == Dialect::Postgres {
            tables.extend(["job_arrivals", "sql_readers"]);
        }
        for table in tables {
            unit.op(format!("delete from {table} where tenant_id = $1"), params![tenant.id]);
        }
        unit.op_exactly(
            1,
            Precondition::TenantChanged,
            "delete from tenants where id = $1 and version = $2",
            params![tenant.id, tenant.version],
        );
        unit.audit(self.store.dialect(), TenantId::SYSTEM, now, &entry.to_string());
        self.commit(unit).await?;
        Ok(true)
    }
}
