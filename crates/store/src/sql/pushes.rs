//! What providers have told us: a hint that something happened in an account, whosever it is.

use std::collections::{BTreeMap, HashSet};

use domain::{MailboxId, Provider, TenantId};
use jiff::Timestamp;

use super::events::{DRAFTS, SAID};
use super::jobs::NewJob;
use super::sync::Key;
use super::watches::WATCHED;
use super::{any, given};
use crate::failpoint::{self, Effect};
use crate::value::Kind;
use crate::{Dialect, Row, StoreError, SystemStore, TenantUnit, Unit, Value, params};

/// A mailbox that is an account of which something was told, and at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub address: String,
    pub tenant: TenantId,
    pub mailbox: MailboxId,
    /// It was told that no pushes come.
    pub is_lost: bool,
}

/// What somebody is told who records a push that another has recorded meanwhile.
pub const PUSHED_BEFORE: &str = "a push was recorded before";

const MESSAGE: &[(&str, Kind)] = &[("message_id", Kind::Text)];

impl SystemStore {
    /// Those of these messages that have come before.
    pub async fn list_known_pushes(
        &self,
        provider: Provider,
        messages: Vec<String>,
    ) -> Result<HashSet<String>, StoreError> {
        let sql = format!(
            "select message_id from push_messages where provider = $1 and {}",
            any(self.store.dialect(), "message_id", 2)
        );
        self.query(sql, params![provider, messages]).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Over all tenants, none that is switched off or waits for somebody.
    pub async fn list_pushed(&self, provider: Provider, addresses: Vec<String>) -> Result<Vec<Pushed>, StoreError> {
        let sql = format!(
            "select m.address, m.tenant_id, m.id, w.lost_at is not null from mailboxes m
             join tenants t on t.id = m.tenant_id
             left join push_watches w on w.tenant_id = m.tenant_id and w.mailbox_id = m.id
             where {} and m.provider = $1 and m.is_active and t.is_active and m.state in ('connecting', 'active', 'error')",
            any(self.store.dialect(), "m.address", 2)
        );
        let pushed = |row: &Row| {
            Ok(Pushed { address: row.get(0)?, tenant: row.get(1)?, mailbox: row.get(2)?, is_lost: row.get(3)? })
        };
        self.query(sql, params![provider, addresses]).await?.iter().map(pushed).collect()
    }

    /// Messages, and the looks at mailboxes that follow from them, in one commit. Fails with [`PUSHED_BEFORE`], and nothing
    /// happens, when somebody has recorded one of the messages.
    pub async fn record_pushes(
        &self,
        provider: Provider,
        messages: &[String],
        looks: Vec<(Pushed, NewJob)>,
    ) -> Result<(), StoreError> {
        let mut messages = messages.to_vec();
        // Two who record some of the same must not wait for each other.
        messages.sort_unstable();
        let dialect = self.store.dialect();
        let mut whole = self.write_for(TenantId::SYSTEM);
        let rows = messages.iter().map(|message| params![message]).collect();
        let (these, mut values) = given(dialect, 2, MESSAGE, rows);
        values.insert(0, Value::from(provider));
        whole.unit.op_exactly(
            messages.len() as u64,
            PUSHED_BEFORE,
            format!(
                "insert into push_messages (provider, message_id, received_at)
                 select $1, g.message_id, mailroom_now() from {these} where true on conflict do nothing"
            ),
            values,
        );
        let mut keys: Vec<Key> = looks.iter().map(|(pushed, _)| (pushed.tenant, pushed.mailbox)).collect();
        keys.sort_unstable();
        let rows: Vec<Vec<Value>> = keys.iter().map(|(tenant, mailbox)| params![*tenant, *mailbox]).collect();
        if dialect == Dialect::Postgres && !rows.is_empty() {
            let (these, values) = given(dialect, 1, WATCHED, rows.clone());
            whole.unit.op(
                format!(
                    "select count(*) from {these} cross join lateral (
                         select 1 from push_watches w where w.tenant_id = g.tenant_id and w.mailbox_id = g.mailbox_id
                         offset 0 for update) f"
                ),
                values,
            );
        }
        let mut by_tenant: BTreeMap<TenantId, Vec<(Pushed, NewJob)>> = BTreeMap::new();
        for (pushed, job) in looks {
            by_tenant.entry(pushed.tenant).or_default().push((pushed, job));
        }
        for (tenant, looks) in by_tenant {
            let mut unit = self.write_for(tenant);
            for (pushed, _) in looks.iter().filter(|(pushed, _)| pushed.is_lost) {
                unit.tell_of_push(pushed.mailbox);
            }
            unit.enqueue(looks.into_iter().map(|(_, job)| job).collect());
            unit.number_events();
            whole.unit.ops.extend(unit.unit.ops);
        }
        if !rows.is_empty() {
            let (these, values) = given(dialect, 1, WATCHED, rows);
            whole.unit.op(
                format!(
                    "update push_watches set last_push_at = mailroom_now(), missed = 0, lost_at = null
                     where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these})"
                ),
                values,
            );
        }
        whole.enqueues = !keys.is_empty();
        failpoint::before(Effect::RecordPushes);
        whole.commit().await?;
        failpoint::after(Effect::RecordPushes);
        Ok(())
    }

    /// Forgets some messages that came before that moment; whether there may be more.
    pub async fn prune_pushes(&self, before: Timestamp, limit: u64) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let pruned = unit.op(
            "delete from push_messages where (provider, message_id) in (
                 select provider, message_id from push_messages where received_at < $1 order by received_at limit $2)",
            params![before, limit],
        );
        Ok(self.commit(unit).await?.changed(pruned) >= limit)
    }
}

impl TenantUnit {
    /// Pushes come again, if it was told that none did.
    fn tell_of_push(&mut self, mailbox: MailboxId) {
        let unit = self.drafting();
        self.unit.op(
            format!(
                "insert into {DRAFTS} select tenant_id, $3, {SAID}, 'mailbox.push_restored', mailbox_id, null, false, $4
                 from push_watches where tenant_id = $1 and mailbox_id = $2 and lost_at is not null"
            ),
            params![self.tenant, mailbox, unit, serde_json::json!({})],
        );
    }
}
