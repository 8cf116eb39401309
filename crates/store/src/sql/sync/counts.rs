//! Numbers by which a mailbox can be compared with its provider.

use std::collections::{BTreeMap, HashSet};

use domain::connector::Place;
use domain::{MailboxId, TenantId};
use jiff::Timestamp;

use crate::sql::any;
use crate::sql::ledger::PURGED;
use crate::sql::mailboxes::IS_LOOKED_AT;
use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, params};

/// The ledger of a mailbox, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerCounts {
    /// Messages that have a place, by state.
    pub live: BTreeMap<String, u64>,
    pub gone: u64,
    /// Those that are neither, or both.
    pub unbalanced: u64,
}

impl TenantStore {
    /// Every live place of messages that came from the provider.
    pub async fn list_places(&self, mailbox: MailboxId) -> Result<Vec<Place>, StoreError> {
        let sql = "select f.provider_folder_id, p.provider_uid from placements p
                   join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
                   where p.tenant_id = $1 and p.mailbox_id = $2 and p.is_live and p.provider_message_id not like 'sha256:%'";
        let place = |row: &Row| Ok(Place { folder: row.get(0)?, uid: row.get(1)? });
        self.query(sql, params![self.id, mailbox]).await?.iter().map(place).collect()
    }

    /// Those of the given messages that somebody removed for good.
    pub async fn list_purged(&self, mailbox: MailboxId, messages: Vec<String>) -> Result<HashSet<String>, StoreError> {
        let sql = format!(
            "select provider_message_id from ledger
             where tenant_id = $1 and mailbox_id = $2 and state = 'gone' and reason = '{PURGED}' and {}",
            any(self.store.dialect(), "provider_message_id", 3)
        );
        self.query(sql, params![self.id, mailbox, messages]).await?.iter().map(|row| row.get(0)).collect()
    }

    pub async fn count_ledger(&self, mailbox: MailboxId) -> Result<LedgerCounts, StoreError> {
        let sql = "select state, has_place, count(*) from (
                       select l.state, exists (
                           select 1 from placements p where p.tenant_id = l.tenant_id and p.mailbox_id = l.mailbox_id
                           and p.provider_message_id = l.provider_message_id and p.is_live) as has_place
                       from ledger l where l.tenant_id = $1 and l.mailbox_id = $2) counted
                   group by state, has_place";
        let mut counts = LedgerCounts::default();
        for row in self.query(sql, params![self.id, mailbox]).await? {
            let (state, has_place, count): (String, bool, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            match (state.as_str(), has_place) {
                ("gone" | "skipped", false) => counts.gone += count,
                ("gone", true) | (_, false) => counts.unbalanced += count,
                (_, true) => *counts.live.entry(state).or_default() += count,
            }
        }
        Ok(counts)
    }

    /// Messages that are listed and not stored, but for those of dead letters: what took its process with it again and again
    /// waits for somebody to look at it.
    pub async fn list_open_messages(&self, mailbox: MailboxId, limit: u64) -> Result<Vec<String>, StoreError> {
        let (message, messages) = match self.store.dialect() {
            // Not the function that takes arrays apart: what somebody wrote may be none.
            Dialect::Postgres => ("d.message #>> '{}'", "jsonb_path_query(j.payload, '$.messages[*]') as d (message)"),
            Dialect::Sqlite => ("d.value", "json_each(j.payload, '$.messages') d"),
        };
        let sql = format!(
            "select provider_message_id from ledger where tenant_id = $1 and mailbox_id = $2
             and state in ('queued', 'processing')
             and provider_message_id not in (
                 select {message} from finished_jobs j cross join {messages}
                 where j.tenant_id = $1 and j.kind = 'fetch_emails' and j.state = 'dead' and j.payload ->> 'mailbox' = $4
                   and {message} is not null)
             order by provider_message_id limit $3"
        );
        let params = params![self.id, mailbox, limit, mailbox.to_string()];
        self.query(sql, params).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Whether anything is still to be done for a mailbox.
    pub async fn is_at_work(&self, mailbox: MailboxId) -> Result<bool, StoreError> {
        let sql = "select 1 from jobs where tenant_id = $1 and payload ->> 'mailbox' = $2
                   and kind in ('sync_mailbox', 'list_history', 'list_mailbox', 'fetch_emails') limit 1";
        Ok(self.query_one(sql, params![self.id, mailbox.to_string()]).await?.is_some())
    }
}

impl SystemStore {
    /// By provider, how long the mailbox that is longest overdue has been so, in seconds.
    pub async fn list_sync_lags(&self) -> Result<Vec<(String, f64)>, StoreError> {
        let late = match self.store.dialect() {
            Dialect::Postgres => "cast(extract(epoch from mailroom_now() - min(s.next_sync_at)) * 1000 as bigint)",
            Dialect::Sqlite => {
                "cast((julianday(mailroom_now()) - julianday(min(s.next_sync_at))) * 86400000 as integer)"
            }
        };
        let sql = format!(
            "select m.provider, {late} from sync_states s
             join mailboxes m on m.tenant_id = s.tenant_id and m.id = s.mailbox_id join tenants t on t.id = m.tenant_id
             where s.next_sync_at is not null and {IS_LOOKED_AT} and t.is_active
             group by m.provider"
        );
        let lag = |row: &Row| Ok((row.get(0)?, row.get::<i64>(1)?.max(0) as f64 / 1000.0));
        self.query(sql, vec![]).await?.iter().map(lag).collect()
    }

    /// Mailboxes that are synced and have messages to fetch, but no job that does; of one tenant, or of all.
    pub async fn list_forgetful_mailboxes(
        &self,
        only: Option<TenantId>,
    ) -> Result<Vec<(TenantId, MailboxId)>, StoreError> {
        let id = match self.store.dialect() {
            Dialect::Postgres => "m.id::text",
            Dialect::Sqlite => "m.id",
        };
        let (whose, params) = match only {
            Some(tenant) => ("m.tenant_id = $1 and", params![tenant]),
            None => ("", vec![]),
        };
        let sql = format!(
            "select m.tenant_id, m.id from mailboxes m join tenants t on t.id = m.tenant_id
             where {whose} {IS_LOOKED_AT} and t.is_active and m.provider <> 'files'
               and exists (select 1 from ledger l where l.tenant_id = m.tenant_id and l.mailbox_id = m.id
                           and l.state in ('queued', 'processing'))
               and not exists (select 1 from jobs j where j.tenant_id = m.tenant_id and j.kind = 'fetch_emails'
                               and j.payload ->> 'mailbox' = {id})"
        );
        self.query(sql, params).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// For benchmarks: every mailbox but one tenant's is to be looked at now; how many those are.
    pub async fn make_mailboxes_due(&self, but: Option<TenantId>) -> Result<u64, StoreError> {
        let mut unit = crate::Unit::default();
        let due = unit.op(
            "update sync_states set next_sync_at = mailroom_now() where tenant_id <> $1",
            params![but.unwrap_or(TenantId::SYSTEM)],
        );
        Ok(self.commit(unit).await?.changed(due))
    }

    /// When each mailbox was last looked at and up to date.
    pub async fn list_last_looks(&self) -> Result<Vec<(TenantId, Timestamp)>, StoreError> {
        let sql = "select tenant_id, last_sync_at from sync_states where last_sync_at is not null";
        self.query(sql, vec![]).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// Whether any job is ready, running or about to be.
    pub async fn has_work(&self) -> Result<bool, StoreError> {
        let sql = "select 1 from jobs where state <> 'scheduled' limit 1";
        Ok(self.query_one(sql, vec![]).await?.is_some())
    }

    /// Some mailboxes that are synced, others each time.
    pub async fn sample_mailboxes(&self, limit: u64) -> Result<Vec<(TenantId, MailboxId)>, StoreError> {
        let sql = "select s.tenant_id, s.mailbox_id from sync_states s
                   join mailboxes m on m.tenant_id = s.tenant_id and m.id = s.mailbox_id
                   where m.is_active and m.state = 'active' order by random() limit $1";
        self.query(sql, params![limit]).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }
}
