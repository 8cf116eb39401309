//! Applies the removals of a mailbox that are held back.

use domain::{MailboxId, TenantId};
use serde_json::json;
use store::sql::mailboxes::Mailbox;

use super::find;
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, MAILBOX_APPLY_REMOVALS, Refusal};
use crate::sync::RemoveMissing;

/// Removes what is missing at the provider now, although it is so much that it would be held back for longer. Returns the
/// mailbox, which stays as it is.
pub async fn apply_removals(
    call: &Invocation<'_, Mailbox>,
    tenant: TenantId,
    id: MailboxId,
) -> Result<Mailbox, Refusal> {
    call.check_tenant(&MAILBOX_APPLY_REMOVALS, tenant).await?;
    let mailbox = find(call, tenant, id).await?;
    let state = call.engine.store.tenant(tenant).find_sync_state(id).await?;
    let Some(held) = state.and_then(|state| state.held_removals) else {
        return Err(Refusal::Conflict("no removals of this mailbox are held back".to_owned()));
    };
    let change = AuditedChange {
        before: Some(json!({"missing": held.messages, "since": held.since})),
        ..AuditedChange::new(&MAILBOX_APPLY_REMOVALS, tenant, id)
    };
    let recording = call.record(change, &mailbox).await?;
    let store = &recording.engine.store;
    let mut unit = store.tenant(tenant).write();
    unit.approve_removals(id);
    unit.enqueue(vec![RemoveMissing::request(store.clock(), id).map_err(anyhow::Error::from)?]);
    unit.commit().await?;
    recording.finish().await?;
    Ok(mailbox)
}
