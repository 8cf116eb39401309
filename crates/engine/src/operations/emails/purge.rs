//! Purges emails.

use domain::{EmailId, TenantId};
use serde_json::json;

use crate::operations::invocation::AuditedChange;
use crate::operations::{EMAIL_PURGE, Invocation, Refusal};

/// The ids that an audit entry lists; it has the number of all.
const MAX_AUDITED_IDS: usize = 1000;

/// Purges emails for good; returns how many. Their bytes are left to the collector.
pub async fn purge(call: &Invocation<'_, u64>, tenant: TenantId, ids: &[EmailId]) -> Result<u64, Refusal> {
    call.check_tenant(&EMAIL_PURGE, tenant).await?;
    let change = AuditedChange {
        after: Some(json!({"found": ids.len(), "ids": &ids[..ids.len().min(MAX_AUDITED_IDS)]})),
        ..AuditedChange::new(&EMAIL_PURGE, tenant, tenant)
    };
    let begun = call.record_intent(change).await?;
    let purged = match call.engine.purge(&call.engine.store.tenant(tenant), ids).await {
        Ok(purged) => purged,
        Err(e) => return Err(call.explain(&EMAIL_PURGE, tenant, e.into()).await),
    };
    call.engine.store.system().scrub(&|| {}).await?;
    call.record_reply(begun, &purged).await?;
    Ok(purged)
}
