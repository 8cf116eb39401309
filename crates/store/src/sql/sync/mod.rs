//! Sync state of mailboxes at providers: when they are due, the sync leases, and the cursors of their listings.

mod backfill;
mod batches;
mod dead_letters;
mod fetches;
mod lag;
mod ledger_counts;
mod listening;
mod listing_page;
mod missing;
mod pauses;
mod polls;

use std::time::Duration;

use domain::MailboxId;
use jiff::Timestamp;
use serde::Serialize;

pub use backfill::BackfillProgress;
pub use batches::{MailboxKey, OpenMailbox, SyncClaim};
pub use dead_letters::DeadFetches;
pub use fetches::{FailedMessages, QueuedMessage};
pub use ledger_counts::LedgerCounts;
pub use listening::{ListenDemand, ListenLease};
pub use listing_page::{ListingPhase, PageRows};
pub use missing::{HeldRemovals, MissingMail};
pub use pauses::SyncPause;
pub use polls::{DueMailbox, PollState};

use super::given_rows;
use super::jobs::later;
use crate::failpoint::{self, Guard};
use crate::value::ColumnType;
use crate::{Precondition, Row, StoreError, TenantStore, TenantUnit, params};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SyncState {
    pub status: String,
    pub next_sync_at: Option<Timestamp>,
    pub last_sync_at: Option<Timestamp>,
    /// The provider's id of the last new message that a sync of changes found.
    pub last_message_id: Option<String>,
    pub error_count: u64,
    pub last_error: Option<String>,
    pub since: Option<Timestamp>,
    pub is_history_done: bool,
    pub listing: u64,
    pub is_listing: bool,
    pub paused: Option<SyncPause>,
    /// So much was missing at the last listing that it is not removed yet.
    pub held_removals: Option<HeldRemovals>,
}

impl SyncState {
    /// Returns whether a comparison is due that tells whether what is missing is gone.
    pub fn is_look_due(&self) -> bool {
        self.held_removals.as_ref().is_some_and(|held| held.is_look_due)
    }
}

const SYNC_STATE_COLUMNS: &str =
    "status, next_sync_at, last_sync_at, error_count, last_error, since, is_history_done, listing, is_listing,
     last_message_id, case when paused_until > mailroom_now() then paused_until end, paused_reason,
     removals_held_since, removals_held, removals_looks, removals_look_at, removals_look_at <= mailroom_now()";

fn sync_state(row: &Row) -> Result<SyncState, StoreError> {
    Ok(SyncState {
        status: row.get(0)?,
        next_sync_at: row.get(1)?,
        last_sync_at: row.get(2)?,
        error_count: row.get(3)?,
        last_error: row.get(4)?,
        since: row.get(5)?,
        is_history_done: row.get(6)?,
        listing: row.get(7)?,
        is_listing: row.get(8)?,
        last_message_id: row.get(9)?,
        paused: pauses::pause(row, 10)?,
        held_removals: missing::held_removals(row, 12)?,
    })
}

impl TenantStore {
    pub async fn find_sync_state(&self, mailbox: MailboxId) -> Result<Option<SyncState>, StoreError> {
        let sql = format!("select {SYNC_STATE_COLUMNS} from sync_states where tenant_id = $1 and mailbox_id = $2");
        self.query_one(sql, params![self.id, mailbox]).await?.as_ref().map(sync_state).transpose()
    }

    /// Renews the lease of a sync. Returns `false` if another process holds the mailbox.
    pub async fn renew_sync(&self, mailbox: MailboxId, token: u64, lease: Duration) -> Result<bool, StoreError> {
        let until = later(self.store.dialect(), "$4");
        let mut unit = self.write();
        let renewed = unit.unit.op(
            format!(
                "update sync_states set held_until = {until}
                 where tenant_id = $1 and mailbox_id = $2 and token = $3 and held_until is not null"
            ),
            params![self.id, mailbox, token, millis(lease)],
        );
        Ok(unit.commit().await?.changed(renewed) == 1)
    }
}

/// How a sync ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncEnd<'a> {
    /// Up to date.
    Done,
    /// There is more to do, or the interruption was not its fault: unchanged.
    Interrupted,
    /// A part of it has to wait, which is no failure.
    Deferred(&'a str),
    Failed(&'a str),
}

impl TenantUnit {
    /// Refuses the unit when another process syncs the mailbox by now, and locks out units that store its messages.
    pub fn guard_sync(&mut self, mailbox: MailboxId, token: u64) {
        self.guard_page(mailbox, token, None);
    }

    /// Guards the unit of a page like [`TenantUnit::guard_sync`], and records its last new message.
    pub fn guard_page(&mut self, mailbox: MailboxId, token: u64, last_message: Option<&str>) {
        if failpoint::is_off(Guard::SyncToken) {
            return self.lock_sync(mailbox);
        }
        self.unit.op_exactly(
            1,
            Precondition::SyncTakenOver,
            "update sync_states set updated_at = mailroom_now(), last_message_id = coalesce($4, last_message_id)
             where tenant_id = $1 and mailbox_id = $2 and token = $3",
            params![self.tenant, mailbox, token, last_message],
        );
    }

    /// Locks the sync state against other units that record something of the mailbox.
    pub fn lock_sync(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update sync_states set updated_at = mailroom_now() where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
    }

    /// Ends a sync and releases its lease.
    pub fn end_sync(&mut self, mailbox: MailboxId, token: u64, end: SyncEnd<'_>) {
        let set = match end {
            SyncEnd::Done => "status = 'idle', last_sync_at = mailroom_now(), error_count = 0, last_error = $4",
            SyncEnd::Interrupted => "status = 'idle', last_error = coalesce($4, last_error)",
            SyncEnd::Deferred(_) => "status = 'idle', last_error = $4",
            SyncEnd::Failed(_) => "status = 'error', error_count = error_count + 1, last_error = $4",
        };
        let error = match end {
            SyncEnd::Deferred(error) | SyncEnd::Failed(error) => Some(error),
            _ => None,
        };
        self.unit.op(
            format!(
                "update sync_states set {set}, holder = null, held_until = null, updated_at = mailroom_now()
                 where tenant_id = $1 and mailbox_id = $2 and token = $3"
            ),
            params![self.tenant, mailbox, token, error],
        );
    }

    /// Stops the sync of a mailbox and deletes its cursors.
    pub fn stop_syncing(&mut self, mailbox: MailboxId) {
        self.unit.op(
            // A sync in progress is refused from now on.
            "update sync_states set next_sync_at = null, token = token + 1, held_until = null, holder = null, is_listing = false,
                 paused_until = null, paused_reason = null
             where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
        self.unit.op(
            "update ledger set state = 'skipped', reason = 'the mailbox was disconnected'
             where tenant_id = $1 and mailbox_id = $2 and state in ('queued', 'processing', 'failed')",
            params![self.tenant, mailbox],
        );
        self.unit
            .op("delete from sync_cursors where tenant_id = $1 and mailbox_id = $2", params![self.tenant, mailbox]);
        self.discard_fetch_dead_letters(mailbox);
    }

    /// Restarts the sync of a mailbox whose cursors are of no use: they belong to another account, or the provider refuses
    /// them. A sync in progress cannot record another page. A full comparison follows.
    pub fn restart_sync(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update sync_states set token = token + 1, holder = null, held_until = null, last_message_id = null
             where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
        self.start_listing_phase(mailbox, ListingPhase::Changes);
        self.start_listing_phase(mailbox, ListingPhase::History);
        // The mail of the old account is not in the new one: that needs no second look.
        self.approve_removals(mailbox);
        self.discard_sync_dead_letters(mailbox);
    }

    /// Sets when mailboxes are due next. Refuses the unit unless all of them are due now: another scheduler was faster.
    pub fn reschedule_syncs(&mut self, pauses: &[(MailboxId, Duration)]) {
        let dialect = self.store.dialect();
        let mut pauses = pauses.to_vec();
        pauses.sort_unstable();
        // With the tenant in each row, for SQLite would otherwise look through all of them for each mailbox of the tenant.
        let count = pauses.len() as u64;
        let rows = pauses.iter().map(|(mailbox, pause)| params![self.tenant, *mailbox, millis(*pause)]).collect();
        let columns = &[("tenant_id", ColumnType::Uuid), ("mailbox_id", ColumnType::Uuid), ("pause", ColumnType::Int)];
        let (these, values) = given_rows(dialect, 1, columns, rows);
        self.unit.op_exactly(
            count,
            Precondition::SyncsAlreadyRequested,
            format!(
                "update sync_states set next_sync_at = {} from {these}
                 where sync_states.tenant_id = g.tenant_id and sync_states.mailbox_id = g.mailbox_id
                   and sync_states.next_sync_at <= mailroom_now()",
                later(dialect, "g.pause")
            ),
            values,
        );
    }

    /// Starts the sync of a mailbox. Messages that arrived before `since` are left out.
    pub fn start_syncing(&mut self, mailbox: MailboxId, since: Option<Timestamp>) {
        self.unit.op(
            "insert into sync_states (tenant_id, mailbox_id, next_sync_at, since, updated_at)
             values ($1, $2, mailroom_now(), $3, mailroom_now())
             -- Connected again: what went meanwhile shows by comparing everything.
             on conflict (tenant_id, mailbox_id) do update set next_sync_at = excluded.next_sync_at, since = excluded.since,
                 is_history_done = false, is_listing = true, listing = sync_states.listing + 1, found = 0,
                 error_count = 0, last_error = null, last_message_id = null",
            params![self.tenant, mailbox, since],
        );
        self.discard_sync_dead_letters(mailbox); // they are about its former state
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
