//! Backs up everything.

use std::path::Path;
use std::sync::Arc;

use domain::TenantId;
use serde_json::json;

use crate::Progress;
use crate::archive::backup::BackupSummary;
use crate::operations::invocation::AuditedChange;
use crate::operations::{BACKUP, Invocation, Refusal};

/// Copies the database and all objects into a folder. On record from its beginning.
pub async fn backup(
    call: &Invocation<'_, BackupSummary>,
    folder: &Path,
    dump_url: Option<&str>,
    progress: &Arc<Progress>,
) -> Result<BackupSummary, Refusal> {
    let change = AuditedChange {
        after: Some(json!({"out": folder.display().to_string()})),
        ..AuditedChange::new(&BACKUP, TenantId::SYSTEM, "everything")
    };
    let begun = call.record_intent(change).await?;
    let summary = call.engine.backup(folder, dump_url, progress).await?;
    call.record_reply(begun, &summary).await?;
    Ok(summary)
}
