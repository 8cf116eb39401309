//! The control API of the simulated Google.

use std::sync::{Arc, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::oauth::GoogleClient;
use super::push::PushEndpoint;
use super::quota::GmailLimits;
use super::world::{Google, GoogleWorld};
use crate::control_api::{self, WorldState, done_if, missing};
use crate::people;

pub fn routes() -> Router<Arc<GoogleWorld>> {
    let routes = Router::new()
        .route("/accounts/{address}/watches", get(watches))
        .route("/quota", get(quota).put(set_quota).delete(end_quota))
        .merge(sign_in_routes())
        .merge(people::routes())
        .merge(control_api::routes());
    Router::new().nest("/control/google", routes)
}

fn sign_in_routes() -> Router<Arc<GoogleWorld>> {
    Router::new()
        .route("/clients", post(register_client))
        .route("/tokens", get(token_counts).put(set_lifetime))
        .route("/service-account", get(service_account))
        .route("/delegation", put(set_delegation))
        .route("/push", get(push).put(set_push).delete(end_push))
}

async fn watches(State(world): WorldState<Google>, Path(address): Path<String>) -> Response {
    let Some(mailbox) = world.find(&address) else { return missing() };
    let watches = mailbox.state.lock().unwrap_or_else(PoisonError::into_inner).show();
    Json(json!({"items": watches})).into_response()
}

async fn quota(State(world): WorldState<Google>) -> Json<Option<GmailLimits>> {
    Json(world.provider.quota.limits())
}

async fn set_quota(State(world): WorldState<Google>, Json(limits): Json<GmailLimits>) -> Response {
    world.set_quota(Some(limits));
    done_if(true)
}

async fn end_quota(State(world): WorldState<Google>) -> Response {
    world.set_quota(None);
    done_if(true)
}

async fn register_client(State(world): WorldState<Google>, Json(client): Json<GoogleClient>) -> Response {
    world.register_client(client);
    (StatusCode::CREATED, Json(json!({}))).into_response()
}

async fn token_counts(State(world): WorldState<Google>) -> Response {
    Json(world.token_counts()).into_response()
}

#[derive(Debug, Deserialize)]
struct TokenLifetimeRequest {
    lifetime_seconds: i64,
}

async fn set_lifetime(State(world): WorldState<Google>, Json(to): Json<TokenLifetimeRequest>) -> Response {
    world.set_access_token_lifetime(to.lifetime_seconds);
    done_if(true)
}

async fn service_account(State(world): WorldState<Google>) -> Json<Value> {
    Json(world.service_account_key())
}

#[derive(Debug, Deserialize)]
struct DelegationRequest {
    scopes: Option<Vec<String>>,
    /// `None`: all organisations.
    domain: Option<String>,
}

async fn set_delegation(State(world): WorldState<Google>, Json(to): Json<DelegationRequest>) -> Response {
    match to.domain {
        Some(domain) => world.set_delegated_scopes_of(&domain, to.scopes),
        None => world.set_delegated_scopes(to.scopes),
    }
    done_if(true)
}

async fn push(State(world): WorldState<Google>) -> Json<Value> {
    Json(json!({"endpoint": world.provider.push.endpoint(), "counts": world.push_counts()}))
}

async fn set_push(State(world): WorldState<Google>, Json(endpoint): Json<PushEndpoint>) -> Response {
    world.set_push(Some(endpoint));
    done_if(true)
}

async fn end_push(State(world): WorldState<Google>) -> Response {
    world.set_push(None);
    done_if(true)
}
