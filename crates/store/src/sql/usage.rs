//! Usage of providers by tenant and hour: counted by the processes that make the calls, and written now and then.

use std::collections::BTreeMap;

use domain::{MailboxId, Provider, TenantId};
use jiff::{SignedDuration, Timestamp};

use super::given_rows;
use super::mailboxes::IS_SYNC_ENABLED;
use crate::value::ColumnType;
use crate::{Row, StoreError, SystemStore, TenantStore, Unit, params};

/// Calls, counted as budgets count them, and bytes of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallUsage {
    pub calls: u64,
    pub bytes: u64,
}

/// The usage of one tenant at one provider in one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewUsage {
    pub tenant: TenantId,
    pub provider: Provider,
    pub hour: Timestamp,
    pub usage: CallUsage,
}

const COLUMNS: &[(&str, ColumnType)] = &[
    ("tenant_id", ColumnType::Uuid),
    ("provider", ColumnType::Text),
    ("hour", ColumnType::Time),
    ("calls", ColumnType::Int),
    ("bytes", ColumnType::Int),
];

impl SystemStore {
    /// Adds usage to what is recorded, except for tenants that no longer exist.
    pub async fn add_usage(&self, usage: &[NewUsage]) -> Result<(), StoreError> {
        if usage.is_empty() {
            return Ok(());
        }
        let mut usage = usage.to_vec();
        // Sorted, so that two units that add to the same rows do not deadlock.
        usage.sort_unstable_by_key(|usage| (usage.tenant, usage.provider.as_str(), usage.hour));
        let (these, values) = given_rows(
            self.store.dialect(),
            1,
            COLUMNS,
            usage
                .iter()
                .map(|usage: &NewUsage| {
                    let CallUsage { calls, bytes } = usage.usage;
                    params![usage.tenant, usage.provider.as_str(), usage.hour, calls, bytes]
                })
                .collect(),
        );
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

    /// Sums the usage of all tenants since then, by provider.
    pub async fn sum_usage(&self, since: Timestamp) -> Result<BTreeMap<String, CallUsage>, StoreError> {
        let sql = "select provider, cast(sum(calls) as bigint), cast(sum(bytes) as bigint) from provider_usage
                   where hour >= $1 group by provider";
        self.query(sql, params![since]).await?.iter().map(used).collect()
    }

    /// Deletes old usage; returns whether there may be more.
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

/// The number of mailboxes and the backlog of a tenant at a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProviderLoad {
    /// Mailboxes that are synced: neither inactive nor waiting for a person.
    pub mailboxes: u64,
    /// Their messages that are known and not stored yet.
    pub backlog: u64,
}

/// The bytes that a mailbox has fetched lately, and its backlog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MailboxLoad {
    pub backlog: u64,
    pub bytes_this_hour: u64,
    pub bytes_last_day: u64,
}

impl TenantStore {
    /// Lists the loads of a tenant by provider.
    pub async fn list_provider_loads(&self) -> Result<BTreeMap<String, ProviderLoad>, StoreError> {
        let sql = format!(
            "select m.provider, count(*), cast(coalesce(sum((
                 select count(*) from ledger l where l.mailbox_id = m.id and l.tenant_id = m.tenant_id
                 and l.state in ('queued', 'processing'))), 0) as bigint)
             from mailboxes m join sync_states s on s.tenant_id = m.tenant_id and s.mailbox_id = m.id
             where m.tenant_id = $1 and {IS_SYNC_ENABLED} group by m.provider"
        );
        self.query(sql, params![self.id])
            .await?
            .iter()
            .map(|row: &Row| Ok((row.get(0)?, ProviderLoad { mailboxes: row.get(1)?, backlog: row.get(2)? })))
            .collect()
    }

    /// Finds the load of a mailbox; bytes are those of messages stored since these times.
    pub async fn find_mailbox_load(
        &self,
        mailbox: MailboxId,
        hour: Timestamp,
        day: Timestamp,
    ) -> Result<MailboxLoad, StoreError> {
        // There is an index for this, and no message takes that long.
        let began = day.checked_sub(SignedDuration::from_mins(15)).unwrap_or(day);
        let stored = "select cast(coalesce(sum(size_bytes), 0) as bigint) from ledger
                      where tenant_id = $1 and mailbox_id = $2 and state = 'processed' and processing_started_at >= $5";
        let sql = format!(
            "select (select count(*) from ledger where tenant_id = $1 and mailbox_id = $2
                     and state in ('queued', 'processing')),
                    ({stored} and processing_completed_at >= $3), ({stored} and processing_completed_at >= $4)"
        );
        let row = self.query_one(sql, params![self.id, mailbox, hour, day, began]).await?;
        row.map_or(Ok(MailboxLoad::default()), |row| {
            Ok(MailboxLoad { backlog: row.get(0)?, bytes_this_hour: row.get(1)?, bytes_last_day: row.get(2)? })
        })
    }

    /// Sums the usage of the tenant since then, by provider.
    pub async fn sum_usage(&self, since: Timestamp) -> Result<BTreeMap<String, CallUsage>, StoreError> {
        let sql = "select provider, cast(sum(calls) as bigint), cast(sum(bytes) as bigint) from provider_usage
                   where tenant_id = $1 and hour >= $2 group by provider";
        self.query(sql, params![self.id, since]).await?.iter().map(used).collect()
    }
}

fn used(row: &Row) -> Result<(String, CallUsage), StoreError> {
    Ok((row.get(0)?, CallUsage { calls: row.get(1)?, bytes: row.get(2)? }))
}
