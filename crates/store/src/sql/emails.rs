//! Queries for whole emails.

use std::collections::HashMap;

use domain::{Address, EmailId, MailboxId, ProcessingStatus, RecipientKind, Sha256};
use futures_util::future::try_join;
use jiff::Timestamp;
use serde::Serialize;

use super::any;
use super::attachments::{self, Attachment};
use crate::{Dialect, ReadQuery, Row, StoreError, TenantStore, Value, params};

/// A whole email, in the shape of the public surface.
#[derive(Debug, Clone, Serialize)]
pub struct Email {
    pub id: EmailId,
    pub mailbox_id: MailboxId,
    pub provider_message_id: String,
    pub internet_message_id: Option<String>,
    pub thread_id: Option<String>,
    pub conversation_id: Option<String>,
    pub subject: Option<String>,
    pub from: Option<Address>,
    pub to: Vec<Address>,
    pub cc: Vec<Address>,
    pub bcc: Vec<Address>,
    pub reply_to: Vec<Address>,
    pub sent_at: Option<Timestamp>,
    pub received_at: Timestamp,
    pub processed_at: Option<Timestamp>,
    pub processing_status: ProcessingStatus,
    pub folders: Vec<String>,
    pub flags: Vec<String>,
    pub size_bytes: u64,
    pub sha256: Sha256,
    pub body_text: Option<String>,
    pub body_html: Option<String>,
    pub has_attachments: bool,
    pub headers: serde_json::Value,
    pub defects: serde_json::Value,
    pub attachments: Vec<Attachment>,
    pub deleted_at: Option<Timestamp>,
}

/// How much of an email to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EmailDetail {
    Whole,
    /// What a search compares: no HTML, no headers, the beginning of the text. A page of large mails would otherwise take
    /// gigabytes.
    Searched,
}

/// Characters of body text that are compared; a search for later words still finds the email by the index.
pub const SEARCHED_CHARS: u32 = 65_536;

const COLUMNS: &str = "id, mailbox_id, provider_message_id, internet_message_id, thread_id, conversation_id, subject,
    from_name, from_address, sent_at, received_at, processed_at, processing_status, size_bytes, raw_sha256, body_text,
    body_html, has_attachments, headers, defects, deleted_at";

/// An email that lacks some of its bytes, but not its original.
#[derive(Debug, Clone)]
pub struct IncompleteEmail {
    pub id: EmailId,
    pub raw_sha256: Sha256,
    pub received_at: Timestamp,
    pub provider_message_id: String,
}

impl TenantStore {
    /// Lists mailboxes with emails that lack bytes, or with messages of which that is recorded: another message with the same
    /// bytes may have completed their email.
    pub async fn list_incomplete_mailboxes(&self) -> Result<Vec<MailboxId>, StoreError> {
        let sql = "select mailbox_id from emails where tenant_id = $1 and processing_status = 'failed'
                   union
                   select mailbox_id from ledger where tenant_id = $1 and state = 'failed' and email_id is not null";
        self.query(sql, params![self.id]).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Counts emails of which not even the original is stored.
    pub async fn count_emails_without_original(&self, mailbox: MailboxId) -> Result<u64, StoreError> {
        let sql =
            "select count(*) from emails where tenant_id = $1 and mailbox_id = $2 and processing_status = 'failed'
                   and raw_blob_sha256 is null";
        self.query_one(sql, params![self.id, mailbox]).await?.map_or(Ok(0), |row| row.get(0))
    }

    /// Lists emails whose originals are stored and that lack other bytes, in the order of their ids, after a given one.
    pub async fn list_incomplete_emails(
        &self,
        mailbox: MailboxId,
        after: Option<EmailId>,
        limit: u64,
    ) -> Result<Vec<IncompleteEmail>, StoreError> {
        let sql = "select id, raw_sha256, received_at, provider_message_id from emails
                   where tenant_id = $1 and mailbox_id = $2 and processing_status = 'failed' and id > $3
                     and raw_blob_sha256 is not null
                   order by id limit $4";
        let after = after.unwrap_or(EmailId(uuid::Uuid::nil()));
        self.query(sql, params![self.id, mailbox, after, limit])
            .await?
            .iter()
            .map(|row: &Row| {
                Ok(IncompleteEmail {
                    id: row.get(0)?,
                    raw_sha256: row.get(1)?,
                    received_at: row.get(2)?,
                    provider_message_id: row.get(3)?,
                })
            })
            .collect()
    }

    /// Lists some emails of a mailbox, in no order.
    pub async fn list_email_ids(&self, mailbox: MailboxId, limit: u64) -> Result<Vec<EmailId>, StoreError> {
        let sql = "select id from emails where tenant_id = $1 and mailbox_id = $2 limit $3";
        self.query(sql, params![self.id, mailbox, limit]).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Returns whether the email exists and is not deleted.
    pub async fn has_live_email(&self, id: EmailId) -> Result<bool, StoreError> {
        let sql = "select 1 from emails where tenant_id = $1 and id = $2 and deleted_at is null";
        Ok(self.query_one(sql, params![self.id, id]).await?.is_some())
    }

    pub async fn find_email(&self, id: EmailId) -> Result<Option<Email>, StoreError> {
        Ok(self.get_emails(&[id]).await?.pop())
    }

    /// Returns whole emails in the given order, without those that do not exist. Four queries, however many.
    pub async fn get_emails(&self, ids: &[EmailId]) -> Result<Vec<Email>, StoreError> {
        self.read_emails(ids, EmailDetail::Whole).await
    }

    /// Returns emails without HTML and headers, and with at most [`SEARCHED_CHARS`] of text.
    pub async fn get_searched_emails(&self, ids: &[EmailId]) -> Result<Vec<Email>, StoreError> {
        self.read_emails(ids, EmailDetail::Searched).await
    }

    async fn read_emails(&self, ids: &[EmailId], detail: EmailDetail) -> Result<Vec<Email>, StoreError> {
        let dialect = self.store.dialect();
        let list = Value::from(ids.to_vec());
        let columns = match detail {
            EmailDetail::Whole => COLUMNS.to_owned(),
            EmailDetail::Searched => COLUMNS
                .replace("body_text", &format!("substr(body_text, 1, {SEARCHED_CHARS})"))
                .replace("body_html", "cast(null as text)")
                .replace("headers", "'[]'"),
        };
        let sql = format!("select {columns} from emails where tenant_id = $1 and {}", any(dialect, "id", 2));
        // Planning a read takes longer than its rows, except for the emails themselves: side by side with the rest.
        let parts =
            [self.recipients(list.clone()), self.live_placements(list.clone()), attachments::of_emails(self, ids)];
        let (whole, [recipients, placements, attachments]) =
            try_join(self.query(sql, params![self.id, list]), self.query_all(parts)).await?;
        let mut emails: HashMap<EmailId, Email> = HashMap::new();
        for row in whole {
            let email = email(&row)?;
            emails.insert(email.id, email);
        }
        add_recipients(&mut emails, recipients)?;
        for (id, EmailPlacements { folders, flags }) in placements_by_email(placements)? {
            if let Some(email) = emails.get_mut(&id) {
                (email.folders, email.flags) = (folders, flags);
            }
        }
        for row in attachments {
            let (id, attachment) = attachments::attachment(&row)?;
            if let Some(email) = emails.get_mut(&id) {
                email.attachments.push(attachment);
            }
        }
        Ok(ids.iter().filter_map(|id| emails.remove(id)).collect())
    }

    fn recipients(&self, ids: Value) -> ReadQuery {
        let sql = format!(
            "select email_id, kind, name, address from email_recipients where tenant_id = $1 and {} order by email_id, position",
            any(self.store.dialect(), "email_id", 2)
        );
        (sql, params![self.id, ids])
    }

    pub(super) fn live_placements(&self, ids: Value) -> ReadQuery {
        if self.store.dialect() == Dialect::Postgres {
            // A function, because its plan lasts: planning this takes as long as its rows.
            return ("select email_id, folder, flags from mailroom_places($1)".to_owned(), params![ids]);
        }
        let sql = format!(
            "select p.email_id, f.name, p.flags from placements p
             join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
             where p.tenant_id = $1 and p.is_live and {} order by f.name",
            any(self.store.dialect(), "p.email_id", 2)
        );
        (sql, params![self.id, ids])
    }
}

fn add_recipients(emails: &mut HashMap<EmailId, Email>, rows: Vec<Row>) -> Result<(), StoreError> {
    for row in rows {
        let Some(email) = emails.get_mut(&row.get(0)?) else { continue };
        let kind: String = row.get(1)?;
        let list = match RecipientKind::parse(&kind) {
            Some(RecipientKind::To) => &mut email.to,
            Some(RecipientKind::Cc) => &mut email.cc,
            Some(RecipientKind::Bcc) => &mut email.bcc,
            Some(RecipientKind::ReplyTo) => &mut email.reply_to,
            None => return Err(StoreError::corrupt(format!("a recipient has the unknown kind {kind}"))),
        };
        list.push(Address { name: row.get(2)?, address: row.get(3)? });
    }
    Ok(())
}

/// Folders and flags of an email: the union over its live placements.
#[derive(Debug, Default)]
pub(super) struct EmailPlacements {
    pub folders: Vec<String>,
    pub flags: Vec<String>,
}

pub(super) fn placements_by_email(rows: Vec<Row>) -> Result<HashMap<EmailId, EmailPlacements>, StoreError> {
    let mut places: HashMap<EmailId, EmailPlacements> = HashMap::with_capacity(rows.len());
    for row in rows {
        let EmailPlacements { folders, flags } = places.entry(row.get(0)?).or_default();
        let more: serde_json::Value = row.get(2)?;
        folders.push(row.get(1)?);
        flags.extend(more.as_array().into_iter().flatten().filter_map(|flag| flag.as_str().map(str::to_owned)));
    }
    for EmailPlacements { folders, flags } in places.values_mut() {
        folders.dedup();
        flags.sort();
        flags.dedup();
    }
    Ok(places)
}

fn email(row: &Row) -> Result<Email, StoreError> {
    let (name, address): (Option<String>, Option<String>) = (row.get(7)?, row.get(8)?);
    Ok(Email {
        id: row.get(0)?,
        mailbox_id: row.get(1)?,
        provider_message_id: row.get(2)?,
        internet_message_id: row.get(3)?,
        thread_id: row.get(4)?,
        conversation_id: row.get(5)?,
        subject: row.get(6)?,
        from: address.map(|address| Address { name, address }),
        to: Vec::new(),
        cc: Vec::new(),
        bcc: Vec::new(),
        reply_to: Vec::new(),
        sent_at: row.get(9)?,
        received_at: row.get(10)?,
        processed_at: row.get(11)?,
        processing_status: row.get(12)?,
        folders: Vec::new(),
        flags: Vec::new(),
        size_bytes: row.get(13)?,
        sha256: row.get(14)?,
        body_text: row.get(15)?,
        body_html: row.get(16)?,
        has_attachments: row.get(17)?,
        headers: row.get(18)?,
        defects: row.get(19)?,
        attachments: Vec::new(),
        deleted_at: row.get(20)?,
    })
}
