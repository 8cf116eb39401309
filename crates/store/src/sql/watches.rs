//! What providers were asked to tell us of, and whether they do.

use std::time::Duration;

use domain::{MailboxId, Provider};
use jiff::Timestamp;

use super::any;
use super::events::{DRAFTS, SAID};
use super::jobs::later;
use super::mailboxes::{ACCOUNT, IS_LOOKED_AT};
use super::sync::{Key, millis};
use crate::value::Kind;
use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, TenantUnit, Unit, params};

/// As many listings in a row have found something of which no push had told before it is believed that none come.
pub const MISSED: u64 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchState {
    /// Until when the provider tells us. Nothing: it was not asked yet, or has refused.
    pub expires_at: Option<Timestamp>,
    pub renewed_at: Option<Timestamp>,
    pub next_at: Timestamp,
    /// Grows when somebody wants it to be asked anew.
    pub version: u64,
    /// How often it was asked in vain since it last agreed.
    pub failures: u64,
    pub problem: Option<String>,
    pub last_push_at: Option<Timestamp>,
    /// When a listing last found something.
    pub news_at: Option<Timestamp>,
    /// Since when nothing comes although it should.
    pub lost_at: Option<Timestamp>,
    /// When somebody last wanted it to be asked, whatever was agreed to.
    pub wanted_at: Option<Timestamp>,
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked<'a> {
    Until(Timestamp),
    /// Nobody has said where pushes go.
    Off,
    Failed(&'a str),
    /// Not now; that is no failure.
    Later,
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
        wanted_at: row.get(9)?,
    })
}

/// Nothing has come between the last two times that a listing found something.
const IS_MISSED: &str = "(news_at is not null and (last_push_at is null or last_push_at <= news_at))";

impl TenantUnit {
    /// Its provider is asked soon, whenever it was to be. One that was there before may have been switched off for a while,
    /// and nobody has heard what was told then: it is looked at whole.
    pub fn want_watch(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "insert into push_watches (tenant_id, mailbox_id, next_at, wanted_at)
             values ($1, $2, mailroom_now(), mailroom_now())
             on conflict (tenant_id, mailbox_id) do update set next_at = excluded.next_at,
                 wanted_at = excluded.wanted_at, sweep_since = excluded.wanted_at, version = push_watches.version + 1",
            params![self.tenant, mailbox],
        );
    }

    /// Its provider is asked as soon as may be, for nothing stands in the way any more.
    pub fn hurry_watch(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update push_watches set next_at = mailroom_now(), version = version + 1
             where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
    }

    /// What came of asking when the watch was of this version, and when it is asked again. Somebody who wanted it to be
    /// asked anew meanwhile still gets that.
    pub fn record_watch(&mut self, mailbox: MailboxId, version: u64, asked: Asked<'_>, again: Duration) {
        let set = match &asked {
            Asked::Until(_) => {
                "expires_at = $5, renewed_at = mailroom_now(), failures = 0, problem = null, missed = 0,"
            }
            // It may have told us for as long as somebody had said where.
            Asked::Off => {
                "expires_at = $5, failures = 0, problem = null, missed = 0, lost_at = null, renewed_at = mailroom_now(),"
            }
            // What it agreed to before goes on until it ends.
            Asked::Failed(_) => "failures = failures + 1, problem = $5,",
            Asked::Later => "",
        };
        let next = later(self.store.dialect(), "$4");
        let mut values = params![self.tenant, mailbox, version, millis(again)];
        match asked {
            Asked::Until(expires_at) => values.extend(params![Some(expires_at)]),
            Asked::Off => values.extend(params![None::<Timestamp>]),
            Asked::Failed(problem) => values.extend(params![problem]),
            Asked::Later => {}
        }
        self.unit.op(
            format!(
                "update push_watches set {set} next_at = case when version = $3 then {next} else next_at end
                 where tenant_id = $1 and mailbox_id = $2"
            ),
            values,
        );
    }

    /// They are asked by somebody now; if nothing comes of that, again after so long.
    pub fn put_off_watches(&mut self, mailboxes: &[MailboxId], again: Duration) {
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

    /// Unless somebody has connected it again.
    pub fn forget_watch(&mut self, mailbox: MailboxId) {
        if self.store.dialect() == Dialect::Postgres {
            // Whoever connects it at this moment is waited for, and seen.
            let sql = "select 1 from mailboxes where tenant_id = $1 and id = $2 for update";
            self.unit.op(sql, params![self.tenant, mailbox]);
        }
        self.unit.op(
            "delete from push_watches where tenant_id = $1 and mailbox_id = $2 and not exists (
                 select 1 from mailboxes where tenant_id = $1 and id = $2 and state <> 'disconnected')",
            params![self.tenant, mailbox],
        );
    }

    /// A listing has found something. When that happens again and again and no push has told of it, there is something
    /// wrong with the watch: that is told, and the provider is asked anew.
    pub fn found_news(&mut self, mailbox: MailboxId) {
        let unit = self.drafting();
        let here = "tenant_id = $1 and mailbox_id = $2 and expires_at is not null";
        let is_lost = format!("({IS_MISSED} and missed + 1 >= {MISSED} and lost_at is null)");
        self.unit.op(
            format!(
                "insert into {DRAFTS} select tenant_id, $3, {SAID}, 'mailbox.push_lost', mailbox_id, null, false, $4
                 from push_watches where {here} and {is_lost}"
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
    /// Watches that are to be asked for, the longest overdue first, none of tenants or mailboxes that are switched off.
    pub async fn list_due_watches(&self, limit: u64) -> Result<Vec<Key>, StoreError> {
        let sql = format!(
            "select w.tenant_id, w.mailbox_id from push_watches w
             join mailboxes m on m.tenant_id = w.tenant_id and m.id = w.mailbox_id
             join tenants t on t.id = w.tenant_id
             where w.next_at <= (select mailroom_now()) and {IS_LOOKED_AT} and t.is_active
             order by w.next_at limit $1"
        );
        self.query(sql, params![limit]).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// Whether a mailbox of any tenant is this account.
    pub async fn is_connected(&self, provider: Provider, address: &str) -> Result<bool, StoreError> {
        let sql = format!(
            "select 1 from mailboxes m join tenants t on t.id = m.tenant_id
             where {ACCOUNT} = $1 and m.provider = $2 and m.state <> 'disconnected' and t.deleted_at is null limit 1"
        );
        Ok(self.query_one(sql, params![address, provider]).await?.is_some())
    }

    /// The provider is asked soon for every mailbox that is this account, for what it had agreed to may have ended.
    pub async fn want_watches(&self, provider: Provider, address: &str) -> Result<(), StoreError> {
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

    /// Somebody may have said by now where pushes go: those that are off are asked for soon.
    pub async fn want_watches_that_are_off(&self) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "update push_watches set next_at = mailroom_now() where expires_at is null and failures = 0",
            params![],
        );
        self.commit(unit).await.map(drop)
    }
}

/// Which mailbox, in a statement.
pub(super) const WATCHED: &[(&str, Kind)] = &[("tenant_id", Kind::Uuid), ("mailbox_id", Kind::Uuid)];
