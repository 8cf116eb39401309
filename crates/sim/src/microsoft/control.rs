//! The control API of the simulated Microsoft.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::directory::DirectoryChange;
use super::identity::{CLIENT_ID, MicrosoftClient, certificate_key_pem, certificate_pem};
use super::subscriptions::{LifecycleEvent, NotificationSettings};
use super::throttle::OutlookLimits;
use super::world::{Microsoft, MicrosoftWorld};
use crate::control_api::{self, WorldState, done_if};
use crate::people;

pub fn routes() -> Router<Arc<MicrosoftWorld>> {
    let routes = Router::new()
        .route("/quota", get(quota).put(set_quota).delete(end_quota))
        .route("/subscriptions", get(subscriptions))
        .route("/subscriptions/{id}/remove", post(remove_subscription))
        .route("/subscriptions/{id}/lifecycle", post(send_lifecycle))
        .route("/notifications", get(notifications).put(set_notifications))
        .route("/clients", post(register_client))
        .route("/certificate", get(certificate))
        .route("/directories", get(directories))
        .route("/directories/{name}", put(change_directory))
        .route("/tokens", get(token_counts).put(set_tokens))
        .merge(people::routes())
        .merge(control_api::routes());
    Router::new().nest("/control/microsoft", routes)
}

async fn register_client(State(world): WorldState<Microsoft>, Json(client): Json<MicrosoftClient>) -> Response {
    world.register_client(client);
    (StatusCode::CREATED, Json(json!({}))).into_response()
}

/// Returns the test client's certificate and key, which are no secret.
async fn certificate() -> Json<Value> {
    Json(json!({"client_id": CLIENT_ID, "certificate": certificate_pem(), "private_key": certificate_key_pem()}))
}

async fn directories(State(world): WorldState<Microsoft>) -> Json<Value> {
    Json(json!({"items": world.directories()}))
}

async fn change_directory(
    State(world): WorldState<Microsoft>,
    Path(name): Path<String>,
    Json(change): Json<DirectoryChange>,
) -> Response {
    world.change_directory(&name, &change);
    Json(world.directory(&name)).into_response()
}

async fn token_counts(State(world): WorldState<Microsoft>) -> Response {
    Json(world.token_counts()).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenSettingsRequest {
    lifetime_seconds: Option<i64>,
    strict: Option<bool>,
}

async fn set_tokens(State(world): WorldState<Microsoft>, Json(to): Json<TokenSettingsRequest>) -> Response {
    if let Some(seconds) = to.lifetime_seconds {
        world.set_access_token_lifetime(seconds);
    }
    if let Some(is_strict) = to.strict {
        world.set_strict_refresh(is_strict);
    }
    done_if(true)
}

async fn quota(State(world): WorldState<Microsoft>) -> Json<Value> {
    Json(json!({"limits": world.provider.throttle.limits(), "most_at_once": world.most_at_once()}))
}

async fn set_quota(State(world): WorldState<Microsoft>, Json(limits): Json<OutlookLimits>) -> Response {
    world.set_quota(Some(limits));
    done_if(true)
}

async fn end_quota(State(world): WorldState<Microsoft>) -> Response {
    world.set_quota(None);
    done_if(true)
}

async fn subscriptions(State(world): WorldState<Microsoft>) -> Json<Value> {
    Json(json!({"items": world.subscriptions()}))
}

fn done_if_subscribed(is_done: bool) -> Response {
    if is_done {
        done_if(true)
    } else {
        (StatusCode::NOT_FOUND, Json(json!({"error": "there is no such subscription"}))).into_response()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RemoveSubscriptionRequest {
    silently: bool,
}

async fn remove_subscription(
    State(world): WorldState<Microsoft>,
    Path(id): Path<String>,
    removal: Option<Json<RemoveSubscriptionRequest>>,
) -> Response {
    done_if_subscribed(world.remove_subscription(&id, removal.unwrap_or_default().silently))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LifecycleRequest {
    event: LifecycleEvent,
}

async fn send_lifecycle(
    State(world): WorldState<Microsoft>,
    Path(id): Path<String>,
    Json(to): Json<LifecycleRequest>,
) -> Response {
    done_if_subscribed(world.send_lifecycle(&id, to.event))
}

async fn notifications(State(world): WorldState<Microsoft>) -> Json<Value> {
    Json(json!({"settings": world.provider.subscriptions.settings(), "counts": world.notification_counts()}))
}

async fn set_notifications(
    State(world): WorldState<Microsoft>,
    Json(settings): Json<NotificationSettings>,
) -> Response {
    world.set_notifications(settings);
    done_if(true)
}
