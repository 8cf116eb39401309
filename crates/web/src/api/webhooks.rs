//! Webhooks: URLs to which the events of a tenant are delivered.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{MailboxId, Secret, WebhookId, WebhookState};
use engine::delivery::webhooks::{self, WebhookError, WebhookRequest};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::TenantStore;
use store::sql::webhooks::Webhook;
use utoipa::ToSchema;

use super::auth::{TenantReader, TenantWriter};
use super::body::{non_null, nullable};
use super::change::{AuditAction, ChangeRequest, Reply, etag};
use super::event_types::EventTypeSchema;
use super::page::{Page, PageParams};
use super::problem::Problem;
use super::{Path, Query};
use crate::App;

/// A URL to which events are delivered. Its signing secret is never shown.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub struct WebhookView {
    #[schema(value_type = String, format = "uuid")]
    id: WebhookId,
    #[schema(example = "https://crm.acme.example/mailroom")]
    url: String,
    description: String,
    /// Event types to deliver; empty for all.
    #[schema(example = json!(["email.received"]))]
    types: Vec<String>,
    /// Only events of this mailbox.
    #[schema(value_type = Option<String>, format = "uuid")]
    mailbox_id: Option<MailboxId>,
    /// Include events of mail that existed before its mailbox was connected.
    with_backfill: bool,
    /// `active`, `paused` or `disabled`.
    #[schema(example = "active")]
    state: &'static str,
    state_reason: Option<String>,
    /// Since when all deliveries have failed; `failures` counts them, `last_error` is the last error.
    #[schema(value_type = Option<String>, format = DateTime)]
    failing_since: Option<Timestamp>,
    failures: u64,
    last_error: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl From<Webhook> for WebhookView {
    fn from(webhook: Webhook) -> Self {
        Self {
            id: webhook.id,
            url: webhook.url,
            description: webhook.description,
            types: webhook.types,
            mailbox_id: webhook.mailbox_id,
            with_backfill: webhook.with_backfill,
            state: webhook.state.as_str(),
            state_reason: webhook.state_reason,
            failing_since: webhook.failing_since,
            failures: webhook.failures,
            last_error: webhook.last_error,
            created_at: webhook.created_at,
            updated_at: webhook.updated_at,
        }
    }
}

impl WebhookView {
    /// Renders the webhook for the audit log.
    fn audit_json(&self) -> Result<Option<serde_json::Value>, Problem> {
        Ok(Some(serde_json::to_value(self).map_err(anyhow::Error::from)?))
    }
}

/// List the webhooks of the tenant.
#[utoipa::path(get, path = "/v1/webhooks", operation_id = "list_webhooks", tag = "webhooks", params(PageParams), responses(
    (status = 200, description = "Webhooks of the tenant", body = Page<WebhookView>)))]
pub async fn list(
    TenantReader(store): TenantReader,
    Query(paging): Query<PageParams>,
) -> Result<Json<Page<WebhookView>>, Problem> {
    let limit = paging.limit()?;
    let webhooks = store.list_webhooks_after(paging.after()?, limit + 1).await?;
    Ok(Json(Page::cut(webhooks, limit, |webhook| webhook.id).map(WebhookView::from)))
}

/// Get a webhook.
#[utoipa::path(get, path = "/v1/webhooks/{id}", operation_id = "get_webhook", tag = "webhooks", params(("id" = String, Path)), responses(
    (status = 200, description = "The webhook", body = WebhookView, headers(("ETag" = String)))))]
pub async fn get(TenantReader(store): TenantReader, Path(id): Path<WebhookId>) -> Result<Response, Problem> {
    let webhook = find(&store, id).await?;
    let tag = [(header::ETAG, etag(webhook.version))];
    Ok((tag, Json(WebhookView::from(webhook))).into_response())
}

pub async fn find(store: &TenantStore, id: WebhookId) -> Result<Webhook, Problem> {
    store.find_webhook(id).await?.ok_or_else(|| Problem::not_found("webhook"))
}

/// Webhook to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// An https:// URL of a public host, unless the operator has allowed other networks.
    #[schema(example = "https://crm.acme.example/mailroom")]
    url: String,
    #[serde(default)]
    #[schema(max_length = 1000)]
    description: String,
    /// Event types to deliver; empty for all.
    #[serde(default)]
    #[schema(value_type = Vec<EventTypeSchema>, example = json!(["email.received"]))]
    types: Vec<String>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(value_type = Option<String>, format = "uuid", nullable = false)]
    mailbox_id: Option<MailboxId>,
    #[serde(default)]
    with_backfill: bool,
    /// Signing secret: `whsec_` and 24 to 64 bytes in Base64. Default: a random one.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false, format = Password)]
    secret: Option<String>,
}

/// A webhook and its signing secret, which is shown only in this response.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookWithSecret {
    webhook: WebhookView,
    /// Signing secret, with which the receiver verifies deliveries; store it safely.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: String,
}

impl From<WebhookError> for Problem {
    fn from(refused: WebhookError) -> Self {
        match refused {
            WebhookError::Invalid { field, why } => Self::invalid(field, why),
            WebhookError::Vault(e) => anyhow::Error::from(e).into(),
            WebhookError::Other(e) => e.into(),
        }
    }
}

async fn check(store: &TenantStore, description: &str, mailbox: Option<MailboxId>) -> Result<(), Problem> {
    if description.chars().count() > 1000 || description.contains('\0') {
        return Err(Problem::invalid("description", "must have at most 1000 characters"));
    }
    if let Some(mailbox) = mailbox
        && store.find_mailbox(&mailbox.to_string()).await?.is_none()
    {
        return Err(Problem::invalid("mailbox_id", "must be the id of a mailbox of this tenant"));
    }
    Ok(())
}

/// Create a webhook for events from now on.
///
/// Its signing secret is shown only in this response.
#[utoipa::path(post, path = "/v1/webhooks", operation_id = "create_webhook", tag = "webhooks",
    params(super::IdempotencyKey), request_body = NewWebhook, responses(
    (status = 201, description = "The webhook was created", body = WebhookWithSecret, headers(("Location" = String)))))]
pub async fn create(
    State(app): State<App>,
    change: ChangeRequest<TenantWriter, NewWebhook>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    let NewWebhook { url, description, types, mailbox_id, with_backfill, secret } = &change.body;
    check(store, description, *mailbox_id).await?;
    let wanted = WebhookRequest {
        url: url.clone(),
        description: description.clone(),
        types: types.clone(),
        mailbox_id: *mailbox_id,
        with_backfill: *with_backfill,
        secret: secret.clone().map(Secret::new),
    };
    let drafted = webhooks::draft(&app.engine, &app.webhook_policy, store.id, wanted).await?;
    let id = drafted.webhook.id;
    let view = WebhookView {
        id,
        url: drafted.webhook.url.clone(),
        description: description.clone(),
        types: types.clone(),
        mailbox_id: *mailbox_id,
        with_backfill: *with_backfill,
        state: WebhookState::Active.as_str(),
        state_reason: None,
        failing_since: None,
        failures: 0,
        last_error: None,
        created_at: change.now,
        updated_at: change.now,
    };
    let action = AuditAction {
        tenant: store.id,
        action: "webhook.create",
        target: id.to_string(),
        before: None,
        after: view.audit_json()?,
    };
    let answer = WebhookWithSecret { webhook: view, secret: drafted.secret.expose().clone() };
    let reply = Reply::created(format!("/v1/webhooks/{id}"), &answer)?.with_secret();
    let recording = change.record(&app, action, reply).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    drafted.add_to(&mut unit);
    unit.commit().await?;
    recording.finish().await
}

/// Changes to a webhook. Absent fields stay as they are.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookChange {
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    url: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false, max_length = 1000)]
    description: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(value_type = Option<Vec<EventTypeSchema>>, nullable = false)]
    types: Option<Vec<String>>,
    /// Null for all mailboxes.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, format = "uuid")]
    mailbox_id: Option<Option<MailboxId>>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    with_backfill: Option<bool>,
    /// `active` also enables a disabled webhook, and resets its failures.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    state: Option<WebhookStateChange>,
}

/// New state of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebhookStateChange {
    Active,
    /// Events wait until the webhook is active again.
    Paused,
}

/// Change a webhook.
#[utoipa::path(patch, path = "/v1/webhooks/{id}", operation_id = "change_webhook", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), request_body = WebhookChange, responses(
    (status = 200, description = "The webhook after the change", body = WebhookView, headers(("ETag" = String)))))]
pub async fn change(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: ChangeRequest<TenantWriter, WebhookChange>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    let before = find(store, id).await?;
    change.expect_version(before.version)?;
    let WebhookChange { url, description, types, mailbox_id, with_backfill, state } = &change.body;
    let mut wanted = before.clone();
    if let Some(url) = url {
        webhooks::url::check(url, &app.webhook_policy).map_err(|why| Problem::invalid("url", why))?;
        wanted.url.clone_from(url);
    }
    if let Some(types) = types {
        webhooks::check_types(types)?;
        wanted.types.clone_from(types);
    }
    wanted.description = description.clone().unwrap_or(wanted.description);
    wanted.mailbox_id = mailbox_id.unwrap_or(wanted.mailbox_id);
    wanted.with_backfill = with_backfill.unwrap_or(wanted.with_backfill);
    if let Some(state) = state {
        (wanted.state, wanted.state_reason) = match state {
            WebhookStateChange::Active => (WebhookState::Active, None),
            WebhookStateChange::Paused => (WebhookState::Paused, Some("paused through the API".to_owned())),
        };
    }
    check(store, &wanted.description, wanted.mailbox_id.filter(|_| mailbox_id.is_some())).await?;
    let mut after = Webhook { version: before.version + 1, updated_at: change.now, ..wanted.clone() };
    if wanted.url != before.url || wanted.state != before.state {
        after = Webhook { failing_since: None, failures: 0, last_error: None, rest_until: None, ..after };
    }
    let version = after.version;
    let (before, after) = (WebhookView::from(before), WebhookView::from(after));
    let action = AuditAction {
        tenant: store.id,
        action: "webhook.change",
        target: id.to_string(),
        before: before.audit_json()?,
        after: after.audit_json()?,
    };
    let reply = Reply::json(StatusCode::OK, &after)?.with_etag(version);
    let recording = change.record(&app, action, reply).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    unit.change_webhook(&wanted);
    unit.commit().await?;
    recording.finish().await
}

/// Delete a webhook.
#[utoipa::path(delete, path = "/v1/webhooks/{id}", operation_id = "delete_webhook", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), responses(
    (status = 204, description = "The webhook was deleted")))]
pub async fn delete(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    let webhook = find(store, id).await?;
    change.expect_version(webhook.version)?;
    let before = WebhookView::from(webhook.clone()).audit_json()?;
    let action =
        AuditAction { tenant: store.id, action: "webhook.delete", target: id.to_string(), before, after: None };
    let recording = change.record(&app, action, Reply::no_content()).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    unit.remove_webhook(&webhook);
    unit.commit().await?;
    recording.finish().await
}

/// New signing secret of a webhook.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRotation {
    /// New signing secret. Default: a random one.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false, format = Password)]
    secret: Option<String>,
    /// How long deliveries are also signed with the old secret, so that the receiver can change over.
    #[serde(default = "default_keep_old_seconds")]
    #[schema(default = 86_400, maximum = 2_592_000)]
    keep_old_seconds: u64,
}

fn default_keep_old_seconds() -> u64 {
    86_400
}

/// Rotate the signing secret of a webhook.
///
/// The new secret is shown only in this response.
#[utoipa::path(post, path = "/v1/webhooks/{id}/rotate", operation_id = "rotate_webhook", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey), request_body = SecretRotation, responses(
    (status = 200, description = "The new secret; the old one is valid for `keep_old_seconds` more", body = WebhookWithSecret)))]
pub async fn rotate(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: ChangeRequest<TenantWriter, SecretRotation>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    let webhook = find(store, id).await?;
    if change.body.keep_old_seconds > 30 * 86_400 {
        return Err(Problem::invalid("keep_old_seconds", "must be at most 2592000 seconds (30 days)"));
    }
    let keep_old_for = Duration::from_secs(change.body.keep_old_seconds);
    let secret = change.body.secret.clone().map(Secret::new);
    let rotated = webhooks::rotate(&app.engine, store.id, &webhook, secret, keep_old_for).await?;
    let after = Webhook { version: webhook.version + 1, updated_at: change.now, ..rotated.webhook.clone() };
    let answer = WebhookWithSecret { webhook: after.into(), secret: rotated.secret.expose().clone() };
    let action =
        AuditAction { tenant: store.id, action: "webhook.rotate", target: id.to_string(), before: None, after: None };
    let recording = change.record(&app, action, Reply::json(StatusCode::OK, &answer)?.with_secret()).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    rotated.add_to(&mut unit);
    unit.commit().await?;
    recording.finish().await
}
