//! Messages that were fetched become emails: what is told of that, and where it leads.

use std::collections::{HashMap, HashSet};

use domain::connector::{Place, Wanted};
use domain::{EmailId, MailboxId};
use jiff::Timestamp;

use super::super::events::{DRAFTS, IMAGE, SAID, image};
use crate::sql::any;
use crate::sql::ingest::NewEmail;
use crate::unit::{By, Insert};
use crate::value::Kind;
use crate::{Dialect, StoreError, TenantStore, TenantUnit, params};

/// What who stores messages is told when some of them are gone or stored meanwhile.
pub const MESSAGES_CHANGED: &str = "some of these messages were stored or went away meanwhile";

/// What who knows where messages are is told when a listing has told of some of them meanwhile.
pub const MESSAGES_TOLD: &str = "a listing has told of some of these messages meanwhile";

/// A message that is to be fetched.
#[derive(Debug, Clone)]
pub struct Queued {
    pub message: String,
    pub places: Vec<Place>,
    pub size_bytes: Option<u64>,
    pub is_backfill: bool,
    /// As it was listed last.
    pub revision: Option<String>,
    pub received_at: Option<Timestamp>,
    /// How often a listing has told where it is.
    pub told: u64,
}

impl Queued {
    pub fn wanted(&self) -> Wanted {
        Wanted { message: self.message.clone(), places: self.places.clone(), size_bytes: self.size_bytes }
    }
}

impl TenantStore {
    /// Those of the given messages that are not stored yet and are not gone.
    pub async fn list_queued(&self, mailbox: MailboxId, messages: Vec<String>) -> Result<Vec<Queued>, StoreError> {
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
        let mut places: HashMap<String, Vec<Place>> = HashMap::new();
        for row in &placed {
            places.entry(row.get(0)?).or_default().push(Place { folder: row.get(1)?, uid: row.get(2)? });
        }
        let mut list = Vec::with_capacity(queued.len());
        for row in &queued {
            let message: String = row.get(0)?;
            let places = places.remove(&message).unwrap_or_default();
            list.push(Queued {
                message,
                places,
                size_bytes: row.get(1)?,
                is_backfill: row.get(2)?,
                revision: row.get(3)?,
                received_at: row.get(4)?,
                told: row.get(5)?,
            });
        }
        Ok(list)
    }

    /// When messages arrived that we have though they are older than this.
    pub async fn list_arrivals_before(
        &self,
        mailbox: MailboxId,
        time: Timestamp,
    ) -> Result<HashSet<Timestamp>, StoreError> {
        let sql = "select distinct received_at from ledger
                   where tenant_id = $1 and mailbox_id = $2 and received_at < $3 and state <> 'skipped'";
        self.query(sql, params![self.id, mailbox, time]).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Messages that were given up or put off, to be fetched once more.
    pub async fn list_failed(&self, mailbox: MailboxId, after: &str, limit: u64) -> Result<Vec<String>, StoreError> {
        let sql = "select provider_message_id from ledger where tenant_id = $1 and mailbox_id = $2 and state = 'failed'
                   and provider_message_id > $3 order by provider_message_id limit $4";
        self.query(sql, params![self.id, mailbox, after, limit]).await?.iter().map(|row| row.get(0)).collect()
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

    /// Nothing of the unit happens when a listing has told where one of these messages is since it was read how often.
    pub fn expect_told(&mut self, mailbox: MailboxId, messages: Vec<(String, u64)>) {
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
            // Nobody else writes meanwhile.
            Dialect::Sqlite => {
                let told: serde_json::Map<_, _> =
                    messages.into_iter().zip(told.into_iter().map(serde_json::Value::from)).collect();
                params.extend(params![serde_json::Value::from(told)]);
                format!("{same} (select key, value from json_each($3))")
            }
        };
        self.unit.op_returning_exactly(count, MESSAGES_TOLD, sql, params);
    }

    /// Those that this unit was the first to bring.
    pub(in crate::sql) fn tell_received(&mut self, emails: &[NewEmail]) {
        let (tenant, unit) = (self.tenant, self.drafting());
        let row =
            |email: &NewEmail| params![tenant, unit, email.mailbox, email.id, email.content_key, email.is_backfill];
        self.unit.insert(Insert {
            into: DRAFTS.into(),
            columns: &[
                ("tenant_id", Kind::Uuid),
                ("unit", Kind::Uuid),
                ("mailbox_id", Kind::Uuid),
                ("email_id", Kind::Uuid),
                ("content_key", Kind::Hash),
                ("is_backfill", Kind::Bool),
            ],
            rows: emails.iter().map(row).collect(),
            select: format!(
                "u.tenant_id, u.unit, {SAID}, 'email.received', u.mailbox_id, u.email_id, u.is_backfill, '{{}}'"
            )
            .into(),
            join_where: "join email_contents c on c.tenant_id = u.tenant_id and c.mailbox_id = u.mailbox_id
                             and c.raw_sha256 = u.content_key and c.email_id = u.email_id and c.unit = u.unit",
            on_conflict: "".into(),
            by: By::Many,
        });
    }

    pub(in crate::sql) fn tell_updated(&mut self, revised: &[EmailId]) {
        let unit = self.drafting();
        let sql = format!(
            "insert into {DRAFTS} select tenant_id, $3, {SAID}, 'email.updated', mailbox_id, id, false, '{{}}'
             from emails where tenant_id = $1 and {}",
            any(self.store.dialect(), "id", 2)
        );
        self.unit.op(sql, params![self.tenant, revised.to_vec(), unit]);
    }

    /// The rows of these emails, but not what they are known by.
    pub(in crate::sql) fn remove_parts(&mut self, ids: &[EmailId]) {
        let dialect = self.store.dialect();
        let of = |column| format!("tenant_id = $1 and {}", any(dialect, column, 2));
        let search = match dialect {
            Dialect::Postgres => format!("delete from email_search where {}", of("email_id")),
            Dialect::Sqlite => {
                format!("delete from email_search where rowid in (select search_rowid from emails where {})", of("id"))
            }
        };
        let statements = [
            search,
            format!("delete from attachments where {}", of("email_id")),
            format!("delete from email_recipients where {}", of("email_id")),
            format!("delete from emails where {}", of("id")),
        ];
        for sql in statements {
            self.unit.op(sql, params![self.tenant, ids.to_vec()]);
        }
    }

    /// These are stored now, if none of them is gone, stored, listed with another text or somebody else's meanwhile; else
    /// nothing of the unit happens.
    pub fn take_messages(&mut self, mailbox: MailboxId, messages: Vec<(String, Option<String>)>) {
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
            // Nobody else writes meanwhile.
            Dialect::Sqlite => {
                let listed: serde_json::Map<_, _> =
                    messages.into_iter().zip(revisions.into_iter().map(serde_json::Value::from)).collect();
                params.extend(params![serde_json::Value::from(listed)]);
                format!("{waiting} (select key, value from json_each($3))")
            }
        };
        self.unit.op_returning_exactly(count, MESSAGES_CHANGED, sql, params);
        // What was given up is under way again, however it ends now.
        let sql = format!(
            "update ledger set state = 'processing', reason = null
             where tenant_id = $1 and mailbox_id = $2 and state = 'failed' and {}",
            any(self.store.dialect(), "provider_message_id", 3)
        );
        self.unit.op(sql, params![self.tenant, mailbox, given]);
    }

    /// The places of these messages lead to their emails now; of emails that were there before, it is told what that changes.
    pub fn bind_places(&mut self, mailbox: MailboxId, messages: Vec<String>) {
        let dialect = self.store.dialect();
        let unit = self.drafting();
        let of = any(dialect, "provider_message_id", 3);
        self.unit.op(
            format!(
                "insert into {DRAFTS} select e.tenant_id, $4, {IMAGE}, 'image', $2, e.email_id, false, {}
                 from (select distinct tenant_id, email_id from ledger
                       where tenant_id = $1 and mailbox_id = $2 and email_id is not null and {of}) e
                 where e.email_id not in (select d.email_id from event_drafts d
                                          where d.tenant_id = $1 and d.unit = $4 and d.type = 'email.received')",
                image(dialect, "e")
            ),
            params![self.tenant, mailbox, messages.clone(), unit],
        );
        self.unit.op(
            format!(
                "update placements set email_id = (
                     select l.email_id from ledger l where l.tenant_id = placements.tenant_id
                     and l.mailbox_id = placements.mailbox_id and l.provider_message_id = placements.provider_message_id)
                 where tenant_id = $1 and mailbox_id = $2 and {of}"
            ),
            params![self.tenant, mailbox, messages],
        );
        self.tell_changes();
    }
}
