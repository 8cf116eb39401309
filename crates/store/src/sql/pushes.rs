//! Pushes: notifications of providers that something happened in an account, of whichever tenants.

use std::collections::{BTreeMap, HashSet};

use domain::{EventType, MailboxId, Provider, Sha256, TenantId};
use jiff::Timestamp;

use super::events::{EVENT_STEP, INTO_DRAFTS};
use super::jobs::NewJob;
use super::mailbox_settings::ACCOUNT;
use super::mailboxes::IS_SYNC_ENABLED;
use super::sync::MailboxKey;
use super::watches::MAILBOX_KEY_COLUMNS;
use super::{any, given_rows};
use crate::failpoint::Effect;
use crate::value::ColumnType;
use crate::{Dialect, Precondition, Row, StoreError, SystemStore, TenantUnit, Unit, Value, params};

/// A mailbox whose account a push is about, and that is synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedMailbox {
    /// The account's name at the provider.
    pub address: String,
    pub tenant: TenantId,
    pub mailbox: MailboxId,
    /// Its pushes counted as lost.
    pub is_lost: bool,
}

/// The effects of a push on a mailbox.
#[derive(Debug)]
pub struct MailboxPush {
    pub mailbox: PushedMailbox,
    pub jobs: Vec<NewJob>,
    /// It reports something that happened in the mailbox, rather than about the watch itself.
    pub is_received: bool,
    /// Messages may be gone that only a full listing of every folder shows.
    pub needs_full_sweep: bool,
    /// Its watch must be renewed.
    pub renews_watch: bool,
}

/// What pushes say about the subscriptions that they belong to.
#[derive(Debug, Default)]
pub struct SubscriptionChanges {
    /// The password of each subscription whose name was unknown, and its name.
    pub named: Vec<(Sha256, String)>,
    /// The accounts of those that have ended.
    pub ended: Vec<String>,
}

const MESSAGE_COLUMNS: &[(&str, ColumnType)] = &[("message_id", ColumnType::Text)];

impl SystemStore {
    /// Finds those of these pushes that are recorded already.
    pub async fn find_recorded_pushes(
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

    /// Lists the mailboxes of these accounts over all tenants that are synced.
    pub async fn list_pushed_mailboxes(
        &self,
        provider: Provider,
        addresses: Vec<String>,
    ) -> Result<Vec<PushedMailbox>, StoreError> {
        let sql = format!(
            "select {ACCOUNT}, m.tenant_id, m.id, w.lost_at is not null from mailboxes m
             join tenants t on t.id = m.tenant_id
             left join push_watches w on w.tenant_id = m.tenant_id and w.mailbox_id = m.id
             where {} and m.provider = $1 and {IS_SYNC_ENABLED} and t.is_active",
            any(self.store.dialect(), ACCOUNT, 2)
        );
        self.query(sql, params![provider, addresses])
            .await?
            .iter()
            .map(|row: &Row| {
                Ok(PushedMailbox {
                    address: row.get(0)?,
                    tenant: row.get(1)?,
                    mailbox: row.get(2)?,
                    is_lost: row.get(3)?,
                })
            })
            .collect()
    }

    /// Records pushes, their effects on mailboxes, and changes of subscriptions, in one commit. Fails with
    /// [`Precondition::PushAlreadyRecorded`], and nothing happens, when another process has recorded one of the pushes.
    pub async fn record_pushes(
        &self,
        provider: Provider,
        messages: &[String],
        pushes: Vec<MailboxPush>,
        learned: SubscriptionChanges,
    ) -> Result<(), StoreError> {
        let mut messages = messages.to_vec();
        // Sorted, so that two units that record some of the same do not deadlock.
        messages.sort_unstable();
        let dialect = self.store.dialect();
        let mut whole = self.write_for(TenantId::SYSTEM);
        let rows = messages.iter().map(|message| params![message]).collect();
        if !messages.is_empty() {
            let (these, mut values) = given_rows(dialect, 2, MESSAGE_COLUMNS, rows);
            values.insert(0, Value::from(provider));
            whole.unit.op_exactly(
                messages.len() as u64,
                Precondition::PushAlreadyRecorded,
                format!(
                    "insert into push_messages (provider, message_id, received_at)
                     select $1, g.message_id, mailroom_now() from {these} where true on conflict do nothing"
                ),
                values,
            );
        }
        whole.name_subscriptions(provider, &learned.named);
        whole.end_subscriptions(provider, &learned.ended);
        whole.apply_pushes(pushes);
        whole.commit_at(Effect::RecordPushes).await?;
        Ok(())
    }

    /// Deletes pushes that came before that moment; returns whether there may be more.
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

impl MailboxPush {
    fn key(&self) -> MailboxKey {
        (self.mailbox.tenant, self.mailbox.mailbox)
    }
}

impl TenantUnit {
    /// Applies the effects of pushes on mailboxes of any tenants. For units of the system.
    pub(super) fn apply_pushes(&mut self, mut pushes: Vec<MailboxPush>) {
        if pushes.is_empty() {
            return;
        }
        // Sorted, so that two units for the same mailboxes do not deadlock.
        pushes.sort_unstable_by_key(MailboxPush::key);
        self.lock_watches(&pushes);
        let mut jobs: BTreeMap<TenantId, (Vec<MailboxId>, Vec<NewJob>)> = BTreeMap::new();
        for push in &mut pushes {
            let (restored, jobs) = jobs.entry(push.mailbox.tenant).or_default();
            restored.extend((push.is_received && push.mailbox.is_lost).then_some(push.mailbox.mailbox));
            jobs.append(&mut push.jobs);
        }
        for (tenant, (restored, jobs)) in jobs {
            let mut unit = self.store.system().write_for(tenant);
            restored.into_iter().for_each(|mailbox| unit.draft_push_restored(mailbox));
            unit.enqueue(jobs);
            unit.number_events();
            self.unit.ops.extend(unit.unit.ops);
            self.enqueues |= unit.enqueues;
        }
        self.update_watches(
            &pushes,
            |push| push.is_received,
            "last_push_at = mailroom_now(), missed = 0, lost_at = null",
        );
        self.update_watches(&pushes, |push| push.needs_full_sweep, "sweep_since = mailroom_now()");
        let anew = "next_at = mailroom_now(), wanted_at = mailroom_now(), version = version + 1";
        self.update_watches(&pushes, |push| push.renews_watch, anew);
    }

    fn lock_watches(&mut self, pushes: &[MailboxPush]) {
        if self.store.dialect() != Dialect::Postgres {
            return;
        }
        let (these, values) = given_rows(Dialect::Postgres, 1, MAILBOX_KEY_COLUMNS, keys(pushes, |_| true));
        self.unit.op(
            format!(
                "select count(*) from {these} cross join lateral (
                     select 1 from push_watches w where w.tenant_id = g.tenant_id and w.mailbox_id = g.mailbox_id
                     offset 0 for update) f"
            ),
            values,
        );
    }

    fn update_watches(&mut self, pushes: &[MailboxPush], which: fn(&MailboxPush) -> bool, set: &str) {
        let rows = keys(pushes, which);
        if rows.is_empty() {
            return;
        }
        let (these, values) = given_rows(self.store.dialect(), 1, MAILBOX_KEY_COLUMNS, rows);
        self.unit.op(
            format!(
                "update push_watches set {set}
                 where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these})"
            ),
            values,
        );
    }

    /// Drafts the event that pushes come again, if they counted as lost.
    fn draft_push_restored(&mut self, mailbox: MailboxId) {
        let unit = self.draft_id();
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select tenant_id, $3, {EVENT_STEP}, '{kind}', mailbox_id, null, false, $4
                 from push_watches where tenant_id = $1 and mailbox_id = $2 and lost_at is not null",
                kind = EventType::MailboxPushRestored,
            ),
            params![self.tenant, mailbox, unit, serde_json::json!({})],
        );
    }
}

fn keys(pushes: &[MailboxPush], which: fn(&MailboxPush) -> bool) -> Vec<Vec<Value>> {
    let those = pushes.iter().filter(|push| which(push));
    those.map(|push| params![push.mailbox.tenant, push.mailbox.mailbox]).collect()
}
