//! Reading attachments.

use domain::{AttachmentId, AttachmentStatus, EmailId, Sha256};
use serde::Serialize;

use super::any;
use crate::{Row, StoreError, TenantStore, Value, params};

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

/// With the email that each belongs to, in the order they stand in it.
pub(super) async fn of_emails(tenant: &TenantStore, ids: Value) -> Result<Vec<(EmailId, Attachment)>, StoreError> {
    let sql = format!(
        "select email_id, id, filename, content_type, size_bytes, sha256, is_inline, content_id, status, sniffed_type, md5,
                message
         from attachments where tenant_id = $1 and {} order by email_id, position",
        any(tenant.store.dialect(), "email_id", 2)
    );
    let rows = tenant.query(sql, params![tenant.id, ids]).await?;
    rows.iter().map(|row| Ok((row.get(0)?, attachment(row)?))).collect()
}

fn attachment(row: &Row) -> Result<Attachment, StoreError> {
    Ok(Attachment {
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
    })
}
