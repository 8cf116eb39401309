//! Mailboxes whose time has come, and looks at them that find nothing: those must cost next to nothing.

use std::collections::HashMap;
use std::time::Duration;

use domain::connector::Cursors;
use domain::{MailboxId, Provider, TenantId};
use jiff::Timestamp;

use super::many::{HELD, Key, MAILBOX};
use super::{Phase, SYNC_STATE, SyncState, sync_state};
use crate::failpoint::{self, Effect};
use crate::sql::given;
use crate::sql::mailboxes::IS_LOOKED_AT;
use crate::{Row, StoreError, SystemStore, TenantUnit, Unit, params};

/// A mailbox whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    pub tenant: TenantId,
    pub mailbox: MailboxId,
    pub provider: Provider,
    /// How often, if it says so itself.
    pub every: Option<Duration>,
    /// It was synced before, and nothing is left to do but to look.
    pub is_settled: bool,
    /// Its provider tells us when something happens, and has done so.
    pub is_pushed: bool,
    /// Looks in a row that failed.
    pub errors: u64,
    /// How long nothing has happened in it, as far as is known.
    pub quiet_for: Duration,
}

/// Where a mailbox stands, as who only looks at it needs to know.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Whoever lists it next has another.
    pub token: u64,
    /// Somebody lists it now.
    pub is_held: bool,
    pub state: SyncState,
    /// Of its changes.
    pub cursors: Cursors,
}

/// Of these the first of every tenant come first. More than this are not looked through.
const LOOKED_THROUGH: u64 = 20_000;

impl SystemStore {
    /// Mailboxes whose time has come, none of tenants or mailboxes that are switched off. Tenants take turns, and of each
    /// the longest overdue come first.
    pub async fn list_due_mailboxes(&self, limit: u64) -> Result<Vec<Due>, StoreError> {
        let sql = format!(
            "select d.tenant_id, d.mailbox_id, m.provider, cast(m.settings ->> 'interval_seconds' as text),
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
                         where s.next_sync_at <= (select mailroom_now()) and {IS_LOOKED_AT} and t.is_active
                         order by s.next_sync_at limit $2) s) d
             join mailboxes m on m.tenant_id = d.tenant_id and m.id = d.mailbox_id
             left join push_watches w on w.tenant_id = d.tenant_id and w.mailbox_id = d.mailbox_id
             order by d.turn, d.next_sync_at limit $1"
        );
        let rows = self.query(sql, params![limit, LOOKED_THROUGH.max(limit)]).await?;
        rows.iter().filter_map(|row| due(row).transpose()).collect()
    }

    /// How long the first job that looks at mailboxes of a tenant at a provider has not come to its end, whether it waits,
    /// is sent away again and again, or runs. By the name of the provider.
    pub async fn list_oldest_polls(&self) -> Result<HashMap<(TenantId, String), Duration>, StoreError> {
        let sql =
            "select tenant_id, cast(payload ->> 'provider' as text), min(created_at), (select mailroom_now()) from jobs
                   where kind = 'poll_mailboxes' group by 1, 2";
        let age = |row: &Row| {
            let (since, now): (Timestamp, Timestamp) = (row.get(2)?, row.get(3)?);
            let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            Ok(((row.get(0)?, row.get(1)?), age))
        };
        self.query(sql, vec![]).await?.iter().map(age).collect()
    }

    /// Where they stand, for who looks without the right to write. None of tenants that are switched off.
    pub async fn list_standings(&self, wanted: &[Key]) -> Result<HashMap<Key, Standing>, StoreError> {
        let keys = || wanted.iter().map(|(tenant, mailbox)| params![*tenant, *mailbox]).collect();
        let (these, values) = given(self.store.dialect(), 1, MAILBOX, keys());
        let sql = format!(
            "select {SYNC_STATE}, tenant_id, mailbox_id, token, held_until > (select mailroom_now()) from sync_states
             where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these})
               and exists (select 1 from tenants t where t.id = sync_states.tenant_id and t.is_active)"
        );
        let mut standings = HashMap::with_capacity(wanted.len());
        for row in self.query(sql, values).await? {
            let standing = Standing {
                token: row.get(13)?,
                is_held: row.get::<Option<bool>>(14)?.unwrap_or(false),
                state: sync_state(&row)?,
                cursors: Cursors::new(),
            };
            standings.insert((row.get(11)?, row.get(12)?), standing);
        }
        let (these, mut values) = given(self.store.dialect(), 2, MAILBOX, keys());
        values.insert(0, Phase::Changes.as_str().into());
        let sql = format!(
            "select tenant_id, mailbox_id, scope, cursor from sync_cursors
             where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these}) and phase = $1"
        );
        for row in self.query(sql, values).await? {
            if let Some(standing) = standings.get_mut(&(row.get(0)?, row.get(1)?)) {
                standing.cursors.insert(row.get(2)?, row.get(3)?);
            }
        }
        Ok(standings)
    }

    /// Nothing was new. Of one that somebody lists, or has listed meanwhile, nothing changes.
    pub async fn end_looks(&self, looked: &[(Key, u64)]) -> Result<(), StoreError> {
        let mut looked = looked.to_vec();
        looked.sort_unstable();
        let mut unit = Unit::default();
        self.lock_in_order(&mut unit, looked.iter().map(|((tenant, mailbox), _)| params![*tenant, *mailbox]).collect());
        let rows = looked.iter().map(|((tenant, mailbox), token)| params![*tenant, *mailbox, *token]).collect();
        let (these, values) = given(self.store.dialect(), 1, HELD, rows);
        unit.op(
            format!(
                "update sync_states set status = 'idle', last_sync_at = mailroom_now(), error_count = 0, last_error = null,
                    updated_at = mailroom_now()
                 where (tenant_id, mailbox_id, token) in (select tenant_id, mailbox_id, token from {these})
                   and (held_until is null or held_until <= mailroom_now())"
            ),
            values,
        );
        failpoint::before(Effect::EndLooks);
        self.commit(unit).await?;
        failpoint::after(Effect::EndLooks);
        Ok(())
    }
}

fn due(row: &Row) -> Result<Option<Due>, StoreError> {
    // Of a program that knows more than this one.
    let Some(provider) = Provider::parse(&row.get::<String>(2)?) else { return Ok(None) };
    // What somebody wrote by hand must not keep the others waiting.
    let every = row.get::<Option<String>>(3)?.and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let (busy_at, now): (Timestamp, Timestamp) = (row.get(7)?, row.get(8)?);
    Ok(Some(Due {
        tenant: row.get(0)?,
        mailbox: row.get(1)?,
        provider,
        every,
        is_settled: row.get(4)?,
        is_pushed: row.get::<Option<bool>>(5)?.unwrap_or(false),
        errors: row.get(6)?,
        quiet_for: Duration::try_from(now.duration_since(busy_at)).unwrap_or_default(),
    }))
}

impl TenantUnit {
    /// A look came to nothing. Who lists the mailbox now knows better.
    pub fn fail_look(&mut self, mailbox: MailboxId, token: u64, why: &str) {
        self.unit.op(
            "update sync_states set status = 'error', error_count = error_count + 1, last_error = $4,
                 updated_at = mailroom_now()
             where tenant_id = $1 and mailbox_id = $2 and token = $3
               and (held_until is null or held_until <= mailroom_now())",
            params![self.tenant, mailbox, token, why],
        );
    }

    /// A look at the mailbox has found something.
    pub fn had_news(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update sync_states set news_at = mailroom_now() where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
    }
}
