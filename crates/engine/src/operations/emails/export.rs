//! Exports emails to files.

use std::path::PathBuf;

use content::query;
use domain::{MailboxId, TenantId};
use serde_json::json;

use crate::Progress;
use crate::archive::export::ExportFormat;
use crate::operations::invocation::AuditedChange;
use crate::operations::{EMAIL_EXPORT, Invocation, Refusal};

/// Emails to export, and where to.
#[derive(Debug, Clone)]
pub struct ExportRequest {
    pub query: String,
    /// Soft-deleted emails that match, too.
    pub includes_deleted: bool,
    pub mailbox: Option<MailboxId>,
    pub format: ExportFormat,
    /// The file or folder to create.
    pub out: PathBuf,
}

/// Exports emails, byte for byte; returns how many. On record from its beginning.
pub async fn export(
    call: &Invocation<'_, u64>,
    tenant: TenantId,
    request: &ExportRequest,
    progress: &Progress,
) -> Result<u64, Refusal> {
    let ExportRequest { query, includes_deleted, mailbox, format, out } = request;
    let mut parsed = query::parse(query).map_err(|e| Refusal::invalid("query", e.to_string()))?;
    if *includes_deleted {
        parsed = parsed.including_deleted();
    }
    let change = AuditedChange {
        after: Some(json!({
            "query": query, "includes_deleted": includes_deleted, "mailbox": mailbox, "out": out.display().to_string(),
        })),
        ..AuditedChange::new(&EMAIL_EXPORT, tenant, tenant)
    };
    let begun = call.record_intent(change).await?;
    let store = call.engine.store.tenant(tenant);
    let exported = call.engine.export(&store, &parsed, *mailbox, *format, out, progress).await?;
    call.record_reply(begun, &exported).await?;
    Ok(exported)
}
