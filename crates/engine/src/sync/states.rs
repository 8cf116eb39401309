//! State changes of a mailbox that follow from its provider's answers.
//!
//! Each function returns the change that it makes, if any. A caller that commits the unit logs the change afterwards; one
//! whose unit is committed by the worker logs it at once.

use domain::{MailboxEvent, MailboxId, MailboxState, Provider, TenantId, redact_for_log};
use store::TenantUnit;
use store::sql::mailboxes::Mailbox;

/// Failures in a row after which a mailbox is in the state `error`.
const FAILURES_UNTIL_ERROR: u64 = 3;

/// A mailbox and its state when it was read.
#[derive(Debug, Clone, Copy)]
pub struct MailboxSnapshot {
    tenant: TenantId,
    id: MailboxId,
    provider: Provider,
    state: MailboxState,
}

impl From<&Mailbox> for MailboxSnapshot {
    fn from(mailbox: &Mailbox) -> Self {
        let Mailbox { tenant_id: tenant, id, provider, state, .. } = *mailbox;
        Self { tenant, id, provider, state }
    }
}

/// A change of state, for the log.
#[derive(Debug)]
pub struct StateChange {
    mailbox: MailboxSnapshot,
    to: MailboxState,
    error: Option<String>,
}

impl StateChange {
    /// Returns the change that an event makes, or `None` if the state stays.
    fn find(mailbox: MailboxSnapshot, event: MailboxEvent, reason: Option<&str>) -> Option<Self> {
        let to = mailbox.state.after(event)?;
        Some(Self { mailbox, to, error: reason.map(redact_for_log) })
    }
}

pub fn log(change: Option<StateChange>) {
    let Some(StateChange { mailbox, to, error }) = change else { return };
    tracing::info!(
        tenant.id = %mailbox.tenant,
        mailbox.id = %mailbox.id,
        provider = mailbox.provider.as_str(),
        state = to.as_str(),
        error,
        "mailbox state changed"
    );
}

/// Marks a mailbox as active after a sync that succeeded.
#[must_use]
pub fn mark_working(unit: &mut TenantUnit, mailbox: &Mailbox) -> Option<StateChange> {
    unit.apply_mailbox_event(mailbox.id, MailboxEvent::Synced, None);
    StateChange::find(mailbox.into(), MailboxEvent::Synced, None)
}

/// Marks a mailbox whose credentials are refused: its provider is not called until a person renews them. Does nothing if
/// they were renewed meanwhile.
#[must_use]
pub fn mark_needs_reauth(unit: &mut TenantUnit, mailbox: &Mailbox, reason: &str) -> Option<StateChange> {
    unit.apply_mailbox_event_if_unchanged(mailbox, MailboxEvent::CredentialsRefused, Some(reason));
    StateChange::find(mailbox.into(), MailboxEvent::CredentialsRefused, Some(reason))
}

/// Marks a mailbox as failing once it has failed [`FAILURES_UNTIL_ERROR`] times in a row, `errors` times before. Being
/// throttled is not a failure.
#[must_use]
pub fn mark_failing(unit: &mut TenantUnit, mailbox: MailboxSnapshot, errors: u64, reason: &str) -> Option<StateChange> {
    if errors + 1 < FAILURES_UNTIL_ERROR {
        return None;
    }
    unit.apply_mailbox_event(mailbox.id, MailboxEvent::FailedRepeatedly, Some(reason));
    unit.set_mailbox_state_reason(mailbox.id, MailboxState::Connecting, reason);
    StateChange::find(mailbox, MailboxEvent::FailedRepeatedly, Some(reason))
}
