//! Operations on mailboxes, as the operator calls them.

use domain::{Actor, MailboxId, MailboxSettings, Secret, TenantId};
use engine::Engine;
use engine::operations::mailboxes::{self, ConnectRequest, MailErasure, ResumeRequest};
use engine::operations::{Invocation, Origin, Refusal};
use store::Precondition;
use store::sql::mailboxes::Mailbox;

/// What the operator does to mailboxes in tests.
#[expect(async_fn_in_trait, reason = "only tests call it, on an engine")]
pub trait MailboxOperations {
    /// Connects a mailbox. Returns `None` if the address is taken.
    async fn connect(&self, tenant: TenantId, connect: ConnectRequest) -> Result<Option<MailboxId>, Refusal>;

    async fn change_mailbox(
        &self,
        mailbox: &Mailbox,
        settings: MailboxSettings,
        secret: Option<Secret<String>>,
    ) -> Result<Mailbox, Refusal>;

    async fn pause_mailbox(&self, mailbox: &Mailbox) -> Result<Mailbox, Refusal>;

    async fn resume_mailbox(&self, mailbox: &Mailbox) -> Result<Mailbox, Refusal>;

    async fn disconnect(&self, mailbox: &Mailbox) -> Result<Mailbox, Refusal>;
}

impl MailboxOperations for Engine {
    async fn connect(&self, tenant: TenantId, connect: ConnectRequest) -> Result<Option<MailboxId>, Refusal> {
        let origin = Origin::from(Actor::Operator);
        match mailboxes::create(&Invocation::begin(self, &origin).await?, tenant, &connect).await {
            Err(refusal) if refusal.is(Precondition::MailboxExists) => Ok(None),
            created => created.map(|mailbox| Some(mailbox.id)),
        }
    }

    async fn change_mailbox(
        &self,
        mailbox: &Mailbox,
        settings: MailboxSettings,
        secret: Option<Secret<String>>,
    ) -> Result<Mailbox, Refusal> {
        let origin = Origin::from(Actor::Operator);
        mailboxes::change(&Invocation::begin(self, &origin).await?, mailbox, settings, secret.as_ref()).await
    }

    async fn pause_mailbox(&self, mailbox: &Mailbox) -> Result<Mailbox, Refusal> {
        let origin = Origin::from(Actor::Operator);
        mailboxes::pause(&Invocation::begin(self, &origin).await?, mailbox.tenant_id, mailbox.id).await
    }

    async fn resume_mailbox(&self, mailbox: &Mailbox) -> Result<Mailbox, Refusal> {
        let origin = Origin::from(Actor::Operator);
        let call = Invocation::begin(self, &origin).await?;
        mailboxes::resume(&call, mailbox.tenant_id, mailbox.id, ResumeRequest::default()).await
    }

    async fn disconnect(&self, mailbox: &Mailbox) -> Result<Mailbox, Refusal> {
        let origin = Origin::from(Actor::Operator);
        let call = Invocation::begin(self, &origin).await?;
        mailboxes::delete(&call, mailbox.tenant_id, mailbox.id, MailErasure::None).await
    }
}
