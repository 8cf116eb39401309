//! Requests a sync of a mailbox.

use domain::{MailboxId, Provider, TenantId};
use serde_json::json;
use store::sql::mailboxes::Mailbox;

use super::find;
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, MAILBOX_SYNC, Refusal};

/// Requests a sync of a mailbox now, instead of at its next time. Returns the mailbox, which stays as it is.
pub async fn sync(call: &Invocation<'_, Mailbox>, tenant: TenantId, id: MailboxId) -> Result<Mailbox, Refusal> {
    call.check_tenant(&MAILBOX_SYNC, tenant).await?;
    let mailbox = find(call, tenant, id).await?;
    if !mailbox.provider.capabilities().is_remote || !mailbox.is_sync_enabled() {
        return Err(Refusal::Conflict(format!("this mailbox {} and cannot be synced", describe_state(&mailbox))));
    }
    let change = AuditedChange {
        before: Some(json!({"state": mailbox.state})),
        ..AuditedChange::new(&MAILBOX_SYNC, tenant, id)
    };
    let recording = call.record(change, &mailbox).await?;
    recording.engine.request_sync(&mailbox).await?;
    recording.finish().await?;
    Ok(mailbox)
}

/// Completes the sentence "this mailbox …".
fn describe_state(mailbox: &Mailbox) -> String {
    match mailbox.provider {
        Provider::Files => "is for imported files".to_owned(),
        _ if !mailbox.is_active => "belongs to a user whom the directory or its rules exclude".to_owned(),
        _ => format!("is {}", mailbox.state.as_str()),
    }
}
