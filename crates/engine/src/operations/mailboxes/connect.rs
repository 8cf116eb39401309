//! Connects a mailbox, or makes one for imported files.

use domain::{Backfill, MailboxId, MailboxSettings, MailboxState, Provider, Secret, SecretId, TenantId};
use store::sql::mailboxes::Mailbox;
use store::{Precondition, failpoint::Effect};

use super::{MAX_ATTEMPTS, audited, enqueue_sync, seal};
use crate::operations::{Invocation, MAILBOX_CONNECT, MAILBOX_CREATE, MAILBOX_RECONNECT, Operation, Refusal};
use crate::sync::push::request_watch;

/// A mailbox to be connected.
#[derive(Debug, Clone)]
pub struct ConnectRequest {
    pub provider: Provider,
    /// In canonical case.
    pub address: String,
    pub settings: MailboxSettings,
    pub secret: Option<Secret<String>>,
    pub backfill: Backfill,
}

/// Connects a mailbox, or makes one for imported files. The row, its secret and its first sync are one commit. A
/// disconnected mailbox of that address, or one that held imported files so far, is connected and keeps its mail.
pub async fn create(
    call: &Invocation<'_, Mailbox>,
    tenant: TenantId,
    request: &ConnectRequest,
) -> Result<Mailbox, Refusal> {
    connect_as(call, &MAILBOX_CREATE, tenant, request).await
}

/// Connects a mailbox by the consent of its owner.
pub async fn connect(
    call: &Invocation<'_, Mailbox>,
    tenant: TenantId,
    request: &ConnectRequest,
) -> Result<Mailbox, Refusal> {
    connect_as(call, &MAILBOX_CONNECT, tenant, request).await
}

async fn connect_as(
    call: &Invocation<'_, Mailbox>,
    operation: &'static Operation,
    tenant: TenantId,
    request: &ConnectRequest,
) -> Result<Mailbox, Refusal> {
    call.check_tenant(operation, tenant).await?;
    for _ in 0..MAX_ATTEMPTS {
        match attempt(call, operation, tenant, request).await {
            Err(refusal) if refusal.is(Precondition::MailboxChanged) => {}
            done => return done,
        }
    }
    Err(Precondition::MailboxChanged.into())
}

async fn attempt(
    call: &Invocation<'_, Mailbox>,
    operation: &'static Operation,
    tenant: TenantId,
    request: &ConnectRequest,
) -> Result<Mailbox, Refusal> {
    let store = call.engine.store.tenant(tenant);
    let existing = store.find_mailbox(&request.address).await?;
    if existing.as_ref().is_some_and(|existing| !can_be_replaced(existing, request.provider)) {
        return Err(Precondition::MailboxExists.into());
    }
    let secret_id = request.secret.as_ref().map(|_| SecretId::new(call.engine.store.clock()));
    let settings = store.tenant_settings().await?;
    let after = Mailbox { tenant_settings: settings, ..next_row(call, tenant, existing.as_ref(), request, secret_id) };
    let is_back = *operation == MAILBOX_CONNECT && existing.is_some();
    let operation = if is_back { &MAILBOX_RECONNECT } else { operation };
    let recording = call.record(audited(operation, existing.as_ref(), &after), &after).await?;
    let engine = &recording.engine;
    let mut unit = engine.store.tenant(tenant).write();
    unit.connect_mailbox(existing.as_ref(), &after);
    if request.provider.capabilities().is_remote {
        if let (Some(secret), Some(secret_id)) = (&request.secret, secret_id) {
            unit.put_secret(&seal(engine, &after, secret_id, secret).await?);
        }
        // The token of whatever it was before.
        unit.delete_secret(SecretId::of_access_token(after.id));
        unit.start_syncing(after.id, request.backfill.since(call.now));
        enqueue_sync(&mut unit, engine, after.id)?;
        request_watch(&mut unit, engine, after.id, request.provider)?;
    }
    unit.commit_at(Effect::MakeMailbox).await?;
    engine.notify_workers().await;
    recording.finish().await?;
    Ok(after)
}

/// Returns whether the address is free: disconnected, or for imported files only.
fn can_be_replaced(existing: &Mailbox, by: Provider) -> bool {
    by != Provider::Files && (existing.state == MailboxState::Disconnected || existing.provider == Provider::Files)
}

fn next_row(
    call: &Invocation<'_, Mailbox>,
    tenant: TenantId,
    existing: Option<&Mailbox>,
    request: &ConnectRequest,
    secret_id: Option<SecretId>,
) -> Mailbox {
    let is_remote = request.provider.capabilities().is_remote;
    Mailbox {
        id: existing.map_or_else(|| MailboxId::new(call.engine.store.clock()), |existing| existing.id),
        tenant_id: tenant,
        provider: request.provider,
        address: request.address.clone(),
        state: if is_remote { MailboxState::Connecting } else { MailboxState::Active },
        state_reason: None,
        state_since: call.now,
        settings: request.settings.clone(),
        tenant_settings: domain::TenantSettings::default(),
        secret_ref: secret_id.map(|id| id.to_string()),
        is_active: true,
        created_at: existing.map_or(call.now, |existing| existing.created_at),
        updated_at: call.now,
        version: existing.map_or(1, |existing| existing.version + 1),
    }
}
