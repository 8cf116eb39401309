//! Attachments and their content.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use domain::{AttachmentId, EmailId};
use serde::Serialize;
use store::sql::attachments::Attachment;
use utoipa::ToSchema;

use super::Path;
use super::auth::TenantReader;
use super::download::{Download, send};
use super::problem::Problem;
use super::signed_urls::AttachmentAccess;
use crate::App;

/// An attachment of an email.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attachment)]
pub struct AttachmentView {
    #[schema(value_type = String, format = "uuid")]
    id: AttachmentId,
    filename: Option<String>,
    /// Type declared by the sender.
    #[schema(example = "application/pdf")]
    content_type: String,
    /// Type detected from the content.
    sniffed_type: Option<String>,
    size_bytes: u64,
    /// SHA-256 of the decoded bytes, in hexadecimal digits.
    sha256: Option<String>,
    md5: Option<String>,
    inline: bool,
    content_id: Option<String>,
    #[schema(example = "stored")]
    status: &'static str,
    /// For an attached message: its subject, sender, time and id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    message: Option<serde_json::Value>,
}

impl From<Attachment> for AttachmentView {
    fn from(attachment: Attachment) -> Self {
        Self {
            id: attachment.id,
            filename: attachment.filename,
            content_type: attachment.content_type,
            sniffed_type: attachment.sniffed_type,
            size_bytes: attachment.size_bytes,
            sha256: attachment.sha256.map(|sha256| sha256.hex()),
            md5: attachment.md5,
            inline: attachment.inline,
            content_id: attachment.content_id,
            status: attachment.status.as_str(),
            message: attachment.message,
        }
    }
}

/// An attachment with the id of its email.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttachmentOfEmail {
    #[schema(value_type = String, format = "uuid")]
    email_id: EmailId,
    #[serde(flatten)]
    attachment: AttachmentView,
}

/// Get an attachment.
#[utoipa::path(get, path = "/v1/attachments/{id}", operation_id = "get_attachment", tag = "attachments", params(("id" = String, Path)), responses(
    (status = 200, description = "The attachment", body = AttachmentOfEmail)))]
pub async fn get(
    TenantReader(store): TenantReader,
    Path(id): Path<AttachmentId>,
) -> Result<Json<AttachmentOfEmail>, Problem> {
    let (email_id, attachment) = store.find_attachment(id).await?.ok_or_else(|| Problem::not_found("attachment"))?;
    Ok(Json(AttachmentOfEmail { email_id, attachment: attachment.into() }))
}

/// Download the decoded bytes of an attachment.
///
/// Requires a key, or a URL from `GET /v1/attachments/{id}/url`, which needs none.
#[utoipa::path(get, path = "/v1/attachments/{id}/content", operation_id = "get_attachment_content", tag = "attachments", params(("id" = String, Path)), responses(
    (status = 200, body = super::download::Binary, content_type = "*/*", description = "The decoded bytes, with the detected type"),
    (status = 206, body = super::download::Binary, content_type = "*/*", description = "The requested range"),
    (status = 304, description = "Not modified: `If-None-Match` matches"),
    (status = 416, body = Problem, content_type = "application/problem+json", description = "The range is beyond the end")))]
pub async fn content(
    AttachmentAccess(store): AttachmentAccess,
    State(app): State<App>,
    Path(id): Path<AttachmentId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (_, attachment) = store.find_attachment(id).await?.ok_or_else(|| Problem::not_found("attachment"))?;
    let place = match attachment.sha256 {
        Some(sha256) => store.find_blob(sha256).await?,
        None => None,
    };
    let content_type = attachment.sniffed_type.unwrap_or_else(|| "application/octet-stream".to_owned());
    send(&app.engine, &store, Download { place, content_type, filename: attachment.filename }, &headers).await
}
