//! The control API that all simulated providers share: steps, faults, latency, logs, tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::consent::Consent;
use crate::faults::FaultRule;
use crate::sign_in::SignInProvider;
use crate::world::{AccountSpec, Provider, ProviderWorld, SimAccount};

/// The extractor of a provider's world.
pub type WorldState<P> = State<Arc<ProviderWorld<P>>>;

/// Routes that change mailboxes and the way that they are served.
pub fn mailbox_routes<P: Provider>() -> Router<Arc<ProviderWorld<P>>> {
    Router::new()
        .route("/accounts", get(list_accounts::<P>).post(create_accounts::<P>))
        .route("/accounts/{address}/apply", post(apply::<P>))
        .route("/accounts/{address}/truth", get(truth_of_one::<P>))
        .route("/accounts/{address}/steps", post(step_one::<P>))
        .route("/accounts/{address}/mail-service", put(set_mail_service::<P>))
        .route("/truth", get(truth_of_all::<P>))
        .route("/steps", post(step_any::<P>))
        .route("/rate", put(set_rate::<P>))
        .route("/faults", get(list_faults::<P>).post(add_fault::<P>).delete(clear_faults::<P>))
        .route("/latency", put(set_latency::<P>))
        .route("/requests", get(requests::<P>).delete(clear_requests::<P>))
        .route("/requests/log", get(request_log::<P>))
        .route("/violations", get(violations::<P>).delete(clear_violations::<P>))
}

/// Routes of [`mailbox_routes`], and those that control tokens, consent and keys.
pub fn routes<P: SignInProvider>() -> Router<Arc<ProviderWorld<P>>> {
    mailbox_routes()
        .route("/accounts/{address}/grant", post(grant::<P>))
        .route("/accounts/{address}/revoke-tokens", post(revoke_tokens::<P>))
        .route("/accounts/{address}/expire-access-tokens", post(expire_tokens_of_one::<P>))
        .route("/consent", get(consent::<P>).put(set_consent::<P>))
        .route("/expire-access-tokens", post(expire_tokens::<P>))
        .route("/keys/rotate", post(rotate_keys::<P>))
}

pub fn missing() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": "there is no such account"}))).into_response()
}

pub fn done_if(is_done: bool) -> Response {
    if is_done { Json(json!({})).into_response() } else { missing() }
}

/// Answers 409 with the reason.
pub fn conflict(why: impl std::fmt::Display) -> Response {
    (StatusCode::CONFLICT, Json(json!({"error": why.to_string()}))).into_response()
}

async fn list_accounts<P: Provider>(State(world): WorldState<P>) -> Json<Value> {
    let accounts: Vec<Value> = world.all().iter().map(|mailbox| P::describe(mailbox)).collect();
    Json(json!({"items": accounts}))
}

/// The request body that creates accounts: one, or `count` of them with `messages` each.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum AccountsRequest {
    One(AccountSpec),
    Many { count: usize, messages: usize },
}

async fn create_accounts<P: Provider>(State(world): WorldState<P>, Json(request): Json<AccountsRequest>) -> Response {
    let created = match request {
        AccountsRequest::One(spec) if world.create(&spec) => 1,
        AccountsRequest::One(_) => return conflict("there is such an account already"),
        // Thousands of mailboxes take a while, so they are made on a blocking thread.
        AccountsRequest::Many { count, messages } => {
            tokio::task::spawn_blocking(move || world.create_many(count, messages)).await.unwrap_or(0)
        }
    };
    (StatusCode::CREATED, Json(json!({"created": created}))).into_response()
}

async fn apply<P: Provider>(
    State(world): WorldState<P>,
    Path(address): Path<String>,
    Json(operation): Json<<P::Account as SimAccount>::Operation>,
) -> Response {
    match world.apply(&address, operation) {
        Ok(outcome) => Json(outcome).into_response(),
        Err(error) if error == P::Account::NO_ACCOUNT => missing(),
        Err(error) => conflict(error),
    }
}

async fn truth_of_one<P: Provider>(State(world): WorldState<P>, Path(address): Path<String>) -> Response {
    world.truth(&address).map_or_else(missing, |truth| Json(truth).into_response())
}

async fn truth_of_all<P: Provider>(State(world): WorldState<P>) -> Response {
    let mailboxes = world.all();
    let truth: BTreeMap<&str, _> =
        mailboxes.iter().map(|mailbox| (mailbox.address.as_str(), mailbox.account().truth(&world.letters))).collect();
    Json(truth).into_response()
}

async fn requests<P: Provider>(State(world): WorldState<P>) -> Response {
    P::request_report(&world)
}

async fn clear_requests<P: Provider>(State(world): WorldState<P>) -> Response {
    P::clear_request_report(&world);
    done_if(true)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GrantRequest {
    client_id: Option<String>,
    scopes: Option<Vec<String>>,
}

async fn grant<P: SignInProvider>(
    State(world): WorldState<P>,
    Path(address): Path<String>,
    request: Option<Json<GrantRequest>>,
) -> Response {
    let Json(GrantRequest { client_id, scopes }) = request.unwrap_or_default();
    let client = client_id.as_deref().unwrap_or(P::CLIENT_ID);
    let tokens = match &scopes {
        Some(scopes) => world.grant_to(&address, client, &scopes.iter().map(String::as_str).collect::<Vec<_>>()),
        None => world.grant_to(&address, client, P::SCOPES),
    };
    tokens.map_or_else(missing, |tokens| Json(tokens).into_response())
}

#[derive(Debug, Deserialize)]
struct StepsRequest {
    count: usize,
}

async fn step_one<P: Provider>(
    State(world): WorldState<P>,
    Path(address): Path<String>,
    Json(steps): Json<StepsRequest>,
) -> Response {
    done_if(world.step(&address, steps.count))
}

async fn step_any<P: Provider>(State(world): WorldState<P>, Json(steps): Json<StepsRequest>) -> Response {
    world.step_any(steps.count);
    done_if(true)
}

async fn revoke_tokens<P: SignInProvider>(State(world): WorldState<P>, Path(address): Path<String>) -> Response {
    world.revoke_tokens(&address);
    done_if(world.find(&address).is_some())
}

async fn expire_tokens_of_one<P: SignInProvider>(State(world): WorldState<P>, Path(address): Path<String>) -> Response {
    world.expire_access_tokens(Some(&address));
    done_if(world.find(&address).is_some())
}

async fn expire_tokens<P: SignInProvider>(State(world): WorldState<P>) -> Response {
    world.expire_access_tokens(None);
    done_if(true)
}

#[derive(Debug, Deserialize)]
struct MailServiceRequest {
    enabled: bool,
}

async fn set_mail_service<P: Provider>(
    State(world): WorldState<P>,
    Path(address): Path<String>,
    Json(to): Json<MailServiceRequest>,
) -> Response {
    done_if(world.set_mail_service(&address, to.enabled))
}

#[derive(Debug, Deserialize)]
struct RateRequest {
    per_second: f64,
}

async fn set_rate<P: Provider>(State(world): WorldState<P>, Json(rate): Json<RateRequest>) -> Response {
    world.set_rate(rate.per_second);
    done_if(true)
}

async fn list_faults<P: Provider>(State(world): WorldState<P>) -> Json<Value> {
    Json(json!({"items": world.faults()}))
}

async fn add_fault<P: Provider>(State(world): WorldState<P>, Json(fault): Json<FaultRule<P::FaultKind>>) -> Response {
    world.add_fault(fault);
    (StatusCode::CREATED, Json(json!({}))).into_response()
}

async fn clear_faults<P: Provider>(State(world): WorldState<P>) -> Response {
    world.clear_faults();
    done_if(true)
}

#[derive(Debug, Deserialize)]
struct LatencyRequest {
    ms: u64,
}

async fn set_latency<P: Provider>(State(world): WorldState<P>, Json(latency): Json<LatencyRequest>) -> Response {
    world.set_latency_ms(latency.ms);
    done_if(true)
}

async fn request_log<P: Provider>(State(world): WorldState<P>) -> Json<Value> {
    Json(json!({"items": world.request_log()}))
}

async fn violations<P: Provider>(State(world): WorldState<P>) -> Json<Value> {
    Json(json!({"items": world.violations()}))
}

async fn clear_violations<P: Provider>(State(world): WorldState<P>) -> Response {
    world.clear_violations();
    done_if(true)
}

async fn consent<P: SignInProvider>(State(world): WorldState<P>) -> Json<Consent> {
    Json(world.consent())
}

async fn set_consent<P: SignInProvider>(State(world): WorldState<P>, Json(consent): Json<Consent>) -> Response {
    world.set_consent(consent);
    done_if(true)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RotateKeysRequest {
    forget_old: bool,
}

async fn rotate_keys<P: SignInProvider>(
    State(world): WorldState<P>,
    rotation: Option<Json<RotateKeysRequest>>,
) -> Json<Value> {
    Json(json!({"key_id": world.rotate_keys(rotation.unwrap_or_default().forget_old)}))
}
