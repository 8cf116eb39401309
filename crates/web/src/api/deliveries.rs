//! What became of events on their way to a webhook.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::{DeliveryId, DeliveryState, WebhookId, WebhookState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::TenantStore;
use store::sql::webhook_deliveries::{Delivery, Resent};
use store::sql::webhooks::Webhook;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Reader, Writer};
use super::change::{Change, Told, What};
use super::page::{self, Page};
use super::problem::Problem;
use super::webhooks::find;
use super::{Path, Query};
use crate::App;

/// One event for one webhook, however often it was tried.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub struct DeliveryView {
    /// What the receiver sees as `webhook-id`, the same at each try.
    #[schema(value_type = String, format = "uuid")]
    id: DeliveryId,
    #[schema(value_type = String, format = "uuid")]
    webhook_id: WebhookId,
    /// The number of the event; null: a ping.
    event_seq: Option<u64>,
    #[serde(rename = "type")]
    #[schema(example = "email.received")]
    kind: String,
    /// waiting, delivered or failed.
    #[schema(example = "delivered")]
    state: &'static str,
    attempts: u64,
    /// When it is tried again.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_at: Option<Timestamp>,
    /// What the receiver answered.
    last_status: Option<u64>,
    /// The beginning of it, or what went wrong.
    last_answer: Option<String>,
    last_millis: Option<u64>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<Delivery> for DeliveryView {
    fn from(delivery: Delivery) -> Self {
        Self {
            id: delivery.id,
            webhook_id: delivery.webhook_id,
            event_seq: delivery.event_seq,
            kind: delivery.kind,
            state: delivery.state.as_str(),
            attempts: delivery.attempts,
            next_at: delivery.next_at,
            last_at: delivery.last_at,
            last_status: delivery.last_status,
            last_answer: delivery.last_answer,
            last_millis: delivery.last_millis,
            created_at: delivery.created_at,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WantedDeliveries {
    /// Only in this state: waiting, delivered or failed.
    #[param(example = "failed")]
    state: Option<String>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// What the page before gave as `next_cursor`.
    #[param(value_type = Option<String>, format = "uuid")]
    cursor: Option<DeliveryId>,
}

/// What became of events on their way to a webhook, the newest first.
#[utoipa::path(get, path = "/v1/webhooks/{id}/deliveries", operation_id = "list_deliveries", tag = "webhooks",
    params(("id" = String, Path), WantedDeliveries), responses(
    (status = 200, description = "What was asked for", body = Page<DeliveryView>)))]
pub async fn list(
    Reader(store): Reader,
    Path(id): Path<WebhookId>,
    Query(wanted): Query<WantedDeliveries>,
) -> Result<Json<Page<DeliveryView>>, Problem> {
    find(&store, id).await?;
    let state = wanted.state.as_deref().map(|state| {
        DeliveryState::parse(state).ok_or_else(|| Problem::invalid("state", "it is waiting, delivered or failed"))
    });
    let limit = page::limit(wanted.limit)?;
    let deliveries = store.list_deliveries(id, state.transpose()?, wanted.cursor, limit + 1).await?;
    Ok(Json(Page::cut(deliveries, limit, |delivery| delivery.id).map(DeliveryView::from)))
}

/// One delivery.
#[utoipa::path(get, path = "/v1/webhooks/{id}/deliveries/{delivery}", operation_id = "get_delivery", tag = "webhooks",
    params(("id" = String, Path), ("delivery" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = DeliveryView)))]
pub async fn get(
    Reader(store): Reader,
    Path((webhook, id)): Path<(WebhookId, DeliveryId)>,
) -> Result<Json<DeliveryView>, Problem> {
    Ok(Json(find_delivery(&store, webhook, id).await?.into()))
}

async fn find_delivery(store: &TenantStore, webhook: WebhookId, id: DeliveryId) -> Result<Delivery, Problem> {
    find(store, webhook).await?;
    store.find_delivery(webhook, id).await?.ok_or_else(|| Problem::absent("delivery"))
}

fn what(store: &TenantStore, action: &'static str, webhook: WebhookId, after: serde_json::Value) -> What {
    What { tenant: store.id, action, target: webhook.to_string(), before: None, after: Some(after) }
}

/// Nothing is sent to one that is not active.
fn active(webhook: &Webhook) -> Result<(), Problem> {
    match webhook.state {
        WebhookState::Active => Ok(()),
        state => Err(Problem::conflict(format!("this webhook is {}; make it active first", state.as_str()))),
    }
}

/// Send something to a webhook to see whether it comes through. The list of deliveries shows what became of it.
#[utoipa::path(post, path = "/v1/webhooks/{id}/ping", operation_id = "ping_webhook", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "It will be sent")))]
pub async fn ping(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    active(&find(store, id).await?)?;
    let what = what(store, "webhook.ping", id, json!({}));
    let recording = change.record(&app, what, Told::empty(StatusCode::ACCEPTED)).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    unit.ping(id);
    unit.commit().await?;
    recording.done().await
}

/// Deliver something again, under the same id.
#[utoipa::path(post, path = "/v1/webhooks/{id}/deliveries/{delivery}/resend", operation_id = "resend_delivery", tag = "webhooks",
    params(("id" = String, Path), ("delivery" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "It will be sent")))]
pub async fn resend(
    State(app): State<App>,
    Path((webhook, id)): Path<(WebhookId, DeliveryId)>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    find_delivery(store, webhook, id).await?;
    active(&find(store, webhook).await?)?;
    let what = what(store, "webhook.resend", webhook, json!({"delivery": id}));
    let recording = change.record(&app, what, Told::empty(StatusCode::ACCEPTED)).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    unit.resend(webhook, vec![id]);
    unit.commit().await?;
    recording.done().await
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResendSince {
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// Also what came through.
    #[serde(default)]
    delivered_too: bool,
}

/// Deliver again what failed since then, the oldest first and at most 10,000 at once.
#[utoipa::path(post, path = "/v1/webhooks/{id}/resend", operation_id = "resend_since", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey), request_body = ResendSince, responses(
    (status = 202, description = "They will be sent")))]
pub async fn resend_since(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: Change<Writer, ResendSince>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    active(&find(store, id).await?)?;
    let ResendSince { since, delivered_too } = change.body;
    let what = what(store, "webhook.resend", id, json!({"since": since, "delivered_too": delivered_too}));
    let recording = change.record(&app, what, Told::empty(StatusCode::ACCEPTED)).await?;
    let mut unit = recording.engine.store.tenant(store.id).write();
    unit.resend_since(id, since, if delivered_too { Resent::FailedAndDelivered } else { Resent::Failed });
    unit.commit().await?;
    recording.done().await
}
