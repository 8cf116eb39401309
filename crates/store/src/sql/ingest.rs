//! Records emails: the unit in which a message becomes an email.
//!
//! Every statement is safe to repeat and safe beside another process that records the same message: the first to insert into
//! `email_contents` decides the email's id, and the second binds to it.

use std::collections::HashSet;

use domain::{
    Address, AttachmentId, AttachmentStatus, EmailId, Flags, FolderId, LedgerState, MailboxId, ProcessingStatus,
    Provider, Recipient, Sha256,
};
use jiff::Timestamp;

use super::truncate_chars;
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Dialect, OpId, TenantUnit, Value, params};

#[derive(Debug, Clone)]
pub struct NewEmail {
    pub id: EmailId,
    pub mailbox: MailboxId,
    pub provider: Provider,
    pub provider_message_id: String,
    pub internet_message_id: Option<String>,
    pub subject: Option<String>,
    pub from: Option<Address>,
    pub recipients: Vec<Recipient>,
    pub body_text: Option<String>,
    pub body_html: Option<String>,
    pub sent_at: Option<Timestamp>,
    pub received_at: Timestamp,
    pub size_bytes: u64,
    pub raw_sha256: Sha256,
    /// Emails of a mailbox with the same key are one: the hash of the bytes, or, where the provider's ids are reliable, of the
    /// id.
    pub content_key: Sha256,
    pub thread_id: Option<String>,
    /// The provider's revision of these bytes, where it has one.
    pub revision: Option<String>,
    /// It was there before its mailbox was connected.
    pub is_backfill: bool,
    /// Whether the raw message is among the blobs, from before or from this unit.
    pub raw_is_stored: bool,
    /// When its processing began; it ends with the commit.
    pub processing_started_at: Timestamp,
    /// A JSON list of `[name, value]`, ready to store.
    pub headers: String,
    pub defects: Vec<String>,
    pub attachments: Vec<NewAttachment>,
    /// See `content::tokens`.
    pub tokens: String,
}

#[derive(Debug, Clone)]
pub struct NewAttachment {
    pub id: AttachmentId,
    pub part_path: String,
    pub filename: Option<String>,
    pub content_type: String,
    pub sniffed_type: Option<String>,
    pub size_bytes: u64,
    pub sha256: Sha256,
    pub md5: String,
    pub is_inline: bool,
    pub content_id: Option<String>,
    /// Of an attached message: its own facts, as JSON.
    pub message: Option<serde_json::Value>,
    /// Only what is `Stored` names a blob.
    pub status: AttachmentStatus,
}

/// The operations that count new emails and attachments.
#[derive(Debug, Clone, Copy)]
pub struct RecordedOps {
    pub emails: OpId,
    pub attachments: OpId,
}

/// A message seen in a folder.
#[derive(Debug, Clone)]
pub struct NewPlacement {
    pub mailbox: MailboxId,
    pub folder: FolderId,
    pub provider_message_id: String,
    pub provider_uid: String,
    pub flags: Flags,
}

impl NewEmail {
    /// Returns `Processed` if all its bytes are stored.
    fn status(&self) -> ProcessingStatus {
        let is_missing = self.attachments.iter().any(|part| part.status == AttachmentStatus::Pending);
        if self.raw_is_stored && !is_missing { ProcessingStatus::Processed } else { ProcessingStatus::Failed }
    }
}

impl TenantUnit {
    /// Records emails. `revised` are existing emails with new contents: their old rows are deleted.
    pub fn record_emails(&mut self, mut emails: Vec<NewEmail>, revised: &[EmailId]) -> RecordedOps {
        if self.store.dialect() == Dialect::Postgres {
            // All units in the same order, so that two that record the same messages do not deadlock.
            emails.sort_by_key(|email| (email.mailbox, email.content_key));
        }
        self.unit.emails.extend(emails.iter().map(|email| email.id.0));
        self.record_contents(&emails);
        self.draft_received(&emails);
        if !revised.is_empty() {
            self.draft_updated(revised);
            self.delete_email_rows(revised);
        }
        self.record_ledger(&emails);
        let mut rows = IngestRows::default();
        for email in emails {
            rows.add(self.tenant.into(), email);
        }
        let emails = self.unit.insert(emails_insert(self.store.dialect(), rows.emails));
        self.unit.insert(recipients_insert(rows.recipients));
        let attachments = self.unit.insert(attachments_insert(rows.attachments));
        self.unit.insert(search_insert(self.store.dialect(), rows.search));
        if !revised.is_empty() {
            self.keep_discarded(revised);
        }
        RecordedOps { emails, attachments }
    }

    fn record_contents(&mut self, emails: &[NewEmail]) {
        let (tenant, unit) = (self.tenant, self.draft_id());
        let mut seen = HashSet::new();
        // Two units with the same content at the same time change the same email: the second waits for the first, and drafts
        // its events from there. SQLite has one writer.
        let on_conflict = match self.store.dialect() {
            Dialect::Postgres => {
                "on conflict (tenant_id, mailbox_id, raw_sha256) do update set email_id = email_contents.email_id"
            }
            Dialect::Sqlite => "on conflict do nothing",
        };
        self.unit.insert(Insert {
            into: "email_contents (mailbox_id, raw_sha256, tenant_id, email_id, unit)".into(),
            columns: &[
                ("mailbox_id", ColumnType::Uuid),
                ("raw_sha256", ColumnType::Hash),
                ("tenant_id", ColumnType::Uuid),
                ("email_id", ColumnType::Uuid),
                ("unit", ColumnType::Uuid),
            ],
            rows: emails
                .iter()
                .filter(|email: &&NewEmail| seen.insert((email.mailbox, email.content_key)))
                .map(|email: &NewEmail| params![email.mailbox, email.content_key, tenant, email.id, unit])
                .collect(),
            select: "u.mailbox_id, u.raw_sha256, u.tenant_id, u.email_id, u.unit".into(),
            join_where: "",
            on_conflict: on_conflict.into(),
            batching: InsertBatching::Many,
        });
    }

    fn record_ledger(&mut self, emails: &[NewEmail]) {
        // By the clock of the process, which need not be that of a PostgreSQL: queries by this column look back 15 minutes.
        let started_at = match self.store.dialect() {
            Dialect::Postgres => {
                "least(greatest(u.started_at, mailroom_now() - interval '15 minutes'), mailroom_now())"
            }
            Dialect::Sqlite => "min(u.started_at, mailroom_now())",
        };
        self.unit.insert(Insert {
            into: "ledger (mailbox_id, provider_message_id, tenant_id, state, reason, size_bytes, raw_sha256, email_id, revision,
                   first_seen_at, processing_started_at, processing_completed_at)"
                .into(),
            columns: &[
                ("mailbox_id", ColumnType::Uuid),
                ("provider_message_id", ColumnType::Text),
                ("tenant_id", ColumnType::Uuid),
                ("state", ColumnType::Text),
                ("reason", ColumnType::Text),
                ("size_bytes", ColumnType::Int),
                ("raw_sha256", ColumnType::Hash),
                ("email_id", ColumnType::Uuid),
                ("content_key", ColumnType::Hash),
                ("revision", ColumnType::Text),
                ("started_at", ColumnType::Time),
            ],
            rows: emails.iter().map(|email: &NewEmail| {
            let (state, reason) = match email.status() {
                ProcessingStatus::Processed => (LedgerState::Processed, None),
                ProcessingStatus::Failed => (LedgerState::Failed, Some("some of its bytes are not stored yet")),
            };
            params![
                email.mailbox,
                email.provider_message_id.as_str(),
                self.tenant,
                state,
                reason,
                email.size_bytes,
                email.raw_sha256,
                email.id,
                email.content_key,
                email.revision.clone(),
                email.processing_started_at
            ]
        }).collect(),
            // Bound to another unit's email that lacks bytes, it is not done either: this unit fills in its own email only.
            select: format!(
                "u.mailbox_id, u.provider_message_id, u.tenant_id,
                     case when c.email_id <> u.email_id and exists (
                         select 1 from ledger l where l.tenant_id = u.tenant_id and l.mailbox_id = u.mailbox_id
                         and l.provider_message_id = u.provider_message_id and l.state = 'failed')
                     then 'failed' else u.state end,
                     u.reason, u.size_bytes, u.raw_sha256, c.email_id, u.revision, mailroom_now(), {started_at}, mailroom_now()"
            )
            .into(),
            join_where: "join email_contents c on c.tenant_id = u.tenant_id and c.mailbox_id = u.mailbox_id
                         and c.raw_sha256 = u.content_key",
            // A message that was not processed, or that was gone and is back.
            on_conflict: format!(
                "on conflict ({}mailbox_id, provider_message_id)
                 do update set state = excluded.state, reason = excluded.reason, email_id = excluded.email_id,
                 size_bytes = excluded.size_bytes, raw_sha256 = excluded.raw_sha256,
                 revision = coalesce(excluded.revision, ledger.revision),
                 attempts = ledger.attempts + 1, processing_started_at = excluded.processing_started_at,
                 processing_completed_at = excluded.processing_completed_at
                 where ledger.state <> 'processed'",
                self.key_prefix()
            )
            .into(),
            batching: InsertBatching::Many,
        });
    }

    /// Returns the first column of keys: PostgreSQL's begin with the tenant, because others would reveal rows of another tenant.
    fn key_prefix(&self) -> &'static str {
        match self.store.dialect() {
            Dialect::Sqlite => "",
            Dialect::Postgres => "tenant_id, ",
        }
    }

    /// Records placements of messages, which must be in the ledger, from before or from this unit.
    pub fn record_placements(&mut self, placements: &[NewPlacement]) {
        let tenant = self.tenant;
        let mut placements: Vec<&NewPlacement> = placements.iter().collect();
        placements.sort_by_key(|placement| (placement.mailbox, placement.folder, &placement.provider_uid));
        self.unit.insert(Insert {
            into: "placements (mailbox_id, folder_id, provider_uid, tenant_id, provider_message_id, email_id, flags,
                   is_live, created_at, updated_at)"
                .into(),
            columns: &[
                ("mailbox_id", ColumnType::Uuid),
                ("folder_id", ColumnType::Uuid),
                ("provider_uid", ColumnType::Text),
                ("tenant_id", ColumnType::Uuid),
                ("provider_message_id", ColumnType::Text),
                ("flags", ColumnType::Json),
            ],
            rows: placements
                .into_iter()
                .map(|placement: &NewPlacement| {
                    params![
                        placement.mailbox,
                        placement.folder,
                        &placement.provider_uid,
                        tenant,
                        &placement.provider_message_id,
                        serde_json::json!(placement.flags.names())
                    ]
                })
                .collect(),
            select:
                "u.mailbox_id, u.folder_id, u.provider_uid, u.tenant_id, u.provider_message_id, l.email_id, u.flags,
                     true, mailroom_now(), mailroom_now()"
                    .into(),
            join_where: "join ledger l on l.tenant_id = u.tenant_id and l.mailbox_id = u.mailbox_id
                         and l.provider_message_id = u.provider_message_id and l.state <> 'gone'",
            on_conflict: format!(
                "on conflict ({}mailbox_id, folder_id, provider_uid)
                 do update set flags = excluded.flags, is_live = true, email_id = excluded.email_id,
                 updated_at = excluded.updated_at
                 where placements.flags is distinct from excluded.flags or not placements.is_live
                 or placements.email_id is distinct from excluded.email_id",
                self.key_prefix()
            )
            .into(),
            batching: InsertBatching::Many,
        });
    }
}

/// The rows of a batch, by table.
#[derive(Default)]
struct IngestRows {
    emails: Vec<Vec<Value>>,
    recipients: Vec<Vec<Value>>,
    attachments: Vec<Vec<Value>>,
    search: Vec<Vec<Value>>,
}

impl IngestRows {
    fn add(&mut self, tenant: Value, email: NewEmail) {
        let id = email.id;
        let has_attachments = !email.attachments.is_empty();
        let (status, raw_blob) = (email.status(), email.raw_is_stored.then_some(email.raw_sha256));
        for (position, recipient) in email.recipients.into_iter().enumerate() {
            let Address { name, address } = recipient.address;
            let address = truncate_chars(&address, 320).to_lowercase();
            let kind = recipient.kind.as_str();
            self.recipients.push(params![
                id,
                position,
                tenant.clone(),
                kind,
                address,
                name,
                email.mailbox,
                email.content_key
            ]);
        }
        for (position, attachment) in email.attachments.into_iter().enumerate() {
            let mut row = attachment_row(tenant.clone(), id, position, attachment);
            row.extend(params![email.mailbox, email.content_key]);
            self.attachments.push(row);
        }
        self.search.push(params![
            tenant.clone(),
            id,
            email.mailbox,
            email.received_at,
            email.content_key,
            email.raw_sha256,
            Value::Tokens(email.tokens)
        ]);
        let (from_name, from_address) = email.from.map(|from| (from.name, from.address)).unzip();
        self.emails.push(params![
            id,
            tenant,
            email.mailbox,
            email.provider,
            email.provider_message_id,
            email.internet_message_id.as_deref().map(|id| truncate_chars(id, 1000)),
            email.internet_message_id.as_deref().map(|id| Sha256::of(id.as_bytes())),
            email.subject.as_deref().map(|subject| truncate_chars(subject, 1000)),
            from_name.flatten(),
            from_address.as_deref().map(|address| truncate_chars(address, 320).to_lowercase()),
            email.body_text,
            email.body_html,
            email.sent_at,
            email.received_at,
            status,
            has_attachments,
            email.size_bytes,
            email.raw_sha256,
            raw_blob,
            Value::Json(email.headers),
            serde_json::json!(email.defects),
            search_second(id),
            email.content_key,
            email.thread_id,
        ]);
    }
}

fn attachment_row(tenant: Value, email: EmailId, position: usize, attachment: NewAttachment) -> Vec<Value> {
    let blob = (attachment.status == AttachmentStatus::Stored).then_some(attachment.sha256);
    params![
        attachment.id,
        tenant,
        email,
        position,
        attachment.part_path,
        attachment.filename.as_deref().map(|name| truncate_chars(name, 500)),
        attachment.content_type,
        attachment.sniffed_type,
        attachment.size_bytes,
        attachment.sha256,
        attachment.md5,
        attachment.is_inline,
        attachment.content_id,
        attachment.message,
        attachment.status,
        blob,
    ]
}

/// Returns the seconds since 1990, which no email id precedes; 31 bits last until 2058.
pub(super) fn search_second(id: EmailId) -> i64 {
    const SECONDS_1990: i64 = 631_152_000;
    (id.received_at().as_second() - SECONDS_1990).clamp(0, (1 << 31) - 1)
}

const EMAIL_COLUMNS: &[(&str, ColumnType)] = &[
    ("id", ColumnType::Uuid),
    ("tenant_id", ColumnType::Uuid),
    ("mailbox_id", ColumnType::Uuid),
    ("provider", ColumnType::Text),
    ("provider_message_id", ColumnType::Text),
    ("internet_message_id", ColumnType::Text),
    ("message_id_hash", ColumnType::Hash),
    ("subject", ColumnType::Text),
    ("from_name", ColumnType::Text),
    ("from_address", ColumnType::Text),
    ("body_text", ColumnType::Text),
    ("body_html", ColumnType::Text),
    ("sent_at", ColumnType::Time),
    ("received_at", ColumnType::Time),
    ("processing_status", ColumnType::Text),
    ("has_attachments", ColumnType::Bool),
    ("size_bytes", ColumnType::Int),
    ("raw_sha256", ColumnType::Hash),
    ("raw_blob_sha256", ColumnType::Hash),
    ("headers", ColumnType::Json),
    ("defects", ColumnType::Json),
    ("search_second", ColumnType::Int),
    ("content_key", ColumnType::Hash),
    ("thread_id", ColumnType::Text),
];

const EMAILS_INTO: &str = "id, tenant_id, mailbox_id, provider, provider_message_id, internet_message_id,
    message_id_hash, subject, from_name, from_address, body_text, body_html, sent_at, received_at, processing_status,
    has_attachments, size_bytes, raw_sha256, headers, defects, raw_blob_sha256, thread_id, processed_at, created_at";

const EMAILS_SELECT: &str = "u.id, u.tenant_id, u.mailbox_id, u.provider, u.provider_message_id, u.internet_message_id,
    u.message_id_hash, u.subject, u.from_name, u.from_address, u.body_text, u.body_html, u.sent_at, u.received_at,
    u.processing_status, u.has_attachments, u.size_bytes, u.raw_sha256, u.headers, u.defects,
    u.raw_blob_sha256, u.thread_id, mailroom_now(), mailroom_now()";

/// The next free number of the email's second; when all 65,536 are taken, one past the tenant's newest, which lists it
/// too early but never fails.
const NEXT_SEARCH_ROWID: &str = "(select coalesce(
        (select case
            when max(x.search_rowid) < b.first + 65535 then max(x.search_rowid) + 1
            when max(x.search_rowid) is not null then
                (select max(y.search_rowid) + 1 from emails y
                 where y.search_rowid between b.first and ((b.number + 1) << 47) - 1)
         end
         from emails x where x.search_rowid between b.first and b.first + 65535),
        b.first)
    from (select t.number, (t.number << 47) | (u.search_second << 16) as first
          from tenants t where t.id = u.tenant_id) b)";

/// Inserts only emails whose id won in `email_contents`.
fn emails_insert(dialect: Dialect, rows: Vec<Vec<Value>>) -> Insert {
    let (into, select) = match dialect {
        Dialect::Sqlite => {
            (format!("emails (search_rowid, {EMAILS_INTO})"), format!("{NEXT_SEARCH_ROWID}, {EMAILS_SELECT}"))
        }
        Dialect::Postgres => (format!("emails ({EMAILS_INTO})"), EMAILS_SELECT.to_owned()),
    };
    Insert {
        into: into.into(),
        columns: EMAIL_COLUMNS,
        rows,
        select: select.into(),
        join_where: "where exists (select 1 from email_contents c where c.tenant_id = u.tenant_id
                     and c.mailbox_id = u.mailbox_id and c.raw_sha256 = u.content_key and c.email_id = u.id)",
        // Fills in what was missing, and nothing else.
        on_conflict: "on conflict (tenant_id, id)
                      do update set raw_blob_sha256 = excluded.raw_blob_sha256,
                      processing_status = excluded.processing_status, processed_at = excluded.processed_at
                      where emails.processing_status = 'failed' and excluded.raw_blob_sha256 is not null"
            .into(),
        batching: InsertBatching::One,
    }
}

/// Inserts parts only of emails whose id won. Checked in the table that decided it, because emails have many partitions.
const IF_EMAIL_WON_SQL: &str = "where exists (select 1 from email_contents c where c.tenant_id = u.tenant_id
     and c.mailbox_id = u.mailbox_id and c.raw_sha256 = u.content_key and c.email_id = u.email_id)";

fn recipients_insert(rows: Vec<Vec<Value>>) -> Insert {
    Insert {
        into: "email_recipients (email_id, position, tenant_id, kind, address, name)".into(),
        columns: &[
            ("email_id", ColumnType::Uuid),
            ("position", ColumnType::Int),
            ("tenant_id", ColumnType::Uuid),
            ("kind", ColumnType::Text),
            ("address", ColumnType::Text),
            ("name", ColumnType::Text),
            ("mailbox_id", ColumnType::Uuid),
            ("content_key", ColumnType::Hash),
        ],
        rows,
        select: "u.email_id, u.position, u.tenant_id, u.kind, u.address, u.name".into(),
        join_where: IF_EMAIL_WON_SQL,
        on_conflict: "on conflict do nothing".into(),
        batching: InsertBatching::Many,
    }
}

fn attachments_insert(rows: Vec<Vec<Value>>) -> Insert {
    Insert {
        into: "attachments (id, tenant_id, email_id, position, part_path, filename, content_type, sniffed_type,
               size_bytes, sha256, md5, is_inline, content_id, message, status, blob_sha256, created_at)"
            .into(),
        columns: &[
            ("id", ColumnType::Uuid),
            ("tenant_id", ColumnType::Uuid),
            ("email_id", ColumnType::Uuid),
            ("position", ColumnType::Int),
            ("part_path", ColumnType::Text),
            ("filename", ColumnType::Text),
            ("content_type", ColumnType::Text),
            ("sniffed_type", ColumnType::Text),
            ("size_bytes", ColumnType::Int),
            ("sha256", ColumnType::Hash),
            ("md5", ColumnType::Text),
            ("is_inline", ColumnType::Bool),
            ("content_id", ColumnType::Text),
            ("message", ColumnType::Json),
            ("status", ColumnType::Text),
            ("blob_sha256", ColumnType::Hash),
            ("mailbox_id", ColumnType::Uuid),
            ("content_key", ColumnType::Hash),
        ],
        rows,
        select: "u.id, u.tenant_id, u.email_id, u.position, u.part_path, u.filename, u.content_type, u.sniffed_type,
                 u.size_bytes, u.sha256, u.md5, u.is_inline, u.content_id, u.message, u.status, u.blob_sha256,
                 mailroom_now()"
            .into(),
        join_where: IF_EMAIL_WON_SQL,
        on_conflict: "on conflict (tenant_id, id)
                      do update set status = excluded.status, blob_sha256 = excluded.blob_sha256
                      where attachments.status in ('pending', 'failed') and excluded.status = 'stored'"
            .into(),
        batching: InsertBatching::Many,
    }
}

/// Inserts entries of the text index that are missing.
pub(super) fn search_insert(dialect: Dialect, rows: Vec<Vec<Value>>) -> Insert {
    let columns = &[
        ("tenant_id", ColumnType::Uuid),
        ("email_id", ColumnType::Uuid),
        ("mailbox_id", ColumnType::Uuid),
        ("received_at", ColumnType::Time),
        ("content_key", ColumnType::Hash),
        ("raw_sha256", ColumnType::Hash),
        ("tokens", ColumnType::Tokens),
    ];
    match dialect {
        Dialect::Postgres => Insert {
            into: "email_search (tenant_id, email_id, mailbox_id, received_at, tokens)".into(),
            columns,
            rows: rows.into_iter().map(with_tenant_lexeme).collect(),
            select: "u.tenant_id, u.email_id, u.mailbox_id, u.received_at, u.tokens".into(),
            join_where: IF_EMAIL_WON_SQL,
            on_conflict: "on conflict (tenant_id, email_id) do nothing".into(),
            batching: InsertBatching::Group,
        },
        // In row order, because FTS5 writes its index out whenever a row number goes down.
        Dialect::Sqlite => Insert {
            into: "email_search (rowid, tokens)".into(),
            columns,
            rows,
            select: "e.search_rowid, u.tokens".into(),
            // Units of one commit may bring the same email, and tokens of bytes that it does not have any more.
            // In this order, whatever the planner thinks of the tables.
            join_where: "cross join emails e on e.tenant_id = u.tenant_id and e.id = u.email_id
                         and e.raw_sha256 = u.raw_sha256
                         where not exists (select 1 from email_search_docsize d where d.id = e.search_rowid)
                         group by e.search_rowid order by e.search_rowid",
            on_conflict: "".into(),
            batching: InsertBatching::Group,
        },
    }
}

/// Appends the tenant's lexeme, last so that it shifts no position.
pub(super) fn with_tenant_lexeme(mut row: Vec<Value>) -> Vec<Value> {
    if let [Value::Uuid(tenant), .., Value::Tokens(tokens)] = row.as_mut_slice() {
        tokens.push_str(&format!(" {}", super::search::tenant_lexeme(*tenant)));
    }
    row
}
