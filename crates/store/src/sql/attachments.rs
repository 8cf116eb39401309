//! Queries for attachments.

use domain::{AttachmentId, AttachmentStatus, EmailId, Sha256};
use serde::Serialize;
use uuid::Uuid;

use super::any;
use crate::{Dialect, ReadQuery, Row, StoreError, TenantStore, params};

#[derive(Debug, Clone, Serialize)]
pub struct Attachment {
    pub id: AttachmentId,
    pub filename: Option<String>,
    pub content_type: String,
    pub size_bytes: u64,
    pub sha256: Option<Sha256>,
    pub inline: bool,
    pub content_id: Option<String>,
    pub status: AttachmentStatus,
    pub sniffed_type: Option<String>,
    pub md5: Option<String>,
    /// Of an attached message: its own subject, from, sent_at and message id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<serde_json::Value>,
}

/// Returns the query for the attachments of emails, in their order in each; see [`attachment`].
pub(super) fn of_emails(tenant: &TenantStore, emails: &[EmailId]) -> ReadQuery {
    let mut params = params![tenant.id, emails.to_vec()];
    // An attachment has the time bits of its email, so a range of its own ids selects the partitions to read.
    let range = match (tenant.store.dialect(), emails.iter().min(), emails.iter().max()) {
        (Dialect::Postgres, Some(oldest), Some(newest)) => {
            params.extend(params![first_id_of_its_time(oldest.0), last_id_of_its_time(newest.0)]);
            "and id between $3 and $4"
        }
        _ => "",
    };
    let sql = format!(
        "select {COLUMNS} from attachments where tenant_id = $1 and {} {range} order by email_id, position",
        any(tenant.store.dialect(), "email_id", 2)
    );
    (sql, params)
}

const COLUMNS: &str = "email_id, id, filename, content_type, size_bytes, sha256, is_inline, content_id, status,
    sniffed_type, md5, message";

impl TenantStore {
    /// Finds an attachment, with the email that it belongs to.
    pub async fn find_attachment(&self, id: AttachmentId) -> Result<Option<(EmailId, Attachment)>, StoreError> {
        let sql = format!("select {COLUMNS} from attachments where tenant_id = $1 and id = $2");
        self.query_one(sql, params![self.id, id]).await?.as_ref().map(attachment).transpose()
    }
}

/// The bits of an id after its 48 bits of time.
const AFTER_TIME_BITS: u128 = (1 << 80) - 1;

fn first_id_of_its_time(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128() & !AFTER_TIME_BITS)
}

fn last_id_of_its_time(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128() | AFTER_TIME_BITS)
}

/// Reads an attachment, with the email that it belongs to.
pub(super) fn attachment(row: &Row) -> Result<(EmailId, Attachment), StoreError> {
    let attachment = Attachment {
        id: row.get(1)?,
        filename: row.get(2)?,
        content_type: row.get(3)?,
        size_bytes: row.get(4)?,
        sha256: row.get(5)?,
        inline: row.get(6)?,
        content_id: row.get(7)?,
        status: row.get(8)?,
        sniffed_type: row.get(9)?,
        md5: row.get(10)?,
        message: row.get(11)?,
    };
    Ok((row.get(0)?, attachment))
}
