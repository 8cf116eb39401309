//! What a person can do to a mailbox.

mod apply_removals;
mod change;
mod connect;
mod delete;
mod next_row;
mod pause;
mod resume;
mod sync;

use domain::{MailboxId, MailboxState, Secret, SecretId, TenantId};
use serde_json::{Value, json};
use store::sql::mailboxes::Mailbox;
use store::sql::secrets::SealedSecret;
use store::{Precondition, TenantUnit};

use super::invocation::AuditedChange;
use super::{Invocation, Operation, Refusal};
use crate::Engine;
use crate::sync::{FetchForgotten, SyncMailbox};

pub use apply_removals::apply_removals;
pub use change::{change, reconnect};
pub use connect::{ConnectRequest, connect, create};
pub use delete::{MailErasure, delete};
pub use pause::pause;
pub use resume::{ResumeRequest, resume};
pub use sync::sync;

/// Attempts of a change that conflicts with concurrent changes of the mailbox, such as those of its syncs.
const MAX_ATTEMPTS: usize = 5;

async fn find<T>(call: &Invocation<'_, T>, tenant: TenantId, id: MailboxId) -> Result<Mailbox, Refusal> {
    let found = call.engine.store.tenant(tenant).find_mailbox(&id.to_string()).await?;
    found.ok_or(Refusal::NotFound("mailbox"))
}

/// Refuses what only a mailbox that is connected can do.
pub fn check_connected(mailbox: &Mailbox) -> Result<(), Refusal> {
    if mailbox.state == MailboxState::Disconnected {
        return Err(Refusal::Conflict("this mailbox is disconnected; connect it again".to_owned()));
    }
    Ok(())
}

fn audited(operation: &'static Operation, before: Option<&Mailbox>, after: &Mailbox) -> AuditedChange {
    AuditedChange {
        before: before.map(audit_json),
        after: Some(audit_json(after)),
        ..AuditedChange::new(operation, after.tenant_id, after.id)
    }
}

/// Renders a mailbox for the audit log.
fn audit_json(mailbox: &Mailbox) -> Value {
    json!({
        "id": mailbox.id, "provider": mailbox.provider, "address": mailbox.address, "state": mailbox.state,
        "state_reason": mailbox.state_reason, "is_active": mailbox.is_active, "settings": mailbox.settings,
        "created_at": mailbox.created_at, "updated_at": mailbox.updated_at, "version": mailbox.version,
    })
}

fn conflict() -> Refusal {
    Precondition::MailboxChanged.into()
}

async fn seal(
    engine: &Engine,
    mailbox: &Mailbox,
    id: SecretId,
    secret: &Secret<String>,
) -> anyhow::Result<SealedSecret> {
    let bytes = Secret::new(secret.expose().as_bytes().to_vec());
    Ok(engine.vault.seal(mailbox.tenant_id, id, mailbox.provider.capabilities().secret_kind, &bytes).await?)
}

/// Adds a sync that somebody waits for.
fn enqueue_sync(unit: &mut TenantUnit, engine: &Engine, mailbox: MailboxId) -> Result<(), serde_json::Error> {
    let job = SyncMailbox::request(engine.store.clock(), mailbox)?;
    unit.enqueue(vec![store::sql::jobs::NewJob { lane: domain::Lane::High, ..job }]);
    Ok(())
}

/// Adds the fetches that were left out while the mailbox was switched off.
fn enqueue_forgotten(unit: &mut TenantUnit, engine: &Engine) -> Result<(), serde_json::Error> {
    unit.enqueue(vec![FetchForgotten::request(engine.store.clock())?]);
    Ok(())
}
