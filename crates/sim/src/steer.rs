//! What every simulated provider is steered with alike.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::consent::Consent;
use crate::faults::{Failing, Fault};
use crate::stage::Stage;

/// A provider with mailboxes that change.
pub trait Changing: Deref<Target = Stage<Self::Kind>> + Send + Sync + 'static {
    type Kind: Failing<Route: Ord + Serialize + DeserializeOwned + Send + Sync>
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;

    fn has(&self, address: &str) -> bool;
    fn step(&self, address: &str, count: usize) -> bool;
    fn step_any(&self, count: usize);
    fn set_mail_service(&self, address: &str, is_enabled: bool) -> bool;
}

/// And with people who sign in for others to read their mail.
pub trait Steered: Changing {
    fn revoke_tokens(&self, address: &str);
    fn expire_access_tokens(&self, address: Option<&str>);
    /// The name of the key that signs from now on.
    fn rotate_keys(&self, is_old_forgotten: bool) -> String;
}

/// What is done to mailboxes, and to how they are shown.
pub fn mailbox_routes<W: Changing>() -> Router<Arc<W>> {
    Router::new()
        .route("/accounts/{address}/steps", post(step_one::<W>))
        .route("/accounts/{address}/mail-service", put(set_mail_service::<W>))
        .route("/steps", post(step_any::<W>))
        .route("/rate", put(set_rate::<W>))
        .route("/faults", get(list_faults::<W>).post(add_fault::<W>).delete(clear_faults::<W>))
        .route("/latency", put(set_latency::<W>))
        .route("/requests/log", get(request_log::<W>))
        .route("/violations", get(violations::<W>).delete(forget_violations::<W>))
}

/// That, and what is done to sign-ins.
pub fn routes<W: Steered>() -> Router<Arc<W>> {
    mailbox_routes()
        .route("/accounts/{address}/revoke-tokens", post(revoke_tokens::<W>))
        .route("/accounts/{address}/expire-access-tokens", post(expire_tokens_of_one::<W>))
        .route("/consent", get(consent::<W>).put(set_consent::<W>))
        .route("/expire-access-tokens", post(expire_tokens::<W>))
        .route("/keys/rotate", post(rotate_keys::<W>))
}

pub fn missing() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": "there is no such account"}))).into_response()
}

pub fn done_if(is_done: bool) -> Response {
    if is_done { Json(json!({})).into_response() } else { missing() }
}

/// What a script asked for cannot be done.
pub fn conflict(why: impl std::fmt::Display) -> Response {
    (StatusCode::CONFLICT, Json(json!({"error": why.to_string()}))).into_response()
}

/// Accounts to be made: one, or so many with so much mail.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum NewAccounts<N> {
    One(N),
    Many { count: usize, messages: usize },
}

/// Thousands of mailboxes take a while; nobody else waits for it.
pub async fn create_accounts<N>(
    new: NewAccounts<N>,
    one: impl FnOnce(&N) -> bool,
    many: impl FnOnce(usize, usize) -> usize + Send + 'static,
) -> Response {
    match new {
        NewAccounts::One(new) if one(&new) => (StatusCode::CREATED, Json(json!({"created": 1}))).into_response(),
        NewAccounts::One(_) => conflict("there is such an account already"),
        NewAccounts::Many { count, messages } => {
            let created = tokio::task::spawn_blocking(move || many(count, messages)).await.unwrap_or(0);
            (StatusCode::CREATED, Json(json!({"created": created}))).into_response()
        }
    }
}

type Wide<W> = State<Arc<W>>;

#[derive(Debug, Deserialize)]
struct Steps {
    count: usize,
}

async fn step_one<W: Changing>(
    State(world): Wide<W>,
    Path(address): Path<String>,
    Json(steps): Json<Steps>,
) -> Response {
    done_if(world.step(&address, steps.count))
}

async fn step_any<W: Changing>(State(world): Wide<W>, Json(steps): Json<Steps>) -> Response {
    world.step_any(steps.count);
    done_if(true)
}

async fn revoke_tokens<W: Steered>(State(world): Wide<W>, Path(address): Path<String>) -> Response {
    world.revoke_tokens(&address);
    done_if(world.has(&address))
}

async fn expire_tokens_of_one<W: Steered>(State(world): Wide<W>, Path(address): Path<String>) -> Response {
    world.expire_access_tokens(Some(&address));
    done_if(world.has(&address))
}

async fn expire_tokens<W: Steered>(State(world): Wide<W>) -> Response {
    world.expire_access_tokens(None);
    done_if(true)
}

#[derive(Debug, Deserialize)]
struct Enabled {
    enabled: bool,
}

async fn set_mail_service<W: Changing>(
    State(world): Wide<W>,
    Path(address): Path<String>,
    Json(to): Json<Enabled>,
) -> Response {
    done_if(world.set_mail_service(&address, to.enabled))
}

#[derive(Debug, Deserialize)]
struct Rate {
    per_second: f64,
}

async fn set_rate<W: Changing>(State(world): Wide<W>, Json(rate): Json<Rate>) -> Response {
    world.set_rate(rate.per_second);
    done_if(true)
}

async fn list_faults<W: Changing>(State(world): Wide<W>) -> Json<Value> {
    Json(json!({"items": world.faults()}))
}

async fn add_fault<W: Changing>(State(world): Wide<W>, Json(fault): Json<Fault<W::Kind>>) -> Response {
    world.add_fault(fault);
    (StatusCode::CREATED, Json(json!({}))).into_response()
}

async fn clear_faults<W: Changing>(State(world): Wide<W>) -> Response {
    world.clear_faults();
    done_if(true)
}

#[derive(Debug, Deserialize)]
struct Latency {
    ms: u64,
}

async fn set_latency<W: Changing>(State(world): Wide<W>, Json(latency): Json<Latency>) -> Response {
    world.set_latency_ms(latency.ms);
    done_if(true)
}

async fn request_log<W: Changing>(State(world): Wide<W>) -> Json<Value> {
    Json(json!({"items": world.request_log()}))
}

async fn violations<W: Changing>(State(world): Wide<W>) -> Json<Value> {
    Json(json!({"items": world.violations()}))
}

async fn forget_violations<W: Changing>(State(world): Wide<W>) -> Response {
    world.forget_violations();
    done_if(true)
}

async fn consent<W: Steered>(State(world): Wide<W>) -> Json<Consent> {
    Json(world.consent())
}

async fn set_consent<W: Steered>(State(world): Wide<W>, Json(consent): Json<Consent>) -> Response {
    world.set_consent(consent);
    done_if(true)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rotation {
    forget_old: bool,
}

async fn rotate_keys<W: Steered>(State(world): Wide<W>, rotation: Option<Json<Rotation>>) -> Json<Value> {
    Json(json!({"key_id": world.rotate_keys(rotation.unwrap_or_default().forget_old)}))
}
