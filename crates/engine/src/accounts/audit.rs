//! Verifies the audit: the hash of each entry must follow from the one before.

use domain::{Actor, TenantId};
use jiff::Timestamp;
use serde::Serialize;
use store::StoreError;
use store::sql::audit::chain_hash;

use crate::Engine;

const BATCH_ENTRIES: u64 = 1000;

/// The result of verifying one hash chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainReport {
    pub tenant_id: TenantId,
    /// Entries that are as they were written.
    pub entries: u64,
    /// The hash of the last of these. Noted elsewhere, it shows later that nothing before was touched.
    pub head: String,
    /// The first entry that is wrong.
    pub broken: Option<ChainBreak>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainBreak {
    pub seq: u64,
    pub problem: &'static str,
}

impl Engine {
    /// Verifies the chain of a tenant, or all chains; one that grows meanwhile is followed as far as it goes.
    pub async fn verify_audit(&self, tenant: Option<TenantId>) -> Result<Vec<ChainReport>, StoreError> {
        let tenants = match tenant {
            Some(tenant) => vec![tenant],
            None => self.store.system().list_audited_tenants().await?,
        };
        let mut report = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            report.push(self.verify_chain(tenant).await?);
        }
        Ok(report)
    }

    async fn verify_chain(&self, tenant: TenantId) -> Result<ChainReport, StoreError> {
        let system = self.store.system();
        // Read first, so that entries that are added meanwhile are beyond it.
        let head = system.find_audit_head(tenant).await?;
        let mut report = ChainReport { tenant_id: tenant, entries: 0, head: String::new(), broken: None };
        loop {
            let entries = system.read_audit(tenant, report.entries, BATCH_ENTRIES).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let expected = report.entries + 1;
                if entry.seq != expected {
                    return Ok(ChainReport { broken: chain_break(expected, "it is missing"), ..report });
                }
                if entry.hash != chain_hash(&report.head, &entry.entry) {
                    return Ok(ChainReport {
                        broken: chain_break(entry.seq, "it or an earlier entry was altered"),
                        ..report
                    });
                }
                if entry_time(&entry.entry) != Some(entry.at.as_millisecond()) {
                    return Ok(ChainReport { broken: chain_break(entry.seq, "its time was altered"), ..report });
                }
                if head.as_ref().is_some_and(|head| head.seq == entry.seq && head.hash != entry.hash) {
                    return Ok(ChainReport {
                        broken: chain_break(entry.seq, "its hash differs from the recorded last hash"),
                        ..report
                    });
                }
                report.entries = entry.seq;
                report.head = entry.hash;
            }
        }
        if head.as_ref().map_or(0, |head| head.seq) > report.entries {
            report.broken = chain_break(report.entries + 1, "it is missing");
        } else if head.is_none() && report.entries > 0 {
            report.broken = chain_break(report.entries, "the record of the last entry is missing");
        }
        Ok(report)
    }
}

fn chain_break(seq: u64, problem: &'static str) -> Option<ChainBreak> {
    Some(ChainBreak { seq, problem })
}

/// Returns the time within an entry, in milliseconds as it is stored.
fn entry_time(entry: &str) -> Option<i64> {
    let entry: serde_json::Value = serde_json::from_str(entry).ok()?;
    let at: Timestamp = entry["at"].as_str()?.parse().ok()?;
    Some(at.as_millisecond())
}

/// One change as it is recorded in the audit. Nothing in it is secret.
#[derive(Debug, Clone, Serialize)]
pub struct AuditRecord {
    pub at: Timestamp,
    pub actor: Actor,
    /// `tenant.create`
    pub action: &'static str,
    /// The id or name of what was changed.
    pub target: String,
    pub address: Option<String>,
    pub request_id: Option<String>,
    pub before: Option<serde_json::Value>,
    pub after: Option<serde_json::Value>,
}

impl AuditRecord {
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}
