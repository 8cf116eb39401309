//! Emails: search, details, original bytes, deletion and its undoing.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use domain::search::SearchOrder;
use domain::{Address, EmailId, MailboxId};
use engine::archive::search::{SearchHit, SearchRequest};
use engine::operations::emails as operations;
use serde::{Deserialize, Serialize};
use store::sql::emails::Email;
use utoipa::{IntoParams, ToSchema};

use super::attachments::AttachmentView;
use super::auth::{TenantReader, TenantWriter};
use super::change::{ChangeRequest, Reply};
use super::download::{Download, send};
use super::page::{self, Page};
use super::problem::Problem;
use super::{Path, Query};
use crate::App;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EmailQuery {
    /// Search query, such as `from:ann "past due" has:attachment -draft`. An empty query matches all emails that are not deleted; `is:deleted` matches those that are.
    #[param(example = "subject:invoice")]
    q: Option<String>,
    /// Only emails of this mailbox.
    #[param(value_type = Option<String>, format = "uuid")]
    mailbox: Option<MailboxId>,
    /// Only emails in the folder of this name.
    folder: Option<String>,
    /// Only emails received at or after this time: a year, month, day or instant.
    #[param(example = "2026-01")]
    after: Option<String>,
    /// Only emails received before this time.
    before: Option<String>,
    /// Also emails that are deleted.
    #[param(default = false)]
    include_deleted: Option<bool>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl EmailQuery {
    /// Joins all parameters into one search query.
    fn text(&self) -> Result<String, Problem> {
        let mut text = self.q.clone().unwrap_or_default();
        if let Some(folder) = &self.folder {
            if folder.is_empty() || folder.contains('"') {
                return Err(Problem::invalid("folder", "must be the name of a folder"));
            }
            text += &format!(" label:\"{folder}\"");
        }
        for (field, value) in [("after", &self.after), ("before", &self.before)] {
            let Some(value) = value else { continue };
            let term = format!("{field}:{value}");
            let is_time = !value.contains(|c: char| c.is_whitespace() || c == '"');
            if !is_time || content::query::parse(&term).is_err() {
                return Err(Problem::invalid(field, "must be a year, month, day or instant, such as 2026-01-31"));
            }
            text += &format!(" {term}");
        }
        Ok(text)
    }
}

/// Summary of an email, for lists.
#[derive(Debug, Serialize, ToSchema)]
pub struct EmailSummary {
    #[schema(value_type = String, format = "uuid")]
    id: EmailId,
    #[schema(value_type = String, format = "uuid")]
    mailbox_id: MailboxId,
    subject: Option<String>,
    from: Option<Correspondent>,
    #[schema(value_type = String, format = DateTime)]
    received_at: jiff::Timestamp,
    folders: Vec<String>,
    flags: Vec<String>,
    size_bytes: u64,
    has_attachments: bool,
    #[schema(value_type = Option<String>, format = DateTime)]
    deleted_at: Option<jiff::Timestamp>,
    /// Excerpt around the first match, which is enclosed in `**`.
    snippet: String,
}

/// Sender or recipient of an email.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Person)]
pub struct Correspondent {
    name: Option<String>,
    #[schema(example = "ann@acme.test")]
    address: String,
}

impl From<Address> for Correspondent {
    fn from(address: Address) -> Self {
        Self { name: address.name, address: address.address }
    }
}

fn correspondents(addresses: Vec<Address>) -> Vec<Correspondent> {
    addresses.into_iter().map(Correspondent::from).collect()
}

impl From<SearchHit> for EmailSummary {
    fn from(SearchHit { email, snippet }: SearchHit) -> Self {
        Self {
            id: email.id,
            mailbox_id: email.mailbox_id,
            subject: email.subject,
            from: email.from.map(Correspondent::from),
            received_at: email.received_at,
            folders: email.folders,
            flags: email.flags,
            size_bytes: email.size_bytes,
            has_attachments: email.has_attachments,
            deleted_at: email.deleted_at,
            snippet,
        }
    }
}

/// Search emails, newest first.
#[utoipa::path(get, path = "/v1/emails", operation_id = "search_emails", tag = "emails", params(EmailQuery), responses(
    (status = 200, description = "Matching emails", body = Page<EmailSummary>)))]
pub async fn list(
    TenantReader(store): TenantReader,
    State(app): State<App>,
    Query(query): Query<EmailQuery>,
) -> Result<Json<Page<EmailSummary>>, Problem> {
    let text = query.text()?;
    let search = SearchRequest {
        mailbox: query.mailbox,
        includes_deleted: query.include_deleted.unwrap_or(false),
        limit: page::limit(query.limit)?,
        order: SearchOrder::Newest,
        cursor: query.cursor,
        marks: ("**", "**"),
    };
    let found = app.engine.search(&store, &text, &search).await?;
    let items = found.hits.into_iter().map(EmailSummary::from).collect();
    Ok(Json(Page { items, next_cursor: found.next_cursor }))
}

/// An email with all details.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Email)]
pub struct EmailView {
    #[schema(value_type = String, format = "uuid")]
    id: EmailId,
    #[schema(value_type = String, format = "uuid")]
    mailbox_id: MailboxId,
    provider_message_id: String,
    internet_message_id: Option<String>,
    thread_id: Option<String>,
    conversation_id: Option<String>,
    subject: Option<String>,
    from: Option<Correspondent>,
    to: Vec<Correspondent>,
    cc: Vec<Correspondent>,
    bcc: Vec<Correspondent>,
    reply_to: Vec<Correspondent>,
    #[schema(value_type = Option<String>, format = DateTime)]
    sent_at: Option<jiff::Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    received_at: jiff::Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    processed_at: Option<jiff::Timestamp>,
    #[schema(example = "processed")]
    processing_status: &'static str,
    folders: Vec<String>,
    flags: Vec<String>,
    size_bytes: u64,
    /// SHA-256 of the original bytes, in hexadecimal digits.
    sha256: String,
    body_text: Option<String>,
    body_html: Option<String>,
    has_attachments: bool,
    /// Name and value of each header, in order.
    #[schema(value_type = Vec<Vec<String>>)]
    headers: serde_json::Value,
    /// Defects found while parsing the message.
    #[schema(value_type = Vec<String>)]
    defects: serde_json::Value,
    attachments: Vec<AttachmentView>,
    #[schema(value_type = Option<String>, format = DateTime)]
    deleted_at: Option<jiff::Timestamp>,
}

impl From<Email> for EmailView {
    fn from(email: Email) -> Self {
        Self {
            id: email.id,
            mailbox_id: email.mailbox_id,
            provider_message_id: email.provider_message_id,
            internet_message_id: email.internet_message_id,
            thread_id: email.thread_id,
            conversation_id: email.conversation_id,
            subject: email.subject,
            from: email.from.map(Correspondent::from),
            to: correspondents(email.to),
            cc: correspondents(email.cc),
            bcc: correspondents(email.bcc),
            reply_to: correspondents(email.reply_to),
            sent_at: email.sent_at,
            received_at: email.received_at,
            processed_at: email.processed_at,
            processing_status: email.processing_status.as_str(),
            folders: email.folders,
            flags: email.flags,
            size_bytes: email.size_bytes,
            sha256: email.sha256.hex(),
            body_text: email.body_text,
            body_html: email.body_html,
            has_attachments: email.has_attachments,
            headers: email.headers,
            defects: email.defects,
            attachments: email.attachments.into_iter().map(AttachmentView::from).collect(),
            deleted_at: email.deleted_at,
        }
    }
}

/// Get an email.
#[utoipa::path(get, path = "/v1/emails/{id}", operation_id = "get_email", tag = "emails", params(("id" = String, Path)), responses(
    (status = 200, description = "The email", body = EmailView)))]
pub async fn get(TenantReader(store): TenantReader, Path(id): Path<EmailId>) -> Result<Json<EmailView>, Problem> {
    let email = store.find_email(id).await?.ok_or_else(|| Problem::not_found("email"))?;
    Ok(Json(email.into()))
}

/// Download the original bytes of an email.
#[utoipa::path(get, path = "/v1/emails/{id}/raw", operation_id = "get_email_raw", tag = "emails", params(("id" = String, Path)), responses(
    (status = 200, description = "The original message", body = super::download::Binary, content_type = "message/rfc822"),
    (status = 206, body = super::download::Binary, content_type = "message/rfc822", description = "The requested range"),
    (status = 304, description = "Not modified: `If-None-Match` matches"),
    (status = 416, body = Problem, content_type = "application/problem+json", description = "The range is beyond the end")))]
pub async fn raw(
    TenantReader(store): TenantReader,
    State(app): State<App>,
    Path(id): Path<EmailId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let email = store.find_email(id).await?.ok_or_else(|| Problem::not_found("email"))?;
    let place = store.find_blob(email.sha256).await?;
    let name = format!("{id}.eml");
    let download = Download { place, content_type: "message/rfc822".to_owned(), filename: Some(name) };
    send(&app.engine, &store, download, &headers).await
}

/// Delete an email.
///
/// It is hidden from searches that do not ask for deleted emails; the message at its provider is not changed. Refused while the tenant is on legal hold.
#[utoipa::path(delete, path = "/v1/emails/{id}", operation_id = "delete_email", tag = "emails",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The email was deleted")))]
pub async fn delete(
    State(app): State<App>,
    Path(id): Path<EmailId>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    let call = change.invocation(&app, |()| Ok(Reply::no_content()));
    operations::delete(&call, change.by.store.id, id).await?;
    Ok(Reply::no_content().into_response())
}

/// Restore a deleted email.
///
/// It is found by searches again, whoever deleted it: the API or its provider. The message at its provider is not changed.
#[utoipa::path(post, path = "/v1/emails/{id}/restore", operation_id = "restore_email", tag = "emails",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The email is not deleted")))]
pub async fn restore(
    State(app): State<App>,
    Path(id): Path<EmailId>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    let call = change.invocation(&app, |()| Ok(Reply::no_content()));
    operations::restore(&call, change.by.store.id, id).await?;
    Ok(Reply::no_content().into_response())
}
