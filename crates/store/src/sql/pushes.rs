//! What providers have told us: a hint that something happened in an account, whosever it is.

use std::collections::{BTreeMap, HashSet};

use domain::{MailboxId, Provider, Sha256, TenantId};
use jiff::Timestamp;

use super::events::{DRAFTS, SAID};
use super::jobs::NewJob;
use super::mailboxes::{ACCOUNT, IS_LOOKED_AT};
use super::sync::Key;
use super::watches::WATCHED;
use super::{any, given};
use crate::failpoint::{self, Effect};
use crate::value::Kind;
use crate::{Dialect, Row, StoreError, SystemStore, TenantUnit, Unit, Value, params};

/// A mailbox that is an account of which something was told, and at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// What the provider knows the account by.
    pub address: String,
    pub tenant: TenantId,
    pub mailbox: MailboxId,
    /// It was told that no pushes come.
    pub is_lost: bool,
}

/// What a push means for a mailbox.
#[derive(Debug)]
pub struct Look {
    pub pushed: Pushed,
    pub jobs: Vec<NewJob>,
    /// It tells of something that happened there, and not of pushes themselves.
    pub is_told: bool,
    /// Something may be gone that only a look at every folder shows.
    pub sweeps: bool,
    /// Its provider is to be asked anew.
    pub renews: bool,
}

/// What pushes say of the subscriptions that they come for.
#[derive(Debug, Default)]
pub struct Learned {
    /// What the provider says with each call, and what those are called of which nobody knew the name.
    pub named: Vec<(Sha256, String)>,
    /// The accounts of those that have ended.
    pub ended: Vec<String>,
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
            "select {ACCOUNT}, m.tenant_id, m.id, w.lost_at is not null from mailboxes m
             join tenants t on t.id = m.tenant_id
             left join push_watches w on w.tenant_id = m.tenant_id and w.mailbox_id = m.id
             where {} and m.provider = $1 and {IS_LOOKED_AT} and t.is_active",
            any(self.store.dialect(), ACCOUNT, 2)
        );
        let pushed = |row: &Row| {
            Ok(Pushed { address: row.get(0)?, tenant: row.get(1)?, mailbox: row.get(2)?, is_lost: row.get(3)? })
        };
        self.query(sql, params![provider, addresses]).await?.iter().map(pushed).collect()
    }

    /// Messages, the looks at mailboxes that follow from them, and what was learned of subscriptions, in one commit. Fails
    /// with [`PUSHED_BEFORE`], and nothing happens, when somebody has recorded one of the messages.
    pub async fn record_pushes(
        &self,
        provider: Provider,
        messages: &[String],
        looks: Vec<Look>,
        learned: Learned,
    ) -> Result<(), StoreError> {
        let mut messages = messages.to_vec();
        // Two who record some of the same must not wait for each other.
        messages.sort_unstable();
        let dialect = self.store.dialect();
        let mut whole = self.write_for(TenantId::SYSTEM);
        let rows = messages.iter().map(|message| params![message]).collect();
        if !messages.is_empty() {
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
        }
        whole.name_subscriptions(provider, &learned.named);
        whole.end_subscriptions(provider, &learned.ended);
        whole.look(looks);
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

impl Look {
    fn key(&self) -> Key {
        (self.pushed.tenant, self.pushed.mailbox)
    }
}

impl TenantUnit {
    /// What pushes mean for mailboxes of any tenants. For units of the system.
    pub(super) fn look(&mut self, mut looks: Vec<Look>) {
        if looks.is_empty() {
            return;
        }
        // Two who record something for the same mailboxes must not wait for each other.
        looks.sort_unstable_by_key(Look::key);
        self.hold_watches(&looks);
        let mut jobs: BTreeMap<TenantId, (Vec<MailboxId>, Vec<NewJob>)> = BTreeMap::new();
        for look in &mut looks {
            let (restored, jobs) = jobs.entry(look.pushed.tenant).or_default();
            restored.extend((look.is_told && look.pushed.is_lost).then_some(look.pushed.mailbox));
            jobs.append(&mut look.jobs);
        }
        for (tenant, (restored, jobs)) in jobs {
            let mut unit = self.store.system().write_for(tenant);
            restored.into_iter().for_each(|mailbox| unit.tell_of_push(mailbox));
            unit.enqueue(jobs);
            unit.number_events();
            self.unit.ops.extend(unit.unit.ops);
            self.enqueues |= unit.enqueues;
        }
        self.change_watches(&looks, |look| look.is_told, "last_push_at = mailroom_now(), missed = 0, lost_at = null");
        self.change_watches(&looks, |look| look.sweeps, "sweep_since = mailroom_now()");
        let anew = "next_at = mailroom_now(), wanted_at = mailroom_now(), version = version + 1";
        self.change_watches(&looks, |look| look.renews, anew);
    }

    fn hold_watches(&mut self, looks: &[Look]) {
        if self.store.dialect() != Dialect::Postgres {
            return;
        }
        let (these, values) = given(Dialect::Postgres, 1, WATCHED, keys(looks, |_| true));
        self.unit.op(
            format!(
                "select count(*) from {these} cross join lateral (
                     select 1 from push_watches w where w.tenant_id = g.tenant_id and w.mailbox_id = g.mailbox_id
                     offset 0 for update) f"
            ),
            values,
        );
    }

    fn change_watches(&mut self, looks: &[Look], which: fn(&Look) -> bool, set: &str) {
        let rows = keys(looks, which);
        if rows.is_empty() {
            return;
        }
        let (these, values) = given(self.store.dialect(), 1, WATCHED, rows);
        self.unit.op(
            format!(
                "update push_watches set {set}
                 where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these})"
            ),
            values,
        );
    }

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

fn keys(looks: &[Look], which: fn(&Look) -> bool) -> Vec<Vec<Value>> {
    let those = looks.iter().filter(|look| which(look));
    those.map(|look| params![look.pushed.tenant, look.pushed.mailbox]).collect()
}
