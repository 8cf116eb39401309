//! What a mailbox's state becomes by what its provider says.

use domain::{MailboxId, MailboxState};
use store::TenantUnit;
use store::sql::mailboxes::Mailbox;

/// So many times in a row it must fail before it is said to be in trouble.
const TROUBLED: u64 = 3;

/// It works.
pub fn works(unit: &mut TenantUnit, mailbox: MailboxId) {
    unit.move_mailbox(mailbox, &[MailboxState::Connecting, MailboxState::Error], MailboxState::Active, None);
}

/// The credentials are refused: nobody calls until somebody renews them. Whoever has done so meanwhile has the last word.
pub fn needs_reauth(unit: &mut TenantUnit, mailbox: &Mailbox, reason: &str) {
    let from = [MailboxState::Connecting, MailboxState::Active, MailboxState::Error];
    unit.move_mailbox_as_it_was(mailbox, &from, MailboxState::NeedsReauth, Some(reason));
}

/// It does not work, as so many times before in a row, and it is tried again. Who had to wait has not failed.
pub fn fails(unit: &mut TenantUnit, mailbox: MailboxId, errors: u64, reason: &str) {
    if errors + 1 >= TROUBLED {
        unit.move_mailbox(mailbox, &[MailboxState::Active], MailboxState::Error, Some(reason));
        // One that is being connected stays so: when it works, it is looked at whose it is, and asked to push.
        unit.explain_mailbox(mailbox, MailboxState::Connecting, reason);
    }
}
