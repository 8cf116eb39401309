//! A tenant's event log, in the order of commits and without gaps but those of restores (see [`super::event_gaps`]).
//!
//! A unit first drafts its events. Of an email that may change it also drafts an image of the state before, so that the
//! change is known at the end. Sequence numbers are taken last: a unit that holds a tenant's counter is about to commit, so a
//! reader that has seen a number has seen all before it.

use domain::{EmailId, EventType, MailboxId, TenantId};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::any;
use crate::failpoint::{self, Guard};
use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, TenantUnit, params};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    pub seq: u64,
    #[serde(rename = "type")]
    pub kind: String,
    pub mailbox_id: Option<MailboxId>,
    pub email_id: Option<EmailId>,
    pub backfill: bool,
    pub data: serde_json::Value,
    pub at: Timestamp,
}

/// The steps of a unit's drafts: images come first, then events.
pub(super) const IMAGE_STEP: i64 = 0;
pub(super) const EVENT_STEP: i64 = 1;

pub(super) const INTO_DRAFTS: &str =
    "event_drafts (tenant_id, unit, step, type, mailbox_id, email_id, is_backfill, data)";

/// A filter of events; empty: all of them.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub kinds: Vec<String>,
    pub mailbox: Option<MailboxId>,
    /// Also events about mail that was there before its mailbox was connected.
    pub with_backfill: bool,
    /// Also those of restores, whatever else the filter says.
    pub with_restores: bool,
}

impl TenantStore {
    /// Lists the events after a number, oldest first.
    pub async fn list_events(&self, after: u64, limit: u64) -> Result<Vec<Event>, StoreError> {
        self.list_filtered_events(&EventFilter { with_backfill: true, ..EventFilter::default() }, after, limit).await
    }

    pub async fn list_filtered_events(
        &self,
        filter: &EventFilter,
        after: u64,
        limit: u64,
    ) -> Result<Vec<Event>, StoreError> {
        self.list_events_between(filter, after, i64::MAX as u64, limit).await
    }

    /// Lists filtered events up to a number, so that a filter without matches does not read the whole log.
    pub async fn list_events_between(
        &self,
        filter: &EventFilter,
        after: u64,
        up_to: u64,
        limit: u64,
    ) -> Result<Vec<Event>, StoreError> {
        let kinds = if filter.kinds.is_empty() { "true".to_owned() } else { any(self.store.dialect(), "type", 7) };
        let or_restored = if filter.with_restores {
            format!("or type = '{}'", EventType::InstallationRestored)
        } else {
            String::new()
        };
        let mut params = params![self.id, after, limit, filter.mailbox, filter.with_backfill, up_to];
        if !filter.kinds.is_empty() {
            params.extend(params![filter.kinds.clone()]);
        }
        let sql = format!(
            "select {EVENT_COLUMNS} from events
             where tenant_id = $1 and seq > $2 and seq <= $6
               and ((mailbox_id = $4 or $4 is null) and ($5 or not is_backfill) and {kinds} {or_restored})
             order by seq limit $3"
        );
        self.query(sql, params).await?.iter().map(|row| event(row, 0)).collect()
    }
}

impl SystemStore {
    /// Deletes events of before that moment; returns whether there may be more of them. Those of a tenant on legal hold
    /// stay: they tell what became of its mail.
    pub async fn prune_events(&self, tenant: TenantId, before: Timestamp, limit: u64) -> Result<bool, StoreError> {
        let mut unit = crate::Unit::default();
        // Numbers rise with time, so only the first need to be read.
        let pruned = unit.op(
            "delete from events where tenant_id = $1 and seq in (
                 select first.seq from (select seq, at from events where tenant_id = $1 order by seq limit $3) first
                 where first.at < $2)
             and exists (select 1 from tenants where id = $1 and hold_reason is null)",
            params![tenant, before, limit],
        );
        Ok(self.commit(unit).await?.changed(pruned) >= limit)
    }

    /// Lists the number of the newest event of each of these tenants; a tenant without events is left out.
    pub async fn list_event_heads(&self, tenants: Vec<TenantId>) -> Result<Vec<(TenantId, u64)>, StoreError> {
        let among = any(self.store.dialect(), "tenant_id", 1);
        let sql = format!("select tenant_id, event_seq from tenant_counters where {among}");
        self.query(sql, params![tenants]).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }
}

impl TenantUnit {
    /// Returns the id under which this unit's events are drafted.
    pub(super) fn draft_id(&mut self) -> Uuid {
        let clock = self.store.clock();
        *self.draft_id.get_or_insert_with(|| domain::JobId::new(clock).0)
    }

    /// Adds an event about a mailbox or the tenant to the unit.
    pub fn emit_event(&mut self, kind: EventType, mailbox: Option<MailboxId>, data: serde_json::Value) {
        let unit = self.draft_id();
        self.unit.op(
            format!("insert into {INTO_DRAFTS} values ($1, $2, {EVENT_STEP}, $3, $4, null, false, $5)"),
            params![self.tenant, unit, kind.as_str(), mailbox, data],
        );
    }

    /// Drafts the events of emails that differ from their images.
    pub(super) fn draft_changes(&mut self) {
        let unit = self.draft_id();
        let dialect = self.store.dialect();
        let object = match dialect {
            Dialect::Postgres => "jsonb_build_object",
            Dialect::Sqlite => "json_object",
        };
        let (json, empty) = match dialect {
            Dialect::Postgres => ("", "'[]'::jsonb"),
            Dialect::Sqlite => ("json", "'[]'"),
        };
        let image = image(dialect, "b");
        let (was, flags_were) =
            (format!("b.data {}", arrow(dialect, "folders")), format!("b.data {}", arrow(dialect, "flags")));
        let (now, flags_now) =
            (format!("n.now {}", arrow(dialect, "folders")), format!("n.now {}", arrow(dialect, "flags")));
        let compared = format!(
            "from (select b.tenant_id, b.unit, b.mailbox_id, b.email_id, {was} as folders, {flags_were} as flags, {image} as now
                   from (select distinct tenant_id, unit, mailbox_id, email_id, data from event_drafts
                         where tenant_id = $1 and unit = $2 and step = {IMAGE_STEP}) b) n
             where not exists (select 1 from discarded_emails d where d.tenant_id = n.tenant_id and d.email_id = n.email_id)"
        );
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select n.tenant_id, n.unit, {EVENT_STEP},
                    case when {now} = {empty} then '{deleted}' when n.folders = {empty} then '{restored}' else '{moved}' end,
                    n.mailbox_id, n.email_id, false, {object}('from', {json}(n.folders), 'to', {json}({now}))
                 {compared} and n.folders <> {now}",
                deleted = EventType::EmailDeleted,
                restored = EventType::EmailRestored,
                moved = EventType::EmailMoved,
            ),
            params![self.tenant, unit],
        );
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select n.tenant_id, n.unit, {EVENT_STEP}, '{kind}', n.mailbox_id, n.email_id, false,
                    {object}('from', {json}(n.flags), 'to', {json}({flags_now}))
                 {compared} and n.folders <> {empty} and {now} <> {empty} and n.flags <> {flags_now}",
                kind = EventType::EmailFlagsChanged,
            ),
            params![self.tenant, unit],
        );
        self.unit.op(
            format!("delete from event_drafts where tenant_id = $1 and unit = $2 and step = {IMAGE_STEP}"),
            params![self.tenant, unit],
        );
        // An email without a placement is deleted, and one that has a placement again is not.
        if dialect == Dialect::Postgres {
            // A function that handles one by one: a statement for any number would open every partition.
            self.unit.op("select mailroom_settle_emails($1, $2)", params![self.tenant, unit]);
            return;
        }
        for (kind, deleted_at) in [(EventType::EmailDeleted, "mailroom_now()"), (EventType::EmailRestored, "null")] {
            self.unit.op(
                format!(
                    "update emails set deleted_at = {deleted_at} where tenant_id = $1 and id in (
                         select email_id from event_drafts
                         where tenant_id = $1 and unit = $2 and step = {EVENT_STEP} and type = '{kind}')"
                ),
                params![self.tenant, unit],
            );
        }
    }

    /// Gives the drafted events their numbers, as the last operation of a unit.
    pub(crate) fn number_events(&mut self) {
        let Some(unit) = self.draft_id else { return };
        let drafted = format!("from event_drafts where tenant_id = $1 and unit = $2 and step = {EVENT_STEP}");
        if !failpoint::is_off(Guard::EventCounter) {
            self.unit.op(
                format!(
                    "insert into tenant_counters (tenant_id, event_seq) select $1, count(*) {drafted} having count(*) > 0
                     on conflict (tenant_id) do update set event_seq = tenant_counters.event_seq + excluded.event_seq"
                ),
                params![self.tenant, unit],
            );
        }
        let last = if failpoint::is_off(Guard::EventCounter) {
            format!("(select coalesce(max(seq), 0) from events where tenant_id = $1) + (select count(*) {drafted})")
        } else {
            "(select event_seq from tenant_counters where tenant_id = $1)".to_owned()
        };
        self.unit.op(
            format!(
                "insert into events (tenant_id, seq, type, mailbox_id, email_id, is_backfill, data, at)
                 select tenant_id, {last} - (select count(*) {drafted}) + row_number() over (order by type, email_id),
                        type, mailbox_id, email_id, is_backfill, data, mailroom_now() {drafted}"
            ),
            params![self.tenant, unit],
        );
        self.unit.op("delete from event_drafts where tenant_id = $1 and unit = $2", params![self.tenant, unit]);
    }
}

pub(super) const EVENT_COLUMNS: &str = "seq, type, mailbox_id, email_id, is_backfill, data, at";

/// Reads the columns of [`EVENT_COLUMNS`], the first of which is `first`.
pub(super) fn event(row: &Row, first: usize) -> Result<Event, StoreError> {
    Ok(Event {
        seq: row.get(first)?,
        kind: row.get(first + 1)?,
        mailbox_id: row.get(first + 2)?,
        email_id: row.get(first + 3)?,
        backfill: row.get(first + 4)?,
        data: row.get(first + 5)?,
        at: row.get(first + 6)?,
    })
}

fn arrow(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("-> '{name}'"),
        Dialect::Sqlite => format!("-> '$.{name}'"),
    }
}

/// Returns the image of a row's email: its folders and flags over all its live placements.
pub(super) fn image(dialect: Dialect, row: &str) -> String {
    let live =
        format!("placements p where p.tenant_id = {row}.tenant_id and p.email_id = {row}.email_id and p.is_live");
    match dialect {
        Dialect::Postgres => format!(
            "jsonb_build_object(
                'folders', (select coalesce(jsonb_agg(distinct p.folder_id), '[]') from {live}),
                'flags', (select coalesce(jsonb_agg(distinct flag.name), '[]')
                          from (select p.flags from {live}) p, jsonb_array_elements_text(p.flags) as flag (name)))"
        ),
        Dialect::Sqlite => format!(
            "json_object(
                'folders', json((select json_group_array(folder_id) from (select distinct p.folder_id from {live} order by 1))),
                'flags', json((select json_group_array(value) from (
                    select distinct flag.value from (select p.flags from {live}) p, json_each(p.flags) flag order by 1))))"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_function_names_the_types_that_it_reads() {
        let function = include_str!("../../migrations/each_time/4_events.postgres.sql");

        let quoted: Vec<&str> = function.split('\'').filter(|text| text.starts_with("email.")).collect();

        assert!(!quoted.is_empty());
        for name in quoted {
            assert!(matches!(EventType::parse(name), Ok(EventType::EmailDeleted | EventType::EmailRestored)), "{name}");
        }
    }
}
