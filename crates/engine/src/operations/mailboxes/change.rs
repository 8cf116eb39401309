//! Changes the settings and the secret of a mailbox.

use domain::{MailboxEvent, MailboxSettings, MailboxState, Secret, SecretId};
use store::sql::mailboxes::Mailbox;

use super::next_row::NextMailbox;
use super::resume::{ResumeRequest, resume_as};
use super::{audited, check_connected, enqueue_forgotten, enqueue_sync, seal};
use crate::operations::{Invocation, MAILBOX_CHANGE, MAILBOX_RECONNECT, Operation, Refusal};
use crate::sync::push::request_watch;

/// Changes the settings of a mailbox, and its secret if one is given, and syncs it.
pub async fn change(
    call: &Invocation<'_, Mailbox>,
    before: &Mailbox,
    settings: MailboxSettings,
    secret: Option<&Secret<String>>,
) -> Result<Mailbox, Refusal> {
    call.check_tenant(&MAILBOX_CHANGE, before.tenant_id).await?;
    call.check_version(before.version)?;
    change_as(call, &MAILBOX_CHANGE, before, settings, secret).await
}

/// Gives a mailbox the consent that its owner has given once more. Its mail stays. Without a secret the stored one is still
/// valid, and so are the settings.
pub async fn reconnect(
    call: &Invocation<'_, Mailbox>,
    before: &Mailbox,
    settings: MailboxSettings,
    secret: Option<&Secret<String>>,
) -> Result<Mailbox, Refusal> {
    call.check_tenant(&MAILBOX_RECONNECT, before.tenant_id).await?;
    match secret {
        Some(secret) => change_as(call, &MAILBOX_RECONNECT, before, settings, Some(secret)).await,
        None => resume_as(call, &MAILBOX_RECONNECT, before, ResumeRequest::default()).await,
    }
}

async fn change_as(
    call: &Invocation<'_, Mailbox>,
    operation: &'static Operation,
    before: &Mailbox,
    settings: MailboxSettings,
    secret: Option<&Secret<String>>,
) -> Result<Mailbox, Refusal> {
    check_connected(before)?;
    let is_orphaned = secret.is_some() && call.engine.is_orphaned(before).await?;
    let secret_id = match (&before.secret_ref, secret) {
        (Some(id), Some(_)) => Some(id.parse().map_err(anyhow::Error::from)?),
        (None, Some(_)) => Some(SecretId::new(call.engine.store.clock())),
        (_, None) => None,
    };
    let after = next_row(call, before, settings, secret_id, is_orphaned);
    let recording = call.record(audited(operation, Some(before), &after), &after).await?;
    let engine = &recording.engine;
    let mut unit = engine.store.tenant(before.tenant_id).write();
    unit.replace_mailbox(before, &after);
    if is_orphaned {
        enqueue_forgotten(&mut unit, engine)?;
    }
    if let (Some(secret), Some(secret_id)) = (secret, secret_id) {
        unit.put_secret(&seal(engine, before, secret_id, secret).await?);
        // The token of the former secret.
        unit.delete_secret(SecretId::of_access_token(before.id));
        request_watch(&mut unit, engine, before.id, before.provider)?;
    }
    if before.state.is_synced() || before.state == MailboxState::NeedsReauth {
        enqueue_sync(&mut unit, engine, before.id)?;
    }
    unit.commit().await?;
    engine.notify_workers().await;
    recording.finish().await?;
    Ok(after)
}

/// `secret_id`: of the secret that is given, if one is.
fn next_row(
    call: &Invocation<'_, Mailbox>,
    before: &Mailbox,
    settings: MailboxSettings,
    secret_id: Option<SecretId>,
    is_orphaned: bool,
) -> Mailbox {
    let secret_ref = secret_id.map(|id| id.to_string()).or_else(|| before.secret_ref.clone());
    let next =
        NextMailbox::of(before, call.now).with(|row| Mailbox { settings, secret_ref, ..row }).switched_on(is_orphaned);
    if secret_id.is_none() {
        return next.row();
    }
    let check_account = before.provider.capabilities().checks_account();
    next.after(MailboxEvent::CredentialsReplaced { check_account }, None).row()
}
