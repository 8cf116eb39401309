//! Where a tenant wants to be told of events.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{MailboxId, Secret, WebhookId, WebhookState};
use engine::webhooks::{self, Refused, Wanted};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::TenantStore;
use store::sql::webhooks::Webhook;
use utoipa::ToSchema;

use super::auth::{Reader, Writer};
use super::body::{given, given_or_null};
use super::change::{Change, Told, What, etag};
use super::page::{Page, Paging};
use super::problem::Problem;
use super::{Path, Query};
use crate::App;

/// A place to which events are sent. What signs them is nowhere in here.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub struct WebhookView {
    #[schema(value_type = String, format = "uuid")]
    id: WebhookId,
    #[schema(example = "https://crm.acme.example/mailroom")]
    url: String,
    description: String,
    /// Names of events; none: all.
    #[schema(example = json!(["email.received"]))]
    types: Vec<String>,
    /// Only about this mailbox.
    #[schema(value_type = Option<String>, format = "uuid")]
    mailbox_id: Option<MailboxId>,
    /// Also about mail that was there before its mailbox was connected.
    with_backfill: bool,
    /// active, paused, or disabled.
    #[schema(example = "active")]
    state: &'static str,
    state_reason: Option<String>,
    /// Since when nothing has come through, how often in a row, and why the last time.
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
    /// For the audit.
    fn told(&self) -> Result<Option<serde_json::Value>, Problem> {
        Ok(Some(serde_json::to_value(self).map_err(anyhow::Error::from)?))
    }
}

/// All webhooks of the tenant.
#[utoipa::path(get, path = "/v1/webhooks", operation_id = "list_webhooks", tag = "webhooks", params(Paging), responses(
    (status = 200, description = "What was asked for", body = Page<WebhookView>)))]
pub async fn list(Reader(store): Reader, Query(paging): Query<Paging>) -> Result<Json<Page<WebhookView>>, Problem> {
    let limit = paging.limit()?;
    let webhooks = store.list_webhooks_after(paging.after()?, limit + 1).await?;
    Ok(Json(Page::cut(webhooks, limit, |webhook| webhook.id).map(WebhookView::from)))
}

/// One webhook.
#[utoipa::path(get, path = "/v1/webhooks/{id}", operation_id = "get_webhook", tag = "webhooks", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = WebhookView, headers(("ETag" = String)))))]
pub async fn get(Reader(store): Reader, Path(id): Path<WebhookId>) -> Result<Response, Problem> {
    let webhook = find(&store, id).await?;
    let tag = [(header::ETAG, etag(webhook.version))];
    Ok((tag, Json(WebhookView::from(webhook))).into_response())
}

pub async fn find(store: &TenantStore, id: WebhookId) -> Result<Webhook, Problem> {
    store.find_webhook(id).await?.ok_or_else(|| Problem::absent("webhook"))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Somewhere on the open internet, with https, unless the operator has opened another network.
    #[schema(example = "https://crm.acme.example/mailroom")]
    url: String,
    #[serde(default)]
    #[schema(max_length = 1000)]
    description: String,
    /// Names of events; none: all.
    #[serde(default)]
    #[schema(example = json!(["email.received"]))]
    types: Vec<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "uuid", nullable = false)]
    mailbox_id: Option<MailboxId>,
    #[serde(default)]
    with_backfill: bool,
    /// What signs, if you have one: `whsec_` and 24 to 64 bytes in Base64. Left out: one is made.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, format = Password)]
    secret: Option<String>,
}

/// A webhook, and the secret that signs, which is shown only now.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookWithSecret {
    webhook: WebhookView,
    /// Keep it somewhere safe; with it the receiver checks that it is Mailroom who sends.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: String,
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid { field, why } => Self::invalid(field, why),
            Refused::Vault(e) => anyhow::Error::from(e).into(),
            Refused::Other(e) => e.into(),
        }
    }
}

async fn check(store: &TenantStore, description: &str, mailbox: Option<MailboxId>) -> Result<(), Problem> {
    if description.chars().count() > 1000 || description.contains('\0') {
        return Err(Problem::invalid("description", "it is at most 1000 characters"));
    }
    if let Some(mailbox) = mailbox
        && store.find_mailbox(&mailbox.to_string()).await?.is_none()
    {
        return Err(Problem::invalid("mailbox_id", "there is no such mailbox"));
    }
    Ok(())
}

/// Make a webhook: what happens from now on is sent there. The secret that signs is shown only in this answer.
#[utoipa::path(post, path = "/v1/webhooks", operation_id = "create_webhook", tag = "webhooks",
    params(super::IdempotencyKey), request_body = NewWebhook, responses(
    (status = 201, description = "It is there", body = WebhookWithSecret, headers(("Location" = String)))))]
pub async fn create(State(app): State<App>, change: Change<Writer, NewWebhook>) -> Result<Response, Problem> {
    let store = &change.by.store;
    let NewWebhook { url, description, types, mailbox_id, with_backfill, secret } = &change.body;
    check(store, description, *mailbox_id).await?;
    let wanted = Wanted {
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
    let what =
        What { tenant: store.id, action: "webhook.create", target: id.to_string(), before: None, after: view.told()? };
    let answer = WebhookWithSecret { webhook: view, secret: drafted.secret.expose().clone() };
    let told = Told::created(format!("/v1/webhooks/{id}"), &answer)?.with_secret();
    let recording = change.record(&app, what, told).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    drafted.add_to(&mut unit);
    unit.commit().await?;
    recording.done().await
}

/// What is left out stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookChange {
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    url: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, max_length = 1000)]
    description: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    types: Option<Vec<String>>,
    /// Null: about all mailboxes.
    #[serde(default, deserialize_with = "given_or_null")]
    #[schema(value_type = Option<String>, format = "uuid")]
    mailbox_id: Option<Option<MailboxId>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    with_backfill: Option<bool>,
    /// One that was disabled is active again by this, and as if nothing had ever failed.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    state: Option<WantedState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WantedState {
    Active,
    /// Events wait until it is active again.
    Paused,
}

/// Change a webhook.
#[utoipa::path(patch, path = "/v1/webhooks/{id}", operation_id = "change_webhook", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), request_body = WebhookChange, responses(
    (status = 200, description = "As it is now", body = WebhookView, headers(("ETag" = String)))))]
pub async fn change(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: Change<Writer, WebhookChange>,
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
            WantedState::Active => (WebhookState::Active, None),
            WantedState::Paused => (WebhookState::Paused, Some("paused by somebody".to_owned())),
        };
    }
    check(store, &wanted.description, wanted.mailbox_id.filter(|_| mailbox_id.is_some())).await?;
    let mut after = Webhook { version: before.version + 1, updated_at: change.now, ..wanted.clone() };
    if wanted.url != before.url || wanted.state != before.state {
        after = Webhook { failing_since: None, failures: 0, last_error: None, rest_until: None, ..after };
    }
    let version = after.version;
    let (before, after) = (WebhookView::from(before), WebhookView::from(after));
    let what = What {
        tenant: store.id,
        action: "webhook.change",
        target: id.to_string(),
        before: before.told()?,
        after: after.told()?,
    };
    let told = Told::json(StatusCode::OK, &after)?.with_etag(version);
    let recording = change.record(&app, what, told).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    unit.change_webhook(&wanted);
    unit.commit().await?;
    recording.done().await
}

/// Remove a webhook: nothing is sent there any more.
#[utoipa::path(delete, path = "/v1/webhooks/{id}", operation_id = "delete_webhook", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), responses(
    (status = 204, description = "It is gone")))]
pub async fn delete(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    let webhook = find(store, id).await?;
    change.expect_version(webhook.version)?;
    let before = WebhookView::from(webhook.clone()).told()?;
    let what = What { tenant: store.id, action: "webhook.delete", target: id.to_string(), before, after: None };
    let recording = change.record(&app, what, Told::done()).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    unit.remove_webhook(&webhook);
    unit.commit().await?;
    recording.done().await
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// The new secret, if you have one. Left out: one is made.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, format = Password)]
    secret: Option<String>,
    /// For how long the old one signs, too, so that the receiver can learn the new one in between.
    #[serde(default = "one_day")]
    #[schema(default = 86_400, maximum = 2_592_000)]
    keep_old_seconds: u64,
}

fn one_day() -> u64 {
    86_400
}

/// Sign with another secret from now on. It is shown only in this answer.
#[utoipa::path(post, path = "/v1/webhooks/{id}/rotate", operation_id = "rotate_webhook", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey), request_body = Rotation, responses(
    (status = 200, description = "Both sign now", body = WebhookWithSecret)))]
pub async fn rotate(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: Change<Writer, Rotation>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    let webhook = find(store, id).await?;
    if change.body.keep_old_seconds > 30 * 86_400 {
        return Err(Problem::invalid("keep_old_seconds", "it is at most 2592000"));
    }
    let keep_old_for = Duration::from_secs(change.body.keep_old_seconds);
    let secret = change.body.secret.clone().map(Secret::new);
    let rotated = webhooks::rotate(&app.engine, store.id, &webhook, secret, keep_old_for).await?;
    let after = Webhook { version: webhook.version + 1, updated_at: change.now, ..rotated.webhook.clone() };
    let answer = WebhookWithSecret { webhook: after.into(), secret: rotated.secret.expose().clone() };
    let what = What { tenant: store.id, action: "webhook.rotate", target: id.to_string(), before: None, after: None };
    let recording = change.record(&app, what, Told::json(StatusCode::OK, &answer)?.with_secret()).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    rotated.add_to(&mut unit);
    unit.commit().await?;
    recording.done().await
}
