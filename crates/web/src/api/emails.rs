//! Emails: found, read, and their exact original bytes.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use domain::search::Order;
use domain::{Address, EmailId, MailboxId};
use engine::search::{Hit, Search};
use serde::{Deserialize, Serialize};
use store::StoreError;
use store::sql::discard::NO_SUCH_EMAIL;
use store::sql::emails::Email;
use utoipa::{IntoParams, ToSchema};

use super::attachments::AttachmentView;
use super::auth::{Reader, Writer};
use super::change::{Change, Told, What};
use super::download::{Download, send};
use super::page::{self, Page};
use super::problem::Problem;
use super::{Path, Query};
use crate::App;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// What to search for, in the search language: `from:ann "past due" has:attachment -draft`. All, when it is empty.
    #[param(example = "subject:invoice")]
    q: Option<String>,
    /// Only of this mailbox.
    #[param(value_type = Option<String>, format = "uuid")]
    mailbox: Option<MailboxId>,
    /// Only in the folder of this name.
    folder: Option<String>,
    /// Received from then on: a year, month, day or instant.
    #[param(example = "2026-01")]
    after: Option<String>,
    /// Received before then.
    before: Option<String>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// What the page before gave as `next_cursor`.
    cursor: Option<String>,
}

impl Wanted {
    /// As one would type it.
    fn text(&self) -> Result<String, Problem> {
        let mut text = self.q.clone().unwrap_or_default();
        if let Some(folder) = &self.folder {
            if folder.is_empty() || folder.contains('"') {
                return Err(Problem::invalid("folder", "it is not the name of a folder"));
            }
            text += &format!(" label:\"{folder}\"");
        }
        for (field, value) in [("after", &self.after), ("before", &self.before)] {
            let Some(value) = value else { continue };
            let term = format!("{field}:{value}");
            let is_time = !value.contains(|c: char| c.is_whitespace() || c == '"');
            if !is_time || content::query::parse(&term).is_err() {
                return Err(Problem::invalid(field, "it is a year, month, day or instant, like 2026-01-31"));
            }
            text += &format!(" {term}");
        }
        Ok(text)
    }
}

/// Enough of an email for a line in a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct EmailSummary {
    #[schema(value_type = String, format = "uuid")]
    id: EmailId,
    #[schema(value_type = String, format = "uuid")]
    mailbox_id: MailboxId,
    subject: Option<String>,
    from: Option<Person>,
    #[schema(value_type = String, format = DateTime)]
    received_at: jiff::Timestamp,
    folders: Vec<String>,
    flags: Vec<String>,
    size_bytes: u64,
    has_attachments: bool,
    /// A piece of the text around the first hit, which stands between `**`.
    snippet: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Person {
    name: Option<String>,
    #[schema(example = "ann@acme.test")]
    address: String,
}

impl From<Address> for Person {
    fn from(address: Address) -> Self {
        Self { name: address.name, address: address.address }
    }
}

fn people(addresses: Vec<Address>) -> Vec<Person> {
    addresses.into_iter().map(Person::from).collect()
}

impl From<Hit> for EmailSummary {
    fn from(Hit { email, snippet }: Hit) -> Self {
        Self {
            id: email.id,
            mailbox_id: email.mailbox_id,
            subject: email.subject,
            from: email.from.map(Person::from),
            received_at: email.received_at,
            folders: email.folders,
            flags: email.flags,
            size_bytes: email.size_bytes,
            has_attachments: email.has_attachments,
            snippet,
        }
    }
}

/// Search, or the newest.
#[utoipa::path(get, path = "/v1/emails", operation_id = "search_emails", tag = "emails", params(Wanted), responses(
    (status = 200, description = "What was asked for", body = Page<EmailSummary>)))]
pub async fn list(
    Reader(store): Reader,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<EmailSummary>>, Problem> {
    let text = wanted.text()?;
    let search = Search {
        mailbox: wanted.mailbox,
        limit: page::limit(wanted.limit)?,
        order: Order::Newest,
        cursor: wanted.cursor,
        marks: ("**", "**"),
    };
    let found = app.engine.search(&store, &text, &search).await?;
    let items = found.hits.into_iter().map(EmailSummary::from).collect();
    Ok(Json(Page { items, next_cursor: found.next_cursor }))
}

/// A whole email.
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
    from: Option<Person>,
    to: Vec<Person>,
    cc: Vec<Person>,
    bcc: Vec<Person>,
    reply_to: Vec<Person>,
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
    /// Of the original bytes, in hexadecimal digits.
    sha256: String,
    body_text: Option<String>,
    body_html: Option<String>,
    has_attachments: bool,
    /// Name and value of each, in their order.
    #[schema(value_type = Vec<Vec<String>>)]
    headers: serde_json::Value,
    /// What is wrong with it.
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
            from: email.from.map(Person::from),
            to: people(email.to),
            cc: people(email.cc),
            bcc: people(email.bcc),
            reply_to: people(email.reply_to),
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

/// One email, whole.
#[utoipa::path(get, path = "/v1/emails/{id}", operation_id = "get_email", tag = "emails", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = EmailView)))]
pub async fn get(Reader(store): Reader, Path(id): Path<EmailId>) -> Result<Json<EmailView>, Problem> {
    let email = store.find_email(id).await?.ok_or_else(|| Problem::absent("email"))?;
    Ok(Json(email.into()))
}

/// The exact original bytes of an email.
#[utoipa::path(get, path = "/v1/emails/{id}/raw", operation_id = "get_email_raw", tag = "emails", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = super::download::Binary, content_type = "message/rfc822"),
    (status = 206, body = super::download::Binary, content_type = "message/rfc822", description = "A part of it, by `Range`"),
    (status = 304, description = "It is what `If-None-Match` names"),
    (status = 416, body = Problem, content_type = "application/problem+json", description = "The range is beyond its end")))]
pub async fn raw(
    Reader(store): Reader,
    State(app): State<App>,
    Path(id): Path<EmailId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let email = store.find_email(id).await?.ok_or_else(|| Problem::absent("email"))?;
    let place = store.find_blob(email.sha256).await?;
    let name = format!("{id}.eml");
    let download = Download { place, content_type: "message/rfc822".to_owned(), filename: Some(name) };
    send(&app.engine, &store, download, &headers).await
}

/// Delete an email here: it is found by no search any more, whatever becomes of it at its provider.
#[utoipa::path(delete, path = "/v1/emails/{id}", operation_id = "delete_email", tag = "emails",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "It is deleted")))]
pub async fn delete(
    State(app): State<App>,
    Path(id): Path<EmailId>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    let tenant = change.by.store.id;
    let email = change.by.store.find_email(id).await?.ok_or_else(|| Problem::absent("email"))?;
    let before = Some(serde_json::json!({"mailbox_id": email.mailbox_id, "deleted_at": email.deleted_at}));
    let what = What { tenant, action: "email.delete", target: id.to_string(), before, after: None };
    let recording = change.record(&app, what, Told::done()).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    unit.discard_email(id);
    match unit.commit().await {
        // Deleted before, or gone at its provider.
        Ok(_) | Err(StoreError::Precondition(NO_SUCH_EMAIL)) => recording.done().await,
        Err(e) => Err(e.into()),
    }
}
