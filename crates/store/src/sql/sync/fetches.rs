//! Messages to be fetched, and the rows and events when they become emails.

use std::collections::{HashMap, HashSet};

use domain::connector::{FetchRequest, Placement};
use domain::{EmailId, EventType, MailboxId};
use jiff::Timestamp;

use super::super::events::{EVENT_STEP, IMAGE_STEP, INTO_DRAFTS, image};
use crate::sql::any;
use crate::sql::ingest::{NewEmail, NewPlacement};
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Dialect, Precondition, StoreError, TenantStore, TenantUnit, params};

/// A message in the ledger that is not stored yet.
#[derive(Debug, Clone)]
pub struct QueuedMessage {
    pub message: String,
    pub placements: Vec<Placement>,
    pub size_bytes: Option<u64>,
    pub is_backfill: bool,
    /// The revision that was listed last.
    pub revision: Option<String>,
    pub received_at: Option<Timestamp>,
    /// Grows with every listing that changes its placements.
    pub placements_version: u64,
}

/// Which of the failed messages of a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedMessages {
    All,
    /// Those that are stored but for bytes that blob storage could not take.
    WithoutBytes,
}

impl QueuedMessage {
    pub fn fetch_request(&self) -> FetchRequest {
        FetchRequest { message: self.message.clone(), placements: self.placements.clone(), size_bytes: self.size_bytes }
    }
}

impl TenantStore {
    /// Lists those of the given messages that are neither stored nor gone.
    pub async fn list_queued_messages(
        &self,
        mailbox: MailboxId,
        messages: Vec<String>,
    ) -> Result<Vec<QueuedMessage>, StoreError> {
        let dialect = self.store.dialect();
        let queued = format!(
            "select provider_message_id, size_bytes, is_backfill, revision, received_at, told from ledger
             where tenant_id = $1 and mailbox_id = $2 and state in ('queued', 'processing', 'failed') and {}",
            any(dialect, "provider_message_id", 3)
        );
        let places = format!(
            "select p.provider_message_id, f.provider_folder_id, p.provider_uid from placements p
             join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
             where p.tenant_id = $1 and p.mailbox_id = $2 and p.is_live and {}",
            any(dialect, "p.provider_message_id", 3)
        );
        let params = params![self.id, mailbox, messages];
        let [queued, placed] = self.query_all([(queued, params.clone()), (places, params)]).await?;
        let mut places: HashMap<String, Vec<Placement>> = HashMap::new();
        for row in &placed {
            places.entry(row.get(0)?).or_default().push(Placement { folder: row.get(1)?, uid: row.get(2)? });
        }
        let mut list = Vec::with_capacity(queued.len());
        for row in &queued {
            let message: String = row.get(0)?;
            let places = places.remove(&message).unwrap_or_default();
            list.push(QueuedMessage {
                message,
                placements: places,
                size_bytes: row.get(1)?,
                is_backfill: row.get(2)?,
                revision: row.get(3)?,
                received_at: row.get(4)?,
                placements_version: row.get(5)?,
            });
        }
        Ok(list)
    }

    /// Lists the arrival times of stored messages that are older than this.
    pub async fn list_arrivals_before(
        &self,
        mailbox: MailboxId,
        time: Timestamp,
    ) -> Result<HashSet<Timestamp>, StoreError> {
        let sql = "select distinct received_at from ledger
                   where tenant_id = $1 and mailbox_id = $2 and received_at < $3 and state <> 'skipped'";
        self.query(sql, params![self.id, mailbox, time]).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Lists failed messages that no live job is to fetch, in the order of their ids.
    pub async fn list_failed_messages(
        &self,
        mailbox: MailboxId,
        which: FailedMessages,
        after: &str,
        limit: u64,
    ) -> Result<Vec<String>, StoreError> {
        let condition = match which {
            FailedMessages::All => "",
            FailedMessages::WithoutBytes => "and l.email_id is not null",
        };
        let live = "j.tenant_id = $1 and j.kind = 'fetch_emails' and j.payload ->> 'mailbox' = $5";
        let is_in_no_job = match self.store.dialect() {
            // Not the function that expands arrays: a payload may have none.
            Dialect::Postgres => format!(
                "not exists (select 1 from jobs j, jsonb_path_query(j.payload, '$.messages[*]') as d (message)
                             where {live} and d.message #>> '{{}}' = l.provider_message_id)"
            ),
            Dialect::Sqlite => format!(
                "l.provider_message_id not in (
                     select d.value from jobs j, json_each(j.payload, '$.messages') d where {live} and d.value is not null)"
            ),
        };
        let sql = format!(
            "select l.provider_message_id from ledger l
             where l.tenant_id = $1 and l.mailbox_id = $2 and l.state = 'failed' and l.provider_message_id > $3 {condition}
               and {is_in_no_job} order by l.provider_message_id limit $4"
        );
        let params = params![self.id, mailbox, after, limit, mailbox.to_string()];
        self.query(sql, params).await?.iter().map(|row| row.get(0)).collect()
    }
}

impl TenantUnit {
    pub fn fail_messages(&mut self, mailbox: MailboxId, messages: Vec<String>, reason: &str) {
        let sql = format!(
            "update ledger set state = 'failed', reason = $4, attempts = attempts + 1
             where tenant_id = $1 and mailbox_id = $2 and state in ('queued', 'processing', 'failed') and {}",
            any(self.store.dialect(), "provider_message_id", 3)
        );
        self.unit.op(sql, params![self.tenant, mailbox, messages, reason]);
    }

    /// Refuses the unit when a listing has changed the placements of one of these messages since their versions were read.
    pub fn expect_placements_version(&mut self, mailbox: MailboxId, messages: Vec<(String, u64)>) {
        let count = messages.len() as u64;
        let (messages, told): (Vec<String>, Vec<String>) =
            messages.into_iter().map(|(message, told)| (message, told.to_string())).unzip();
        let same = "select 1 from ledger where tenant_id = $1 and mailbox_id = $2 and (provider_message_id, cast(told as text)) in";
        let mut params = params![self.tenant, mailbox];
        let sql = match self.store.dialect() {
            Dialect::Postgres => {
                params.extend(params![messages, told]);
                format!("{same} (select * from unnest($3::text[], $4::text[])) for update")
            }
            // SQLite has one writer.
            Dialect::Sqlite => {
                let told: serde_json::Map<_, _> =
                    messages.into_iter().zip(told.into_iter().map(serde_json::Value::from)).collect();
                params.extend(params![serde_json::Value::from(told)]);
                format!("{same} (select key, value from json_each($3))")
            }
        };
        self.unit.op_returning_exactly(count, Precondition::PlacementsChanged, sql, params);
    }

    /// Drafts the event for emails that this unit was the first to bring.
    pub(in crate::sql) fn draft_received(&mut self, emails: &[NewEmail]) {
        let (tenant, unit) = (self.tenant, self.draft_id());
        let row =
            |email: &NewEmail| params![tenant, unit, email.mailbox, email.id, email.content_key, email.is_backfill];
        self.unit.insert(Insert {
            into: INTO_DRAFTS.into(),
            columns: &[
                ("tenant_id", ColumnType::Uuid),
                ("unit", ColumnType::Uuid),
                ("mailbox_id", ColumnType::Uuid),
                ("email_id", ColumnType::Uuid),
                ("content_key", ColumnType::Hash),
                ("is_backfill", ColumnType::Bool),
            ],
            rows: emails.iter().map(row).collect(),
            select: format!(
                "u.tenant_id, u.unit, {EVENT_STEP}, '{kind}', u.mailbox_id, u.email_id, u.is_backfill, '{{}}'",
                kind = EventType::EmailReceived,
            )
            .into(),
            join_where: "join email_contents c on c.tenant_id = u.tenant_id and c.mailbox_id = u.mailbox_id
                             and c.raw_sha256 = u.content_key and c.email_id = u.email_id and c.unit = u.unit",
            on_conflict: "".into(),
            batching: InsertBatching::Many,
        });
    }

    pub(in crate::sql) fn draft_updated(&mut self, revised: &[EmailId]) {
        let unit = self.draft_id();
        let sql = format!(
            "insert into {INTO_DRAFTS} select tenant_id, $3, {EVENT_STEP}, '{kind}', mailbox_id, id, false, '{{}}'
             from emails where tenant_id = $1 and {}
               and id not in (select email_id from discarded_emails where tenant_id = $1)",
            any(self.store.dialect(), "id", 2),
            kind = EventType::EmailUpdated,
        );
        self.unit.op(sql, params![self.tenant, revised.to_vec(), unit]);
    }

    /// Deletes the rows of these emails, but not their content keys.
    pub(in crate::sql) fn delete_email_rows(&mut self, ids: &[EmailId]) {
        self.unit.is_erasing = true;
        let dialect = self.store.dialect();
        let by_email = format!("tenant_id = $1 and {}", any(dialect, "email_id", 2));
        let by_id = format!("tenant_id = $1 and {}", any(dialect, "id", 2));
        let search = match dialect {
            Dialect::Postgres => format!("delete from email_search where {by_email}"),
            Dialect::Sqlite => {
                format!("delete from email_search where rowid in (select search_rowid from emails where {by_id})")
            }
        };
        let statements = [
            search,
            format!("delete from attachments where {by_email}"),
            format!("delete from email_recipients where {by_email}"),
            format!("delete from emails where {by_id}"),
        ];
        for sql in statements {
            self.unit.op(sql, params![self.tenant, ids.to_vec()]);
        }
    }

    /// Refuses the unit if one of these messages is gone, stored or listed with another revision meanwhile. It may commit
    /// beside other units that store messages, but not beside one that records a listing.
    pub fn expect_unstored_messages(&mut self, mailbox: MailboxId, messages: Vec<(String, Option<String>)>) {
        if self.store.dialect() == Dialect::Postgres {
            self.unit.op(
                "select 1 from sync_states where tenant_id = $1 and mailbox_id = $2 for share",
                params![self.tenant, mailbox],
            );
        }
        let count = messages.len() as u64;
        let given: Vec<String> = messages.iter().map(|(message, _)| message.clone()).collect();
        let (messages, revisions): (Vec<String>, Vec<String>) =
            messages.into_iter().map(|(message, revision)| (message, revision.unwrap_or_default())).unzip();
        let waiting = "select 1 from ledger where tenant_id = $1 and mailbox_id = $2
                       and state in ('queued', 'processing', 'failed') and (provider_message_id, coalesce(revision, '')) in";
        let mut params = params![self.tenant, mailbox];
        let sql = match self.store.dialect() {
            Dialect::Postgres => {
                params.extend(params![messages, revisions]);
                format!("{waiting} (select * from unnest($3::text[], $4::text[])) for update")
            }
            // SQLite has one writer.
            Dialect::Sqlite => {
                let listed: serde_json::Map<_, _> =
                    messages.into_iter().zip(revisions.into_iter().map(serde_json::Value::from)).collect();
                params.extend(params![serde_json::Value::from(listed)]);
                format!("{waiting} (select key, value from json_each($3))")
            }
        };
        self.unit.op_returning_exactly(count, Precondition::MessagesChanged, sql, params);
        // A failed message is being processed again, however that ends.
        let sql = format!(
            "update ledger set state = 'processing', reason = null
             where tenant_id = $1 and mailbox_id = $2 and state = 'failed' and {}",
            any(self.store.dialect(), "provider_message_id", 3)
        );
        self.unit.op(sql, params![self.tenant, mailbox, given]);
    }

    /// Records placements of imported messages. `bound` are those whose emails were there before: they are restored if their
    /// provider has removed them, for an import is a placement of its own.
    pub fn record_imported_placements(&mut self, mailbox: MailboxId, placements: &[NewPlacement], bound: Vec<String>) {
        let has_bound = !bound.is_empty();
        if has_bound {
            self.draft_bound_images(mailbox, bound);
        }
        self.record_placements(placements);
        if has_bound {
            self.draft_changes();
        }
    }

    /// Drafts images of the emails of these messages, but not of emails that this unit was the first to bring.
    fn draft_bound_images(&mut self, mailbox: MailboxId, messages: Vec<String>) {
        let dialect = self.store.dialect();
        let unit = self.draft_id();
        let of = any(dialect, "provider_message_id", 3);
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select e.tenant_id, $4, {IMAGE_STEP}, 'image', $2, e.email_id, false, {}
                 from (select distinct tenant_id, email_id from ledger
                       where tenant_id = $1 and mailbox_id = $2 and email_id is not null and {of}) e
                 where e.email_id not in (select d.email_id from event_drafts d
                                          where d.tenant_id = $1 and d.unit = $4 and d.type = '{received}')",
                image(dialect, "e"),
                received = EventType::EmailReceived,
            ),
            params![self.tenant, mailbox, messages, unit],
        );
    }

    /// Binds the placements of these messages to their emails, with events for existing emails that change by it.
    pub fn bind_placements(&mut self, mailbox: MailboxId, messages: Vec<String>) {
        self.draft_bound_images(mailbox, messages.clone());
        let of = any(self.store.dialect(), "provider_message_id", 3);
        self.unit.op(
            format!(
                "update placements set email_id = (
                     select l.email_id from ledger l where l.tenant_id = placements.tenant_id
                     and l.mailbox_id = placements.mailbox_id and l.provider_message_id = placements.provider_message_id)
                 where tenant_id = $1 and mailbox_id = $2 and {of}"
            ),
            params![self.tenant, mailbox, messages.clone()],
        );
        self.vanish_elsewhere(mailbox, messages);
        self.draft_changes();
    }
}
