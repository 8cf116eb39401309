//! Mailboxes that live somewhere else: when to look, who may write for them, where their listings stand.

mod backfill;
mod counts;
mod fetched;
mod given_up;
mod listening;
mod looks;
mod many;
mod page;
mod pauses;
mod stored;

use std::time::Duration;

use domain::MailboxId;
use jiff::Timestamp;
use serde::Serialize;

pub use backfill::BackfillProgress;
pub use counts::LedgerCounts;
pub use fetched::{MESSAGES_CHANGED, MESSAGES_TOLD, Queued};
pub use listening::{Held, ToListen};
pub use looks::{Due, Standing};
pub use many::{Begun, Key, OpenMailbox};
pub use page::{PageRows, Phase};
pub use pauses::Pause;
pub use stored::StoredPlace;

use super::given;
use super::jobs::later;
use crate::failpoint::{self, Guard};
use crate::value::Kind;
use crate::{Dialect, Row, StoreError, TenantStore, TenantUnit, params};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SyncState {
    pub status: String,
    pub next_sync_at: Option<Timestamp>,
    pub last_sync_at: Option<Timestamp>,
    pub error_count: u64,
    pub last_error: Option<String>,
    pub since: Option<Timestamp>,
    pub is_history_done: bool,
    pub listing: u64,
    pub is_listing: bool,
    pub paused: Option<Pause>,
}

/// What a scheduler is told that comes too late.
pub const NOT_DUE: &str = "somebody else has asked for these mailboxes";

/// What a holder is told that somebody else has followed.
pub const NO_LONGER_SYNCING: &str = "somebody else syncs this mailbox now";

const SYNC_STATE: &str =
    "status, next_sync_at, last_sync_at, error_count, last_error, since, is_history_done, listing, is_listing,
     case when paused_until > mailroom_now() then paused_until end, paused_reason";

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
        paused: pauses::pause(row, 9)?,
    })
}

impl TenantStore {
    pub async fn find_sync(&self, mailbox: MailboxId) -> Result<Option<SyncState>, StoreError> {
        let sql = format!("select {SYNC_STATE} from sync_states where tenant_id = $1 and mailbox_id = $2");
        self.query_one(sql, params![self.id, mailbox]).await?.as_ref().map(sync_state).transpose()
    }

    /// `false`: somebody else has it.
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
    /// There is more to do, or it was not the sync's fault: as it was.
    Interrupted,
    /// A part of it has to wait; that is no failure.
    Hindered(&'a str),
    Failed(&'a str),
}

impl TenantUnit {
    /// Nothing of the unit happens when somebody else syncs the mailbox by now. Whoever stores its messages waits.
    pub fn guard_sync(&mut self, mailbox: MailboxId, token: u64) {
        if failpoint::is_off(Guard::SyncToken) {
            return self.hold_sync(mailbox);
        }
        self.unit.op_exactly(
            1,
            NO_LONGER_SYNCING,
            "update sync_states set updated_at = mailroom_now() where tenant_id = $1 and mailbox_id = $2 and token = $3",
            params![self.tenant, mailbox, token],
        );
    }

    /// Nobody else records anything of the mailbox meanwhile.
    pub fn hold_sync(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update sync_states set updated_at = mailroom_now() where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
    }

    /// Beside others who store messages of the mailbox, but not beside who records what its provider lists.
    pub fn share_sync(&mut self, mailbox: MailboxId) {
        if self.store.dialect() == Dialect::Postgres {
            self.unit.op(
                "select 1 from sync_states where tenant_id = $1 and mailbox_id = $2 for share",
                params![self.tenant, mailbox],
            );
        }
    }

    /// Others may sync the mailbox now.
    pub fn end_sync(&mut self, mailbox: MailboxId, token: u64, end: SyncEnd<'_>) {
        let set = match end {
            SyncEnd::Done => "status = 'idle', last_sync_at = mailroom_now(), error_count = 0, last_error = $4",
            SyncEnd::Interrupted => "status = 'idle', last_error = coalesce($4, last_error)",
            SyncEnd::Hindered(_) => "status = 'idle', last_error = $4",
            SyncEnd::Failed(_) => "status = 'error', error_count = error_count + 1, last_error = $4",
        };
        let error = match end {
            SyncEnd::Hindered(error) | SyncEnd::Failed(error) => Some(error),
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

    /// The mailbox is not looked at any more, and where its listings stood is forgotten.
    pub fn stop_syncing(&mut self, mailbox: MailboxId) {
        self.unit.op(
            // Who lists it now writes nothing any more.
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
    }

    /// It opens another account from now on: where the listings stood is of the one before, and who lists it at this moment
    /// does not get to record another page. What it has is compared with everything that is there.
    pub fn sync_another(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update sync_states set token = token + 1, holder = null, held_until = null
             where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
        self.start_over(mailbox, Phase::Changes);
        self.start_over(mailbox, Phase::History);
        self.discard_letters(mailbox);
    }

    /// When mailboxes are looked at next. Nothing of the unit happens unless the time of all of them has come: somebody else
    /// has asked for them meanwhile.
    pub fn sync_again_in(&mut self, pauses: &[(MailboxId, Duration)]) {
        let dialect = self.store.dialect();
        let mut pauses = pauses.to_vec();
        pauses.sort_unstable();
        // With the tenant in each row, for SQLite would otherwise look through all of them for each mailbox of the tenant.
        let count = pauses.len() as u64;
        let rows = pauses.iter().map(|(mailbox, pause)| params![self.tenant, *mailbox, millis(*pause)]).collect();
        let columns = &[("tenant_id", Kind::Uuid), ("mailbox_id", Kind::Uuid), ("pause", Kind::Int)];
        let (these, values) = given(dialect, 1, columns, rows);
        self.unit.op_exactly(
            count,
            NOT_DUE,
            format!(
                "update sync_states set next_sync_at = {} from {these}
                 where sync_states.tenant_id = g.tenant_id and sync_states.mailbox_id = g.mailbox_id
                   and sync_states.next_sync_at <= mailroom_now()",
                later(dialect, "g.pause")
            ),
            values,
        );
    }

    /// A mailbox is looked at from now on. What arrived before `since` is left out.
    pub fn start_syncing(&mut self, mailbox: MailboxId, since: Option<Timestamp>) {
        self.unit.op(
            "insert into sync_states (tenant_id, mailbox_id, next_sync_at, since, updated_at)
             values ($1, $2, mailroom_now(), $3, mailroom_now())
             -- Connected again: what went meanwhile shows by comparing everything.
             on conflict (tenant_id, mailbox_id) do update set next_sync_at = excluded.next_sync_at, since = excluded.since,
                 is_history_done = false, is_listing = true, listing = sync_states.listing + 1, found = 0,
                 error_count = 0, last_error = null",
            params![self.tenant, mailbox, since],
        );
        self.discard_letters(mailbox); // they say nothing of what it is now
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
