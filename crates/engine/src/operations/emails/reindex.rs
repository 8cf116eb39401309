//! Requests a reindex.

use domain::TenantId;
use jiff::Timestamp;
use serde_json::json;

use crate::archive::reindex::ReindexScope;
use crate::operations::invocation::AuditedChange;
use crate::operations::{EMAIL_REINDEX, Invocation, Refusal};

/// Requests a reindex of a tenant's mail. Returns `false` if one is live already: then that one goes on as it is.
pub async fn reindex(
    call: &Invocation<'_, ()>,
    tenant: TenantId,
    scope: ReindexScope,
    since: Option<Timestamp>,
) -> Result<bool, Refusal> {
    call.check_tenant(&EMAIL_REINDEX, tenant).await?;
    let change = AuditedChange {
        after: Some(json!({"scope": scope, "since": since})),
        ..AuditedChange::new(&EMAIL_REINDEX, tenant, tenant)
    };
    let recording = call.record(change, &()).await?;
    let is_new = recording.engine.request_reindex(tenant, scope, since).await?;
    recording.finish().await?;
    Ok(is_new)
}
