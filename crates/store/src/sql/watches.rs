//! Push watches: what providers were asked to notify us of, and whether they do.

use std::time::Duration;

use domain::{EventType, MailboxId, Provider};
use jiff::Timestamp;

use super::any;
use super::events::{EVENT_STEP, INTO_DRAFTS};
use super::jobs::later;
use super::mailbox_settings::ACCOUNT;
use super::mailboxes::IS_SYNC_ENABLED;
use super::sync::{MailboxKey, millis};
use crate::value::ColumnType;
use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, TenantUnit, Unit, params};

/// So many listings in a row find something without a push before pushes count as lost.
pub const MAX_MISSED_PUSHES: u64 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchState {
    /// Until when the provider notifies us. `None`: it was not asked yet, or has refused.
    pub expires_at: Option<Timestamp>,
    pub renewed_at: Option<Timestamp>,
    pub next_at: Timestamp,
    /// Grows with every request to renew the watch.
    pub version: u64,
    /// Failed attempts since the provider last agreed.
    pub failures: u64,
    pub problem: Option<String>,
    pub last_push_at: Option<Timestamp>,
    /// When a listing last found something.
    pub news_at: Option<Timestamp>,
    /// Since when pushes are missing.
    pub lost_at: Option<Timestamp>,
    /// When a renewal was last requested, whatever the expiry.
    pub requested_at: Option<Timestamp>,
}

/// The result of asking a provider for a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchOutcome<'a> {
    Until(Timestamp),
    /// Pushes are not configured.
    Off,
    Failed(&'a str),
    /// Not now, which is no failure.
    Deferred,
}

impl TenantStore {
    pub async fn find_watch(&self, mailbox: MailboxId) -> Result<Option<WatchState>, StoreError> {
        let sql = "select expires_at, renewed_at, next_at, version, failures, problem, last_push_at, news_at, lost_at,
                     wanted_at from push_watches where tenant_id = $1 and mailbox_id = $2";
        self.query_one(sql, params![self.id, mailbox]).await?.as_ref().map(watch).transpose()
    }
}

fn watch(row: &Row) -> Result<WatchState, StoreError> {
    Ok(WatchState {
        expires_at: row.get(0)?,
        renewed_at: row.get(1)?,
        next_at: row.get(2)?,
        version: row.get(3)?,
        failures: row.get(4)?,
        problem: row.get(5)?,
        last_push_at: row.get(6)?,
        news_at: row.get(7)?,
        lost_at: row.get(8)?,
        requested_at: row.get(9)?,
    })
}

/// Whether no push came between the last two listings that found something.
const IS_MISSED: &str = "(news_at is not null and (last_push_at is null or last_push_at <= news_at))";

impl TenantUnit {
    /// Requests a watch, due at once. A mailbox that had one may have been inactive for a while, in which its pushes were
    /// lost: it gets a full sweep.
    pub fn request_watch(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "insert into push_watches (tenant_id, mailbox_id, next_at, wanted_at)
             values ($1, $2, mailroom_now(), mailroom_now())
             on conflict (tenant_id, mailbox_id) do update set next_at = excluded.next_at,
                 wanted_at = excluded.wanted_at, sweep_since = excluded.wanted_at, version = push_watches.version + 1",
            params![self.tenant, mailbox],
        );
    }

    /// Makes the watch due now, because what blocked it is gone.
    pub fn make_watch_due(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update push_watches set next_at = mailroom_now(), version = version + 1
             where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
    }

    /// Records the result of asking when the watch had this version, and when it is asked again. A renewal that was requested
    /// meanwhile stays due.
    pub fn record_watch(&mut self, mailbox: MailboxId, version: u64, asked: WatchOutcome<'_>, again: Duration) {
        let set = match &asked {
            WatchOutcome::Until(_) => {
                "expires_at = $5, renewed_at = mailroom_now(), failures = 0, problem = null, missed = 0,"
            }
            // It may have notified us as long as pushes were configured.
            WatchOutcome::Off => {
                "expires_at = $5, failures = 0, problem = null, missed = 0, lost_at = null, renewed_at = mailroom_now(),"
            }
            // What it agreed to before goes on until it ends.
            WatchOutcome::Failed(_) => "failures = failures + 1, problem = $5,",
            WatchOutcome::Deferred => "",
        };
        let next = later(self.store.dialect(), "$4");
        let mut values = params![self.tenant, mailbox, version, millis(again)];
        match asked {
            WatchOutcome::Until(expires_at) => values.extend(params![Some(expires_at)]),
            WatchOutcome::Off => values.extend(params![None::<Timestamp>]),
            WatchOutcome::Failed(problem) => values.extend(params![problem]),
            WatchOutcome::Deferred => {}
        }
        self.unit.op(
            format!(
                "update push_watches set {set} next_at = case when version = $3 then {next} else next_at end
                 where tenant_id = $1 and mailbox_id = $2"
            ),
            values,
        );
    }

    /// Defers watches that are being asked for now; should that fail, they are due again after so long.
    pub fn defer_watches(&mut self, mailboxes: &[MailboxId], again: Duration) {
        let dialect = self.store.dialect();
        self.unit.op(
            format!(
                "update push_watches set next_at = {} where tenant_id = $1 and {}",
                later(dialect, "$3"),
                any(dialect, "mailbox_id", 2)
            ),
            params![self.tenant, mailboxes.to_vec(), millis(again)],
        );
    }

    /// Deletes the watch unless the mailbox is connected again.
    pub fn forget_watch(&mut self, mailbox: MailboxId) {
        if self.store.dialect() == Dialect::Postgres {
            // Waits for a transaction that connects it at this moment, and sees the result.
            let sql = "select 1 from mailboxes where tenant_id = $1 and id = $2 for update";
            self.unit.op(sql, params![self.tenant, mailbox]);
        }
        self.unit.op(
            "delete from push_watches where tenant_id = $1 and mailbox_id = $2 and not exists (
                 select 1 from mailboxes where tenant_id = $1 and id = $2 and state <> 'disconnected')",
            params![self.tenant, mailbox],
        );
    }

    /// Counts a listing that found something. When that happens repeatedly without a push, the watch is broken: an event says
    /// so, and the provider is asked again.
    pub fn count_missed_pushes(&mut self, mailbox: MailboxId) {
        let unit = self.draft_id();
        let here = "tenant_id = $1 and mailbox_id = $2 and expires_at is not null";
        let is_lost = format!("({IS_MISSED} and missed + 1 >= {MAX_MISSED_PUSHES} and lost_at is null)");
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select tenant_id, $3, {EVENT_STEP}, '{kind}', mailbox_id, null, false, $4
                 from push_watches where {here} and {is_lost}",
                kind = EventType::MailboxPushLost,
            ),
            params![self.tenant, mailbox, unit, serde_json::json!({})],
        );
        self.unit.op(
            format!(
                "update push_watches set news_at = mailroom_now(), missed = case when {IS_MISSED} then missed + 1 else 0 end,
                    lost_at = case when {is_lost} then mailroom_now() else lost_at end,
                    next_at = case when {is_lost} then mailroom_now() else next_at end,
                    version = case when {is_lost} then version + 1 else version end
                 where {here}"
            ),
            params![self.tenant, mailbox],
        );
    }
}

impl SystemStore {
    /// Lists the watches that are due, the longest overdue first, without inactive tenants and mailboxes.
    pub async fn list_due_watches(&self, limit: u64) -> Result<Vec<MailboxKey>, StoreError> {
        let sql = format!(
            "select w.tenant_id, w.mailbox_id from push_watches w
             join mailboxes m on m.tenant_id = w.tenant_id and m.id = w.mailbox_id
             join tenants t on t.id = w.tenant_id
             where w.next_at <= (select mailroom_now()) and {IS_SYNC_ENABLED} and t.is_active
             order by w.next_at limit $1"
        );
        self.query(sql, params![limit]).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// Returns whether a mailbox of any tenant is this account.
    pub async fn is_account_connected(&self, provider: Provider, address: &str) -> Result<bool, StoreError> {
        let sql = format!(
            "select 1 from mailboxes m join tenants t on t.id = m.tenant_id
             where {ACCOUNT} = $1 and m.provider = $2 and m.state <> 'disconnected' and t.deleted_at is null limit 1"
        );
        Ok(self.query_one(sql, params![address, provider]).await?.is_some())
    }

    /// Requests new watches for every mailbox that is this account, because the old ones may have ended.
    pub async fn request_watches_of_account(&self, provider: Provider, address: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            format!(
                "update push_watches set next_at = mailroom_now(), wanted_at = mailroom_now(), version = version + 1
                 where (tenant_id, mailbox_id) in (select m.tenant_id, m.id from mailboxes m
                     where {ACCOUNT} = $1 and m.provider = $2 and m.state <> 'disconnected')"
            ),
            params![address, provider],
        );
        self.commit(unit).await.map(drop)
    }

    /// Makes watches due that are off, because pushes may be configured by now.
    pub async fn request_disabled_watches(&self) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "update push_watches set next_at = mailroom_now() where expires_at is null and failures = 0",
            params![],
        );
        self.commit(unit).await.map(drop)
    }
}

/// The columns of [`MailboxKey`] in a statement.
pub(super) const MAILBOX_KEY_COLUMNS: &[(&str, ColumnType)] =
    &[("tenant_id", ColumnType::Uuid), ("mailbox_id", ColumnType::Uuid)];
