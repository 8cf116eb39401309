//! What a test or a person steers the provider with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::faults::Fault;
use super::super::operation::Operation;
use super::super::truth::Truth;
use super::world::{NewAccount, World};

type Wide = State<Arc<World>>;

pub fn routes() -> Router<Arc<World>> {
    Router::new()
        .route("/control/accounts", get(list_accounts).post(create_accounts))
        .route("/control/accounts/{address}/apply", post(apply))
        .route("/control/accounts/{address}/steps", post(step_one))
        .route("/control/accounts/{address}/token", put(set_token))
        .route("/control/accounts/{address}/truth", get(truth_of_one))
        .route("/control/accounts/{address}/requests", get(requests_of_one))
        .route("/control/steps", post(step_any))
        .route("/control/rate", put(set_rate))
        .route("/control/truth", get(truth_of_all))
        .route("/control/requests", get(requests).delete(forget_requests))
        .route("/control/faults", get(list_faults).post(add_fault).delete(clear_faults))
        .route("/control/latency", put(set_latency))
}

fn missing() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": "there is no such account"}))).into_response()
}

fn done_if(is_done: bool) -> Response {
    if is_done { Json(json!({})).into_response() } else { missing() }
}

async fn list_accounts(State(world): Wide) -> Json<Value> {
    let account = |mailbox: &Arc<super::world::Mailbox>| {
        let messages = mailbox.account().message_count();
        json!({"address": mailbox.address, "token": mailbox.token(), "messages": messages})
    };
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
    let now = world.now();
    match world.with(&address, |account, letters| account.apply(operation, letters, now)) {
        None => missing(),
        Some(Ok(told)) => Json(told).into_response(),
        Some(Err(refused)) => (StatusCode::CONFLICT, Json(json!({"error": refused.to_string()}))).into_response(),
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

#[derive(Debug, Deserialize)]
struct Token {
    token: String,
}

async fn set_token(State(world): Wide, Path(address): Path<String>, Json(new): Json<Token>) -> Response {
    done_if(world.set_token(&address, new.token))
}

#[derive(Debug, Deserialize)]
struct Rate {
    per_second: f64,
}

async fn set_rate(State(world): Wide, Json(rate): Json<Rate>) -> Response {
    world.set_rate(rate.per_second);
    done_if(true)
}

async fn truth_of_one(State(world): Wide, Path(address): Path<String>) -> Response {
    world.truth(&address).map_or_else(missing, |truth| Json(truth).into_response())
}

async fn truth_of_all(State(world): Wide) -> Json<BTreeMap<String, Truth>> {
    Json(world.all().iter().map(|mailbox| (mailbox.address.clone(), mailbox.account().truth())).collect())
}

async fn requests_of_one(State(world): Wide, Path(address): Path<String>) -> Response {
    world.find(&address).map_or_else(missing, |mailbox| Json(mailbox.requests()).into_response())
}

/// By route and over all accounts, and by account those that were asked at all.
async fn requests(State(world): Wide) -> Json<Value> {
    let is_asked = |requests: &Value| requests["most_in_flight"] != 0;
    let accounts: BTreeMap<String, Value> = world
        .all()
        .iter()
        .map(|mailbox| (mailbox.address.clone(), mailbox.requests()))
        .filter(|(_, requests)| is_asked(requests))
        .collect();
    Json(json!({"routes": world.counts.as_map(), "accounts": accounts}))
}

async fn forget_requests(State(world): Wide) -> Response {
    world.counts.reset();
    world.all().iter().for_each(|mailbox| mailbox.forget_requests());
    done_if(true)
}

async fn list_faults(State(world): Wide) -> Json<Value> {
    Json(json!({"items": world.faults.list()}))
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
    world.latency_ms.store(latency.ms, Ordering::Relaxed);
    done_if(true)
}
