//! What a test or a person steers the simulated Google with.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::faults::Fault;
use super::oauth::{CLIENT_ID, Client, Consent, READONLY};
use super::operation::Operation;
use super::push::Endpoint;
use super::quota::Limits;
use super::world::{Mailbox, NewAccount, World};

type Wide = State<Arc<World>>;

pub fn routes() -> Router<Arc<World>> {
    let steered = Router::new()
        .route("/accounts", get(list_accounts).post(create_accounts))
        .route("/accounts/{address}/apply", post(apply))
        .route("/accounts/{address}/steps", post(step_one))
        .route("/accounts/{address}/grant", post(grant))
        .route("/accounts/{address}/revoke-tokens", post(revoke_tokens))
        .route("/accounts/{address}/expire-access-tokens", post(expire_tokens_of_one))
        .route("/accounts/{address}/mail-service", put(set_mail_service))
        .route("/accounts/{address}/truth", get(truth_of_one))
        .route("/accounts/{address}/watches", get(watches))
        .route("/steps", post(step_any))
        .route("/rate", put(set_rate))
        .route("/truth", get(truth_of_all))
        .route("/faults", get(list_faults).post(add_fault).delete(clear_faults))
        .route("/latency", put(set_latency))
        .route("/quota", get(quota).put(set_quota).delete(end_quota))
        .route("/requests", get(requests).delete(forget_requests))
        .route("/requests/log", get(request_log))
        .route("/violations", get(violations).delete(forget_violations))
        .merge(sign_in_routes());
    Router::new().nest("/control/google", steered)
}

fn sign_in_routes() -> Router<Arc<World>> {
    Router::new()
        .route("/consent", get(consent).put(set_consent))
        .route("/clients", post(register_client))
        .route("/tokens", get(token_counts).put(set_lifetime))
        .route("/expire-access-tokens", post(expire_tokens))
        .route("/service-account", get(service_account))
        .route("/delegation", put(set_delegation))
        .route("/keys/rotate", post(rotate_keys))
        .route("/push", get(push).put(set_push).delete(end_push))
}

fn missing() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": "there is no such account"}))).into_response()
}

fn done_if(is_done: bool) -> Response {
    if is_done { Json(json!({})).into_response() } else { missing() }
}

async fn list_accounts(State(world): Wide) -> Json<Value> {
    let account =
        |mailbox: &Arc<Mailbox>| json!({"address": mailbox.address, "messages": mailbox.account().message_count()});
    Json(json!({"items": world.all().iter().map(account).collect::<Vec<_>>()}))
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum NewAccounts {
    One(NewAccount),
    Many { count: usize, messages: usize },
}

async fn create_accounts(State(world): Wide, Json(new): Json<NewAccounts>) -> Response {
    match new {
        NewAccounts::One(new) if world.create(&new) => {
            (StatusCode::CREATED, Json(json!({"created": 1}))).into_response()
        }
        NewAccounts::One(_) => {
            (StatusCode::CONFLICT, Json(json!({"error": "there is such an account already"}))).into_response()
        }
        NewAccounts::Many { count, messages } => {
            // Thousands of mailboxes take a while; nobody else waits for it.
            let created = tokio::task::spawn_blocking(move || world.create_many(count, messages)).await.unwrap_or(0);
            (StatusCode::CREATED, Json(json!({"created": created}))).into_response()
        }
    }
}

async fn apply(State(world): Wide, Path(address): Path<String>, Json(operation): Json<Operation>) -> Response {
    match world.apply(&address, operation) {
        Ok(applied) => Json(applied).into_response(),
        Err(super::account::Refused::NoAccount) => missing(),
        Err(refused) => (StatusCode::CONFLICT, Json(json!({"error": refused.to_string()}))).into_response(),
    }
}

#[derive(Debug, Deserialize)]
struct Steps {
    count: usize,
}

async fn step_one(State(world): Wide, Path(address): Path<String>, Json(steps): Json<Steps>) -> Response {
    done_if(world.step(&address, steps.count))
}

async fn step_any(State(world): Wide, Json(steps): Json<Steps>) -> Response {
    world.step_any(steps.count);
    done_if(true)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Grant {
    client_id: Option<String>,
    scopes: Option<Vec<String>>,
}

async fn grant(State(world): Wide, Path(address): Path<String>, grant: Option<Json<Grant>>) -> Response {
    let Json(Grant { client_id, scopes }) = grant.unwrap_or_default();
    let scopes = scopes.unwrap_or_else(|| vec![READONLY.to_owned()]);
    let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let granted = world.grant_to(&address, client_id.as_deref().unwrap_or(CLIENT_ID), &scopes);
    granted.map_or_else(missing, |granted| Json(granted).into_response())
}

async fn revoke_tokens(State(world): Wide, Path(address): Path<String>) -> Response {
    world.revoke_tokens(&address);
    done_if(world.find(&address).is_some())
}

async fn expire_tokens_of_one(State(world): Wide, Path(address): Path<String>) -> Response {
    world.expire_access_tokens(Some(&address));
    done_if(world.find(&address).is_some())
}

async fn expire_tokens(State(world): Wide) -> Response {
    world.expire_access_tokens(None);
    done_if(true)
}

#[derive(Debug, Deserialize)]
struct Enabled {
    enabled: bool,
}

async fn set_mail_service(State(world): Wide, Path(address): Path<String>, Json(to): Json<Enabled>) -> Response {
    done_if(world.set_mail_service(&address, to.enabled))
}

async fn truth_of_one(State(world): Wide, Path(address): Path<String>) -> Response {
    world.truth(&address).map_or_else(missing, |truth| Json(truth).into_response())
}

async fn truth_of_all(State(world): Wide) -> Response {
    let truth: BTreeMap<String, _> =
        world.all().iter().map(|mailbox| (mailbox.address.clone(), mailbox.account().truth(&world.letters))).collect();
    Json(truth).into_response()
}

async fn watches(State(world): Wide, Path(address): Path<String>) -> Response {
    let Some(mailbox) = world.find(&address) else { return missing() };
    let watches = mailbox.watches.lock().unwrap_or_else(PoisonError::into_inner).show();
    Json(json!({"items": watches})).into_response()
}

#[derive(Debug, Deserialize)]
struct Rate {
    per_second: f64,
}

async fn set_rate(State(world): Wide, Json(rate): Json<Rate>) -> Response {
    world.set_rate(rate.per_second);
    done_if(true)
}

async fn list_faults(State(world): Wide) -> Json<Value> {
    Json(json!({"items": world.faults()}))
}

async fn add_fault(State(world): Wide, Json(fault): Json<Fault>) -> Response {
    world.add_fault(fault);
    (StatusCode::CREATED, Json(json!({}))).into_response()
}

async fn clear_faults(State(world): Wide) -> Response {
    world.clear_faults();
    done_if(true)
}

#[derive(Debug, Deserialize)]
struct Latency {
    ms: u64,
}

async fn set_latency(State(world): Wide, Json(latency): Json<Latency>) -> Response {
    world.set_latency_ms(latency.ms);
    done_if(true)
}

async fn quota(State(world): Wide) -> Json<Option<Limits>> {
    Json(world.quota.limits())
}

async fn set_quota(State(world): Wide, Json(limits): Json<Limits>) -> Response {
    world.set_quota(Some(limits));
    done_if(true)
}

async fn end_quota(State(world): Wide) -> Response {
    world.set_quota(None);
    done_if(true)
}

async fn requests(State(world): Wide) -> Response {
    Json(world.requests()).into_response()
}

async fn request_log(State(world): Wide) -> Json<Value> {
    Json(json!({"items": world.request_log()}))
}

async fn forget_requests(State(world): Wide) -> Response {
    world.forget_requests();
    done_if(true)
}

async fn violations(State(world): Wide) -> Json<Value> {
    Json(json!({"items": world.violations()}))
}

async fn forget_violations(State(world): Wide) -> Response {
    world.forget_violations();
    done_if(true)
}

async fn consent(State(world): Wide) -> Json<Consent> {
    Json(world.oauth.consent())
}

async fn set_consent(State(world): Wide, Json(consent): Json<Consent>) -> Response {
    world.set_consent(consent);
    done_if(true)
}

async fn register_client(State(world): Wide, Json(client): Json<Client>) -> Response {
    world.register_client(client);
    (StatusCode::CREATED, Json(json!({}))).into_response()
}

async fn token_counts(State(world): Wide) -> Response {
    Json(world.token_counts()).into_response()
}

#[derive(Debug, Deserialize)]
struct Lifetime {
    lifetime_seconds: i64,
}

async fn set_lifetime(State(world): Wide, Json(to): Json<Lifetime>) -> Response {
    world.set_access_token_lifetime(to.lifetime_seconds);
    done_if(true)
}

async fn service_account(State(world): Wide) -> Json<Value> {
    Json(world.service_account_key())
}

#[derive(Debug, Deserialize)]
struct Delegation {
    scopes: Option<Vec<String>>,
}

async fn set_delegation(State(world): Wide, Json(to): Json<Delegation>) -> Response {
    world.set_delegated_scopes(to.scopes);
    done_if(true)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rotation {
    forget_old: bool,
}

async fn rotate_keys(State(world): Wide, rotation: Option<Json<Rotation>>) -> Json<Value> {
    Json(json!({"key_id": world.rotate_keys(rotation.unwrap_or_default().forget_old)}))
}

async fn push(State(world): Wide) -> Json<Value> {
    Json(json!({"endpoint": world.push.endpoint(), "counts": world.push_counts()}))
}

async fn set_push(State(world): Wide, Json(endpoint): Json<Endpoint>) -> Response {
    world.set_push(Some(endpoint));
    done_if(true)
}

async fn end_push(State(world): Wide) -> Response {
    world.set_push(None);
    done_if(true)
}
