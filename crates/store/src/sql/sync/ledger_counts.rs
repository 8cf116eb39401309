//! Counts and lists for comparing a mailbox with its provider.

use std::collections::{BTreeMap, HashSet};

use domain::connector::Placement;
use domain::{MailboxId, TenantId};

use crate::sql::any;
use crate::sql::ledger::PURGED;
use crate::sql::mailboxes::IS_SYNC_ENABLED;
use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, params};

/// Counts of a mailbox's ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerCounts {
    /// Messages with a live placement, by state.
    pub live: BTreeMap<String, u64>,
    pub gone: u64,
    /// Messages that are neither, or both.
    pub unbalanced: u64,
}

impl TenantStore {
    /// Lists every live placement of messages that came from the provider.
    pub async fn list_placements(&self, mailbox: MailboxId) -> Result<Vec<Placement>, StoreError> {
        let sql = "select f.provider_folder_id, p.provider_uid from placements p
                   join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
                   where p.tenant_id = $1 and p.mailbox_id = $2 and p.is_live and p.provider_message_id not like 'sha256:%'";
        self.query(sql, params![self.id, mailbox])
            .await?
            .iter()
            .map(|row: &Row| Ok(Placement { folder: row.get(0)?, uid: row.get(1)? }))
            .collect()
    }

    /// Lists those of the given messages whose emails were purged.
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

    /// Lists messages that are not stored yet, except those of dead letters: a message that killed its process repeatedly waits
    /// for a person.
    pub async fn list_unfetched_messages(&self, mailbox: MailboxId, limit: u64) -> Result<Vec<String>, StoreError> {
        let (message, messages) = match self.store.dialect() {
            // Not the function that expands arrays: a payload may have none.
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

    /// Returns whether a mailbox has live sync jobs.
    pub async fn has_sync_jobs(&self, mailbox: MailboxId) -> Result<bool, StoreError> {
        let sql = "select 1 from jobs where tenant_id = $1 and payload ->> 'mailbox' = $2
                   and kind in ('sync_mailbox', 'list_history', 'list_mailbox', 'fetch_emails') limit 1";
        Ok(self.query_one(sql, params![self.id, mailbox.to_string()]).await?.is_some())
    }
}

impl SystemStore {
    /// Lists synced mailboxes with messages to fetch, but without a fetch job; of one tenant, or of all.
    pub async fn list_mailboxes_without_fetches(
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
             where {whose} {IS_SYNC_ENABLED} and t.is_active and m.provider <> 'files'
               and exists (select 1 from ledger l where l.tenant_id = m.tenant_id and l.mailbox_id = m.id
                           and l.state in ('queued', 'processing'))
               and not exists (select 1 from jobs j where j.tenant_id = m.tenant_id and j.kind = 'fetch_emails'
                               and j.payload ->> 'mailbox' = {id})"
        );
        self.query(sql, params).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// Returns a random sample of synced mailboxes.
    pub async fn sample_mailboxes(&self, limit: u64) -> Result<Vec<(TenantId, MailboxId)>, StoreError> {
        let sql = "select s.tenant_id, s.mailbox_id from sync_states s
                   join mailboxes m on m.tenant_id = s.tenant_id and m.id = s.mailbox_id
                   where m.is_active and m.state = 'active' order by random() limit $1";
        self.query(sql, params![limit]).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }
}
