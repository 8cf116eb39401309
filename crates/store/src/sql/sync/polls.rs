//! Mailboxes that are due, and polls that find nothing new: those must cost next to nothing.

use std::collections::HashMap;
use std::time::Duration;

use domain::connector::Cursors;
use domain::{MailboxId, Provider, TenantId};
use jiff::Timestamp;

use super::batches::{LEASE_KEY_COLUMNS, MAILBOX_KEY_COLUMNS, MailboxKey};
use super::{ListingPhase, SYNC_STATE_COLUMNS, SyncState, sync_state};
use crate::failpoint::Effect;
use crate::sql::mailbox_settings::interval_seconds;
use crate::sql::mailboxes::IS_SYNC_ENABLED;
use crate::sql::{any, column_count, given_rows};
use crate::{Dialect, Row, StoreError, SystemStore, TenantUnit, Unit, params};

/// A mailbox that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueMailbox {
    pub tenant: TenantId,
    pub mailbox: MailboxId,
    pub provider: Provider,
    /// Its own poll interval or its tenant's, if there is one.
    pub every: Option<Duration>,
    /// It was synced before, and no history or comparison is unfinished.
    pub is_settled: bool,
    /// Its provider pushes, and has done so.
    pub is_pushed: bool,
    /// Failed polls in a row.
    pub errors: u64,
    /// How long nothing has happened in it, as far as known.
    pub quiet_for: Duration,
}

/// The sync state of a mailbox, as a poll needs it.
#[derive(Debug, Clone)]
pub struct PollState {
    /// The fence token; the next sync gets another.
    pub token: u64,
    /// A sync holds it now.
    pub is_held: bool,
    pub state: SyncState,
    /// The cursors of its changes.
    pub cursors: Cursors,
}

/// The mailboxes among which tenants take turns. More than these are not read.
const MAX_DUE_CANDIDATES: u64 = 20_000;

impl SystemStore {
    /// Lists mailboxes that are due, without inactive mailboxes, inactive tenants and those `except`. Tenants take turns, and of
    /// each the longest overdue come first.
    pub async fn list_due_mailboxes(&self, limit: u64, except: &[TenantId]) -> Result<Vec<DueMailbox>, StoreError> {
        let others = match self.store.dialect() {
            // An empty list goes over as null.
            Dialect::Postgres => "not coalesce(s.tenant_id = any($3), false)",
            Dialect::Sqlite => "s.tenant_id not in (select value from json_each($3))",
        };
        let sql = due_mailboxes(self.store.dialect(), &format!("{others} order by s.next_sync_at limit $2"));
        let rows = self.query(sql, params![limit, MAX_DUE_CANDIDATES.max(limit), except.to_vec()]).await?;
        rows.iter().filter_map(|row| due(row).transpose()).collect()
    }

    /// Lists due mailboxes like [`SystemStore::list_due_mailboxes`], of these tenants alone and however many are due.
    pub async fn list_due_mailboxes_of(&self, tenants: &[TenantId], limit: u64) -> Result<Vec<DueMailbox>, StoreError> {
        let dialect = self.store.dialect();
        let sql = due_mailboxes(dialect, &any(dialect, "s.tenant_id", 2));
        let rows = self.query(sql, params![limit, tenants.to_vec()]).await?;
        rows.iter().filter_map(|row| due(row).transpose()).collect()
    }

    /// Lists the age of the oldest poll job by tenant and name of the provider, whether it waits, is deferred again and again, or
    /// runs.
    pub async fn list_oldest_polls(&self) -> Result<HashMap<(TenantId, String), Duration>, StoreError> {
        let sql =
            "select tenant_id, cast(payload ->> 'provider' as text), min(created_at), (select mailroom_now()) from jobs
                   where kind = 'poll_mailboxes' group by 1, 2";
        self.query(sql, vec![])
            .await?
            .iter()
            .map(|row: &Row| {
                let (since, now): (Timestamp, Timestamp) = (row.get(2)?, row.get(3)?);
                let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
                Ok(((row.get(0)?, row.get(1)?), age))
            })
            .collect()
    }

    /// Lists the states of mailboxes for polls, which hold no lease. None of inactive tenants.
    pub async fn list_poll_states(&self, wanted: &[MailboxKey]) -> Result<HashMap<MailboxKey, PollState>, StoreError> {
        let keys: Vec<_> = wanted.iter().map(|(tenant, mailbox)| params![*tenant, *mailbox]).collect();
        let (these, values) = given_rows(self.store.dialect(), 1, MAILBOX_KEY_COLUMNS, keys.clone());
        let sql = format!(
            "select {SYNC_STATE_COLUMNS}, tenant_id, mailbox_id, token, held_until > (select mailroom_now()) from sync_states
             where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these})
               and exists (select 1 from tenants t where t.id = sync_states.tenant_id and t.is_active)"
        );
        let mut states = HashMap::with_capacity(wanted.len());
        for row in self.query(sql, values).await? {
            let at = column_count(SYNC_STATE_COLUMNS);
            let state = PollState {
                token: row.get(at + 2)?,
                is_held: row.get::<Option<bool>>(at + 3)?.unwrap_or(false),
                state: sync_state(&row)?,
                cursors: Cursors::new(),
            };
            states.insert((row.get(at)?, row.get(at + 1)?), state);
        }
        let (these, mut values) = given_rows(self.store.dialect(), 2, MAILBOX_KEY_COLUMNS, keys);
        values.insert(0, ListingPhase::Changes.as_str().into());
        let sql = format!(
            "select tenant_id, mailbox_id, scope, cursor from sync_cursors
             where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these}) and phase = $1"
        );
        for row in self.query(sql, values).await? {
            if let Some(state) = states.get_mut(&(row.get(0)?, row.get(1)?)) {
                state.cursors.insert(row.get(2)?, row.get(3)?);
            }
        }
        Ok(states)
    }

    /// Records polls that found nothing new. A mailbox that a sync holds, or has held meanwhile, is unchanged.
    pub async fn record_unchanged_polls(&self, looked: &[(MailboxKey, u64)]) -> Result<(), StoreError> {
        let mut looked = looked.to_vec();
        looked.sort_unstable();
        let mut unit = Unit::default();
        self.lock_in_order(&mut unit, looked.iter().map(|((tenant, mailbox), _)| params![*tenant, *mailbox]).collect());
        let rows = looked.iter().map(|((tenant, mailbox), token)| params![*tenant, *mailbox, *token]).collect();
        let (these, values) = given_rows(self.store.dialect(), 1, LEASE_KEY_COLUMNS, rows);
        unit.op(
            format!(
                "update sync_states set status = 'idle', last_sync_at = mailroom_now(), error_count = 0, last_error = null,
                    updated_at = mailroom_now()
                 where (tenant_id, mailbox_id, token) in (select tenant_id, mailbox_id, token from {these})
                   and (held_until is null or held_until <= mailroom_now())"
            ),
            values,
        );
        self.commit_at(Effect::EndLooks, unit).await?;
        Ok(())
    }
}

/// Returns the query for `$1` due mailboxes among these candidates `s`.
fn due_mailboxes(dialect: Dialect, candidates: &str) -> String {
    let interval = interval_seconds(dialect);
    format!(
        "select d.tenant_id, d.mailbox_id, m.provider, {interval},
                d.is_history_done and not d.is_listing and m.state in ('active', 'error'),
                w.expires_at > d.now and w.lost_at is null and w.problem is null and w.last_push_at is not null,
                d.error_count, coalesce(d.news_at, m.created_at), d.now
         from (select s.*, row_number() over (partition by s.tenant_id order by s.next_sync_at) as turn
               from (select s.tenant_id, s.mailbox_id, s.next_sync_at, s.is_history_done, s.is_listing,
                            s.error_count, s.news_at, n.now
                     from sync_states s
                     cross join (select mailroom_now() as now) n
                     join mailboxes m on m.tenant_id = s.tenant_id and m.id = s.mailbox_id
                     join tenants t on t.id = s.tenant_id
                     where s.next_sync_at <= (select mailroom_now()) and {IS_SYNC_ENABLED} and t.is_active
                       and {candidates}) s) d
         join mailboxes m on m.tenant_id = d.tenant_id and m.id = d.mailbox_id
         join tenants t on t.id = d.tenant_id
         left join push_watches w on w.tenant_id = d.tenant_id and w.mailbox_id = d.mailbox_id
         order by d.turn, d.next_sync_at limit $1"
    )
}

fn due(row: &Row) -> Result<Option<DueMailbox>, StoreError> {
    // A provider of a newer program.
    let Some(provider) = Provider::parse(&row.get::<String>(2)?) else { return Ok(None) };
    let (busy_at, now): (Timestamp, Timestamp) = (row.get(7)?, row.get(8)?);
    Ok(Some(DueMailbox {
        tenant: row.get(0)?,
        mailbox: row.get(1)?,
        provider,
        every: row.get::<Option<u64>>(3)?.map(Duration::from_secs),
        is_settled: row.get(4)?,
        is_pushed: row.get::<Option<bool>>(5)?.unwrap_or(false),
        errors: row.get(6)?,
        quiet_for: Duration::try_from(now.duration_since(busy_at)).unwrap_or_default(),
    }))
}

impl TenantUnit {
    /// Records a failed poll, unless a sync holds the mailbox, which knows better.
    pub fn record_failed_poll(&mut self, mailbox: MailboxId, token: u64, why: &str) {
        self.unit.op(
            "update sync_states set status = 'error', error_count = error_count + 1, last_error = $4,
                 updated_at = mailroom_now()
             where tenant_id = $1 and mailbox_id = $2 and token = $3
               and (held_until is null or held_until <= mailroom_now())",
            params![self.tenant, mailbox, token, why],
        );
    }

    /// Records that a poll has found something.
    pub fn record_news(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update sync_states set news_at = mailroom_now() where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
    }
}
