//! Deliveries of events to a webhook: their state, test deliveries, and resending.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::{DeliveryId, DeliveryState, WebhookId};
use engine::operations::webhooks as operations;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::TenantStore;
use store::sql::webhook_deliveries::{Delivery, ResendFilter};
use utoipa::{IntoParams, ToSchema};

use super::auth::{TenantReader, TenantWriter};
use super::change::{ChangeRequest, Reply};
use super::page::{self, Page};
use super::problem::Problem;
use super::webhooks::find;
use super::{Path, Query};
use crate::App;

/// Delivery of one event to one webhook, with all its attempts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub struct DeliveryView {
    /// Sent to the receiver as `webhook-id`; the same for each attempt.
    #[schema(value_type = String, format = "uuid")]
    id: DeliveryId,
    #[schema(value_type = String, format = "uuid")]
    webhook_id: WebhookId,
    /// Sequence number of the event; null for a ping.
    event_seq: Option<u64>,
    #[serde(rename = "type")]
    #[schema(example = "email.received")]
    kind: String,
    /// `waiting`, `delivered` or `failed`.
    #[schema(example = "delivered")]
    state: &'static str,
    attempts: u64,
    /// Time of the next attempt.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_at: Option<Timestamp>,
    /// HTTP status of the last response.
    last_status: Option<u64>,
    /// Beginning of the last response, or the error.
    last_answer: Option<String>,
    /// Duration of the last attempt in milliseconds.
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
pub struct DeliveryQuery {
    /// Only deliveries in this state: `waiting`, `delivered` or `failed`.
    #[param(example = "failed")]
    state: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>, format = "uuid")]
    cursor: Option<DeliveryId>,
}

/// List the deliveries of a webhook, newest first.
#[utoipa::path(get, path = "/v1/webhooks/{id}/deliveries", operation_id = "list_deliveries", tag = "webhooks",
    params(("id" = String, Path), DeliveryQuery), responses(
    (status = 200, description = "Matching deliveries", body = Page<DeliveryView>)))]
pub async fn list(
    TenantReader(store): TenantReader,
    Path(id): Path<WebhookId>,
    Query(query): Query<DeliveryQuery>,
) -> Result<Json<Page<DeliveryView>>, Problem> {
    find(&store, id).await?;
    let state = query.state.as_deref().map(|state| {
        DeliveryState::parse(state).ok_or_else(|| Problem::invalid("state", "must be waiting, delivered or failed"))
    });
    let limit = page::limit(query.limit)?;
    let deliveries = store.list_deliveries(id, state.transpose()?, query.cursor, limit + 1).await?;
    Ok(Json(Page::cut(deliveries, limit, |delivery| delivery.id).map(DeliveryView::from)))
}

/// Get a delivery.
#[utoipa::path(get, path = "/v1/webhooks/{id}/deliveries/{delivery}", operation_id = "get_delivery", tag = "webhooks",
    params(("id" = String, Path), ("delivery" = String, Path)), responses(
    (status = 200, description = "The delivery", body = DeliveryView)))]
pub async fn get(
    TenantReader(store): TenantReader,
    Path((webhook, id)): Path<(WebhookId, DeliveryId)>,
) -> Result<Json<DeliveryView>, Problem> {
    Ok(Json(find_delivery(&store, webhook, id).await?.into()))
}

async fn find_delivery(store: &TenantStore, webhook: WebhookId, id: DeliveryId) -> Result<Delivery, Problem> {
    find(store, webhook).await?;
    store.find_delivery(webhook, id).await?.ok_or_else(|| Problem::not_found("delivery"))
}

fn show_accepted(&(): &()) -> anyhow::Result<Reply> {
    Ok(Reply::empty(StatusCode::ACCEPTED))
}

/// Send a test delivery to a webhook.
///
/// The list of deliveries shows its outcome.
#[utoipa::path(post, path = "/v1/webhooks/{id}/ping", operation_id = "ping_webhook", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "The test delivery will be sent")))]
pub async fn ping(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    operations::ping(&change.invocation(&app, show_accepted), change.by.store.id, id).await?;
    Ok(show_accepted(&())?.into_response())
}

/// Send a delivery again, with the same id.
#[utoipa::path(post, path = "/v1/webhooks/{id}/deliveries/{delivery}/resend", operation_id = "resend_delivery", tag = "webhooks",
    params(("id" = String, Path), ("delivery" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "The delivery will be sent again")))]
pub async fn resend(
    State(app): State<App>,
    Path((webhook, id)): Path<(WebhookId, DeliveryId)>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    operations::resend(&change.invocation(&app, show_accepted), change.by.store.id, webhook, id).await?;
    Ok(show_accepted(&())?.into_response())
}

/// Deliveries to send again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResendSince {
    /// Deliveries created at or after this time.
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// Include deliveries that succeeded.
    #[serde(default)]
    delivered_too: bool,
}

/// Send failed deliveries since a time again, oldest first and at most 10,000 at once.
#[utoipa::path(post, path = "/v1/webhooks/{id}/resend", operation_id = "resend_since", tag = "webhooks",
    params(("id" = String, Path), super::IdempotencyKey), request_body = ResendSince, responses(
    (status = 202, description = "The deliveries will be sent again")))]
pub async fn resend_since(
    State(app): State<App>,
    Path(id): Path<WebhookId>,
    change: ChangeRequest<TenantWriter, ResendSince>,
) -> Result<Response, Problem> {
    let ResendSince { since, delivered_too } = change.body;
    let filter = if delivered_too { ResendFilter::FailedAndDelivered } else { ResendFilter::Failed };
    let call = change.invocation(&app, show_accepted);
    operations::resend_since(&call, change.by.store.id, id, since, filter).await?;
    Ok(show_accepted(&())?.into_response())
}
