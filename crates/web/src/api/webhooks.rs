//! Webhooks: URLs to which the events of a tenant are delivered.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{MailboxId, Secret, WebhookId};
use engine::delivery::webhooks::WebhookRequest;
use engine::operations::webhooks as operations;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::TenantStore;
use store::sql::webhooks::Webhook;
use utoipa::ToSchema;

use super::auth::{TenantReader, TenantWriter};
use super::body::{non_null, nullable};
use super::change::{ChangeRequest, Reply, etag};
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
#[derive(Debug, Clone, Deserialize, ToSchema)]
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

fn show_with_secret(status: StatusCode, shown: &operations::WebhookWithSecret) -> anyhow::Result<Reply> {
    let operations::WebhookWithSecret { webhook, secret } = shown.clone();
    Ok(Reply::json(status, &WebhookWithSecret { webhook: webhook.into(), secret: secret.expose().clone() })?
        .with_secret())
}

fn show_created(created: &operations::WebhookWithSecret) -> anyhow::Result<Reply> {
    let location = format!("/v1/webhooks/{}", created.webhook.id);
    Ok(show_with_secret(StatusCode::CREATED, created)?.with_location(location))
}

fn show_rotated(rotated: &operations::WebhookWithSecret) -> anyhow::Result<Reply> {
    show_with_secret(StatusCode::OK, rotated)
}

fn show(webhook: &Webhook) -> anyhow::Result<Reply> {
    Ok(Reply::json(StatusCode::OK, &WebhookView::from(webhook.clone()))?.with_etag(webhook.version))
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
    let NewWebhook { url, description, types, mailbox_id, with_backfill, secret } = change.body.clone();
    let secret = secret.map(Secret::new);
    let request = WebhookRequest { url, description, types, mailbox_id, with_backfill, secret };
    let call = change.invocation(&app, show_created);
    let created = operations::create(&call, change.by.store.id, &app.webhook_policy, request).await?;
    Ok(show_created(&created)?.into_response())
}

/// Changes to a webhook. Absent fields stay as they are.
#[derive(Debug, Clone, Deserialize, ToSchema)]
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
    let WebhookChange { url, description, types, mailbox_id, with_backfill, state } = change.body.clone();
    let is_paused = state.map(|state| state == WebhookStateChange::Paused);
    let parts = operations::WebhookChange { url, description, types, mailbox_id, with_backfill, is_paused };
    let call = change.invocation(&app, show);
    let changed = operations::change(&call, change.by.store.id, id, &app.webhook_policy, parts).await?;
    Ok(show(&changed)?.into_response())
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
    let call = change.invocation(&app, |()| Ok(Reply::no_content()));
    operations::delete(&call, change.by.store.id, id).await?;
    Ok(Reply::no_content().into_response())
}

/// New signing secret of a webhook.
#[derive(Debug, Clone, Deserialize, ToSchema)]
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
    let SecretRotation { secret, keep_old_seconds } = change.body.clone();
    let keep_old_for = Duration::from_secs(keep_old_seconds);
    let call = change.invocation(&app, show_rotated);
    let rotated = operations::rotate(&call, change.by.store.id, id, secret.map(Secret::new), keep_old_for).await?;
    Ok(show_rotated(&rotated)?.into_response())
}
