//! State changes of a mailbox that follow from its provider's answers.

use domain::{MailboxEvent, MailboxState, log_text};
use store::TenantUnit;
use store::sql::mailboxes::Mailbox;
use store::sql::sync::MailboxKey;

/// Failures in a row after which a mailbox is in the state `error`.
const FAILURES_UNTIL_ERROR: u64 = 3;

/// Marks a mailbox as active after a sync that succeeded.
pub fn mark_working(unit: &mut TenantUnit, mailbox: &Mailbox) {
    if mailbox.state.after(MailboxEvent::Synced).is_some() {
        tracing::info!(
            tenant.id = %mailbox.tenant_id,
            mailbox.id = %mailbox.id,
            provider = mailbox.provider.as_str(),
            state = "active",
            "mailbox state changed"
        );
    }
    unit.apply_mailbox_event(mailbox.id, MailboxEvent::Synced, None);
}

/// Marks a mailbox whose credentials are refused: its provider is not called until a person renews them. Does nothing if
/// they were renewed meanwhile.
pub fn mark_needs_reauth(unit: &mut TenantUnit, mailbox: &Mailbox, reason: &str) {
    tracing::info!(
        tenant.id = %mailbox.tenant_id,
        mailbox.id = %mailbox.id,
        provider = mailbox.provider.as_str(),
        state = "needs_reauth",
        error = log_text(reason),
        "mailbox state changed"
    );
    unit.apply_mailbox_event_if_unchanged(mailbox, MailboxEvent::CredentialsRefused, Some(reason));
}

/// Marks a mailbox as failing once it has failed [`FAILURES_UNTIL_ERROR`] times in a row. Being throttled is not a
/// failure.
pub fn mark_failing(unit: &mut TenantUnit, (tenant, mailbox): MailboxKey, errors: u64, reason: &str) {
    if errors + 1 == FAILURES_UNTIL_ERROR {
        tracing::info!(
            tenant.id = %tenant,
            mailbox.id = %mailbox,
            state = "error",
            failures = FAILURES_UNTIL_ERROR,
            error = log_text(reason),
            "mailbox state changed"
        );
    }
    if errors + 1 >= FAILURES_UNTIL_ERROR {
        unit.apply_mailbox_event(mailbox, MailboxEvent::FailedRepeatedly, Some(reason));
        unit.set_mailbox_state_reason(mailbox, MailboxState::Connecting, reason);
    }
}
