//! What a mailbox's state becomes by what its provider says.

use domain::{MailboxId, MailboxState};
use store::TenantUnit;
use store::sql::mailboxes::Mailbox;

/// It works.
pub fn works(unit: &mut TenantUnit, mailbox: MailboxId) {
    unit.move_mailbox(mailbox, &[MailboxState::Connecting, MailboxState::Error], MailboxState::Active, None);
}

/// The credentials are refused: nobody calls until somebody renews them. Whoever has done so meanwhile has the last word.
pub fn needs_reauth(unit: &mut TenantUnit, mailbox: &Mailbox, reason: &str) {
    let from = [MailboxState::Connecting, MailboxState::Active, MailboxState::Error];
    unit.move_mailbox_as_it_was(mailbox, &from, MailboxState::NeedsReauth, Some(reason));
}

/// It does not work, and it is tried again.
pub fn fails(unit: &mut TenantUnit, mailbox: MailboxId, reason: &str) {
    unit.move_mailbox(mailbox, &[MailboxState::Active], MailboxState::Error, Some(reason));
}
