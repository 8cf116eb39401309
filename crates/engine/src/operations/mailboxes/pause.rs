//! Pauses a mailbox.

use domain::{MailboxEvent, MailboxId, TenantId};
use store::Precondition;
use store::sql::mailboxes::Mailbox;

use super::next_row::NextMailbox;
use super::{MAX_ATTEMPTS, audited, check_connected, conflict, find};
use crate::operations::{Invocation, MAILBOX_PAUSE, Refusal};

const REASON: &str = "paused on request";

/// Pauses a mailbox: its provider is not called until it is resumed. A paused one stays as it is.
pub async fn pause(call: &Invocation<'_, Mailbox>, tenant: TenantId, id: MailboxId) -> Result<Mailbox, Refusal> {
    call.check_tenant(&MAILBOX_PAUSE, tenant).await?;
    for _ in 0..MAX_ATTEMPTS {
        match attempt(call, tenant, id).await {
            Err(refusal) if refusal.is(Precondition::MailboxChanged) => {}
            done => return done,
        }
    }
    Err(conflict())
}

async fn attempt(call: &Invocation<'_, Mailbox>, tenant: TenantId, id: MailboxId) -> Result<Mailbox, Refusal> {
    let before = find(call, tenant, id).await?;
    check_connected(&before)?;
    let after = NextMailbox::of(&before, call.now).after(MailboxEvent::Paused, Some(REASON)).row();
    let recording = call.record(audited(&MAILBOX_PAUSE, Some(&before), &after), &after).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    unit.replace_mailbox(&before, &after);
    unit.commit().await?;
    recording.finish().await?;
    Ok(after)
}
