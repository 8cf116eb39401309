//! Imports mail files.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use store::sql::mailboxes::Mailbox;

use crate::Progress;
use crate::archive::import::{ImportSummary, OnProblem, OpenImport};
use crate::operations::invocation::AuditedChange;
use crate::operations::{EMAIL_IMPORT, Invocation, Refusal};

/// The paths that an audit entry lists; it has the number of all.
const MAX_AUDITED_PATHS: usize = 10;

/// Imports opened files into a mailbox. On record from its beginning. `paths`: what was opened.
pub async fn import(
    call: &Invocation<'_, ImportSummary>,
    mailbox: &Mailbox,
    paths: &[PathBuf],
    opened: OpenImport,
    progress: Arc<Progress>,
    on_problem: OnProblem,
) -> Result<ImportSummary, Refusal> {
    call.check_tenant(&EMAIL_IMPORT, mailbox.tenant_id).await?;
    let audited: Vec<String> = paths.iter().take(MAX_AUDITED_PATHS).map(|path| path.display().to_string()).collect();
    let change = AuditedChange {
        after: Some(json!({"address": mailbox.address, "paths": audited, "path_count": paths.len()})),
        ..AuditedChange::new(&EMAIL_IMPORT, mailbox.tenant_id, mailbox.id)
    };
    let begun = call.record_intent(change).await?;
    let summary = call.engine.import(mailbox, opened, progress, on_problem).await?;
    call.record_reply(begun, &summary).await?;
    Ok(summary)
}
