//! Disconnects a mailbox, and erases its mail if that is wanted.

use domain::{MailboxEvent, MailboxId, MailboxState, SecretId, TenantId};
use store::Precondition;
use store::sql::mailboxes::Mailbox;

use super::next_row::NextMailbox;
use super::{MAX_ATTEMPTS, audited, conflict, find};
use crate::accounts::erasure::EraseMailbox;
use crate::operations::{Invocation, MAILBOX_DISCONNECT, MAILBOX_ERASE, Operation, Refusal};
use crate::sync::StopWatch;

const REASON: &str = "disconnected on request";

/// What becomes of the mail of a disconnected mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailErasure {
    /// It is kept.
    None,
    /// A job erases it.
    ByJob,
    /// The caller erases it, by [`crate::Engine::erase_mailbox`].
    ByCaller,
}

impl MailErasure {
    fn operation(self) -> &'static Operation {
        match self {
            Self::None => &MAILBOX_DISCONNECT,
            Self::ByJob | Self::ByCaller => &MAILBOX_ERASE,
        }
    }
}

/// Disconnects a mailbox: its provider is called only to end the watch and revoke the grant, and its secret is deleted.
pub async fn delete(
    call: &Invocation<'_, Mailbox>,
    tenant: TenantId,
    id: MailboxId,
    erasure: MailErasure,
) -> Result<Mailbox, Refusal> {
    call.check_tenant(erasure.operation(), tenant).await?;
    for _ in 0..MAX_ATTEMPTS {
        match attempt(call, tenant, id, erasure).await {
            Err(refusal) if refusal.is(Precondition::MailboxChanged) => {}
            done => return done,
        }
    }
    Err(conflict())
}

async fn attempt(
    call: &Invocation<'_, Mailbox>,
    tenant: TenantId,
    id: MailboxId,
    erasure: MailErasure,
) -> Result<Mailbox, Refusal> {
    let before = find(call, tenant, id).await?;
    call.check_version(before.version)?;
    let after = NextMailbox::of(&before, call.now).after(MailboxEvent::Disconnected, Some(REASON)).row();
    let recording = call.record(audited(erasure.operation(), Some(&before), &after), &after).await?;
    let engine = &recording.engine;
    let mut unit = engine.store.tenant(tenant).write();
    unit.replace_mailbox(&before, &after);
    unit.stop_syncing(id);
    unit.delete_secret(SecretId::of_access_token(id));
    let secret: Option<SecretId> =
        before.secret_ref.as_ref().map(|id| id.parse()).transpose().map_err(anyhow::Error::from)?;
    let supports_push = before.provider.capabilities().supports_push;
    match secret {
        // Only once: the job needs the secret, and hands it on to the one that revokes the grant.
        _ if supports_push && before.state == MailboxState::Disconnected => {}
        secret if supports_push => unit.enqueue(vec![StopWatch::request(engine.store.clock(), id, secret)?]),
        Some(secret) => unit.delete_secret(secret),
        None => {}
    }
    if erasure == MailErasure::ByJob {
        unit.enqueue(vec![EraseMailbox::request(engine.store.clock(), id)?]);
    }
    unit.commit().await?;
    engine.notify_workers().await;
    recording.finish().await?;
    Ok(after)
}
