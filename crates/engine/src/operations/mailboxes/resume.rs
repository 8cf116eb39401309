//! Resumes a mailbox.

use domain::{MailboxEvent, MailboxId, Secret, SecretId, TenantId};
use serde_json::json;
use store::Precondition;
use store::sql::mailboxes::Mailbox;

use super::next_row::NextMailbox;
use super::{MAX_ATTEMPTS, audited, check_connected, conflict, enqueue_forgotten, enqueue_sync, find, seal};
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, MAILBOX_RESUME, Operation, Refusal};
use crate::sync::FetchFailed;
use crate::sync::push::request_watch;

/// What a mailbox is resumed with.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResumeRequest<'a> {
    /// Replaces the stored one.
    pub secret: Option<&'a Secret<String>>,
    /// Forgets where all listings of the mailbox stand, and compares it with the provider. Nothing is lost by it: the ledger
    /// has what was stored.
    pub resets_cursors: bool,
}

/// Resumes a mailbox: it is synced again, and messages that had failed are fetched again.
pub async fn resume(
    call: &Invocation<'_, Mailbox>,
    tenant: TenantId,
    id: MailboxId,
    request: ResumeRequest<'_>,
) -> Result<Mailbox, Refusal> {
    call.check_tenant(&MAILBOX_RESUME, tenant).await?;
    for _ in 0..MAX_ATTEMPTS {
        let before = find(call, tenant, id).await?;
        match resume_as(call, &MAILBOX_RESUME, &before, request).await {
            Err(refusal) if refusal.is(Precondition::MailboxChanged) => {}
            done => return done,
        }
    }
    Err(conflict())
}

/// Resumes the mailbox as part of this operation.
pub(super) async fn resume_as(
    call: &Invocation<'_, Mailbox>,
    operation: &'static Operation,
    before: &Mailbox,
    request: ResumeRequest<'_>,
) -> Result<Mailbox, Refusal> {
    check_connected(before)?;
    let is_orphaned = call.engine.is_orphaned(before).await?;
    let event = MailboxEvent::Resumed { check_account: before.provider.capabilities().checks_account() };
    let after = NextMailbox::of(before, call.now).switched_on(is_orphaned).after(event, None).row();
    let recording = call.record(audited_resume(operation, before, &after, request), &after).await?;
    let engine = &recording.engine;
    let mut unit = engine.store.tenant(before.tenant_id).write();
    unit.replace_mailbox(before, &after);
    if is_orphaned {
        enqueue_forgotten(&mut unit, engine)?;
    }
    if request.resets_cursors {
        unit.restart_sync(before.id);
    }
    if let (Some(secret), Some(secret_ref)) = (request.secret, &before.secret_ref) {
        let secret_id = secret_ref.parse().map_err(anyhow::Error::from)?;
        unit.put_secret(&seal(engine, before, secret_id, secret).await?);
        // The token of the former secret.
        unit.delete_secret(SecretId::of_access_token(before.id));
    }
    enqueue_sync(&mut unit, engine, before.id)?;
    unit.enqueue(vec![FetchFailed::request(engine.store.clock(), before.id)?]);
    request_watch(&mut unit, engine, before.id, before.provider)?;
    unit.commit().await?;
    engine.notify_workers().await;
    recording.finish().await?;
    Ok(after)
}

fn audited_resume(
    operation: &'static Operation,
    before: &Mailbox,
    after: &Mailbox,
    request: ResumeRequest<'_>,
) -> AuditedChange {
    let mut audited = audited(operation, Some(before), after);
    if let Some(after) = audited.after.as_mut().filter(|_| request.resets_cursors) {
        after["resets_cursors"] = json!(true);
    }
    audited
}
