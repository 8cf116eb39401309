//! What was asked of providers, by tenant and hour: counted by whoever makes the calls, and written now and then.

use std::collections::BTreeMap;

use domain::{MailboxId, Provider, TenantId};
use jiff::{SignedDuration, Timestamp};

use super::given;
use super::mailboxes::IS_LOOKED_AT;
use crate::value::Kind;
use crate::{Row, StoreError, SystemStore, TenantStore, Unit, params};

/// Calls as budgets count them, and bytes of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub calls: u64,
    pub bytes: u64,
}

/// Of one tenant at one provider since some hour began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewUsage {
    pub tenant: TenantId,
    pub provider: Provider,
    pub hour: Timestamp,
    pub used: Used,
}

const COLUMNS: &[(&str, Kind)] = &[
    ("tenant_id", Kind::Uuid),
    ("provider", Kind::Text),
    ("hour", Kind::Time),
    ("calls", Kind::Int),
    ("bytes", Kind::Int),
];

impl SystemStore {
    /// More was used. What a tenant used that is gone is nobody's.
    pub async fn add_usage(&self, usage: &[NewUsage]) -> Result<(), StoreError> {
        if usage.is_empty() {
            return Ok(());
        }
        let mut usage = usage.to_vec();
        // Two who add to the same must not wait for each other.
        usage.sort_unstable_by_key(|usage| (usage.tenant, usage.provider.as_str(), usage.hour));
        let row = |usage: &NewUsage| {
            let Used { calls, bytes } = usage.used;
            params![usage.tenant, usage.provider.as_str(), usage.hour, calls, bytes]
        };
        let (these, values) = given(self.store.dialect(), 1, COLUMNS, usage.iter().map(row).collect());
        let mut unit = Unit::default();
        unit.op(
            format!(
                "insert into provider_usage (tenant_id, provider, hour, calls, bytes)
                 select g.tenant_id, g.provider, g.hour, g.calls, g.bytes from {these}
                 join tenants t on t.id = g.tenant_id where true
                 order by g.tenant_id, g.provider, g.hour
                 on conflict (tenant_id, provider, hour) do update set
                     calls = provider_usage.calls + excluded.calls, bytes = provider_usage.bytes + excluded.bytes"
            ),
            values,
        );
        self.commit(unit).await.map(drop)
    }

    /// By all tenants together since then, by provider.
    pub async fn sum_usage(&self, since: Timestamp) -> Result<BTreeMap<String, Used>, StoreError> {
        let sql = "select provider, cast(sum(calls) as bigint), cast(sum(bytes) as bigint) from provider_usage
                   where hour >= $1 group by provider";
        self.query(sql, params![since]).await?.iter().map(used).collect()
    }

    /// Forgets the oldest; whether there may be more.
    pub async fn prune_usage(&self, before: Timestamp, limit: u64) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let forgotten = unit.op(
            "delete from provider_usage where hour < $1 and (tenant_id, provider, hour) in (
                 select tenant_id, provider, hour from provider_usage where hour < $1 limit $2)",
            params![before, limit],
        );
        Ok(self.commit(unit).await?.changed(forgotten) == limit)
    }
}

/// What a tenant has at a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProviderLoad {
    /// Those that are looked at by themselves. Neither those who have left nor those that wait for somebody are.
    pub mailboxes: u64,
    /// Messages of these that are known and not stored yet.
    pub backlog: u64,
}

/// What a mailbox has fetched lately, and has to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MailboxLoad {
    pub backlog: u64,
    pub bytes_this_hour: u64,
    pub bytes_last_day: u64,
}

impl TenantStore {
    /// By provider.
    pub async fn list_provider_loads(&self) -> Result<BTreeMap<String, ProviderLoad>, StoreError> {
        let sql = format!(
            "select m.provider, count(*), cast(coalesce(sum((
                 select count(*) from ledger l where l.mailbox_id = m.id and l.tenant_id = m.tenant_id
                 and l.state in ('queued', 'processing'))), 0) as bigint)
             from mailboxes m join sync_states s on s.tenant_id = m.tenant_id and s.mailbox_id = m.id
             where m.tenant_id = $1 and {IS_LOOKED_AT} group by m.provider"
        );
        let load = |row: &Row| Ok((row.get(0)?, ProviderLoad { mailboxes: row.get(1)?, backlog: row.get(2)? }));
        self.query(sql, params![self.id]).await?.iter().map(load).collect()
    }

    /// Bytes are those of messages that were stored since these times.
    pub async fn find_mailbox_load(
        &self,
        mailbox: MailboxId,
        hour: Timestamp,
        day: Timestamp,
    ) -> Result<MailboxLoad, StoreError> {
        // There is an index for this, and nothing takes so long.
        let began = day.checked_sub(SignedDuration::from_mins(15)).unwrap_or(day);
        let stored = |since: &str| {
            format!(
                "(select cast(coalesce(sum(size_bytes), 0) as bigint) from ledger where tenant_id = $1 and mailbox_id = $2
                  and state = 'processed' and processing_started_at >= $5 and processing_completed_at >= {since})"
            )
        };
        let sql = format!(
            "select (select count(*) from ledger where tenant_id = $1 and mailbox_id = $2
                     and state in ('queued', 'processing')), {}, {}",
            stored("$3"),
            stored("$4")
        );
        let row = self.query_one(sql, params![self.id, mailbox, hour, day, began]).await?;
        row.map_or(Ok(MailboxLoad::default()), |row| {
            Ok(MailboxLoad { backlog: row.get(0)?, bytes_this_hour: row.get(1)?, bytes_last_day: row.get(2)? })
        })
    }

    /// Since then, by provider.
    pub async fn sum_usage(&self, since: Timestamp) -> Result<BTreeMap<String, Used>, StoreError> {
        let sql = "select provider, cast(sum(calls) as bigint), cast(sum(bytes) as bigint) from provider_usage
                   where tenant_id = $1 and hour >= $2 group by provider";
        self.query(sql, params![self.id, since]).await?.iter().map(used).collect()
    }
}

fn used(row: &Row) -> Result<(String, Used), StoreError> {
    Ok((row.get(0)?, Used { calls: row.get(1)?, bytes: row.get(2)? }))
}
