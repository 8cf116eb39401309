//! The row of a mailbox after a change.

use domain::MailboxEvent;
use jiff::Timestamp;
use store::sql::mailboxes::Mailbox;

/// The row of a mailbox as it will be, computed from the row as it is.
#[derive(Debug, Clone)]
pub(super) struct NextMailbox {
    row: Mailbox,
    now: Timestamp,
    version: u64,
}

impl NextMailbox {
    pub fn of(mailbox: &Mailbox, now: Timestamp) -> Self {
        Self { row: mailbox.clone(), now, version: mailbox.version }
    }

    /// Moves to the state that follows the event, if one does.
    pub fn after(self, event: MailboxEvent, reason: Option<&str>) -> Self {
        let Some(state) = self.row.state.after(event) else { return self };
        let state_reason = reason.map(str::to_owned);
        let row = Mailbox { state, state_reason, state_since: self.now, ..self.row };
        Self { row, ..self }.changed()
    }

    /// Switches the sync on again, if it is off and only a person can do that.
    pub fn switched_on(self, is_orphaned: bool) -> Self {
        if !is_orphaned {
            return self;
        }
        Self { row: Mailbox { is_active: true, ..self.row }, ..self }.changed()
    }

    /// Changes the row in other ways.
    pub fn with(self, row: impl FnOnce(Mailbox) -> Mailbox) -> Self {
        Self { row: row(self.row), ..self }.changed()
    }

    /// Returns the row. It has the next version if anything was changed, however much.
    pub fn row(self) -> Mailbox {
        self.row
    }

    fn changed(self) -> Self {
        let row = Mailbox { version: self.version + 1, updated_at: self.now, ..self.row };
        Self { row, ..self }
    }
}
