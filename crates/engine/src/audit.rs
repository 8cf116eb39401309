//! Whether the audit is what was written: each entry's hash must follow from the one before.

use domain::TenantId;
use jiff::Timestamp;
use serde::Serialize;
use store::StoreError;
use store::sql::audit::chained;

use crate::Engine;

const BATCH: u64 = 1000;

/// What became of one chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub tenant_id: TenantId,
    /// Entries that are as they were written.
    pub entries: u64,
    /// The hash of the last of these. Noted elsewhere, it shows later that nothing before was touched.
    pub head: String,
    /// The first thing that is wrong.
    pub broken: Option<Broken>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    pub seq: u64,
    pub problem: &'static str,
}

impl Engine {
    /// All chains; those that are appended to meanwhile are followed as far as they go.
    pub async fn verify_audit(&self, tenant: Option<TenantId>) -> Result<Vec<Verified>, StoreError> {
        let audited = match tenant {
            Some(tenant) => vec![tenant],
            None => self.store.system().list_audited().await?,
        };
        let mut verified = Vec::with_capacity(audited.len());
        for tenant in audited {
            verified.push(self.verify_chain(tenant).await?);
        }
        Ok(verified)
    }

    async fn verify_chain(&self, tenant: TenantId) -> Result<Verified, StoreError> {
        let system = self.store.system();
        // First, so that whatever comes meanwhile is beyond it.
        let head = system.find_audit_head(tenant).await?;
        let mut verified = Verified { tenant_id: tenant, entries: 0, head: String::new(), broken: None };
        let broken = |seq, problem| Some(Broken { seq, problem });
        loop {
            let entries = system.read_audit(tenant, verified.entries, BATCH).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let expected = verified.entries + 1;
                if entry.seq != expected {
                    return Ok(Verified { broken: broken(expected, "it is missing"), ..verified });
                }
                if entry.hash != chained(&verified.head, &entry.entry) {
                    return Ok(Verified { broken: broken(entry.seq, "it was altered, or one before it"), ..verified });
                }
                if said_at(&entry.entry) != Some(entry.at.as_millisecond()) {
                    return Ok(Verified { broken: broken(entry.seq, "its time was altered"), ..verified });
                }
                if head.as_ref().is_some_and(|head| head.seq == entry.seq && head.hash != entry.hash) {
                    return Ok(Verified {
                        broken: broken(entry.seq, "it is not the one that was the last"),
                        ..verified
                    });
                }
                verified.entries = entry.seq;
                verified.head = entry.hash;
            }
        }
        if head.as_ref().map_or(0, |head| head.seq) > verified.entries {
            verified.broken = broken(verified.entries + 1, "it is missing");
        } else if head.is_none() && verified.entries > 0 {
            verified.broken = broken(verified.entries, "nothing says that it is the last");
        }
        Ok(verified)
    }
}

/// Times are kept to the millisecond.
fn said_at(entry: &str) -> Option<i64> {
    let entry: serde_json::Value = serde_json::from_str(entry).ok()?;
    let at: Timestamp = entry["at"].as_str()?.parse().ok()?;
    Some(at.as_millisecond())
}

/// One change, as it stands in the audit. Nothing in it is secret.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub at: Timestamp,
    /// `operator`, `key:<id>`, `command:<user>`.
    pub actor: String,
    /// `tenant.create`
    pub action: &'static str,
    /// The id or name of what is changed.
    pub target: String,
    pub address: Option<String>,
    pub request_id: Option<String>,
    pub before: Option<serde_json::Value>,
    pub after: Option<serde_json::Value>,
}

impl Entry {
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}
