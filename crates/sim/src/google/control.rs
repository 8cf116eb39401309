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

use super::oauth::{CLIENT_ID, Client, READONLY};
use super::operation::Operation;
use super::push::Endpoint;
use super::quota::Limits;
use super::world::{Mailbox, NewAccount, World};
use crate::people;
use crate::steer::{self, NewAccounts, conflict, done_if, missing};

type Wide = State<Arc<World>>;

pub fn routes() -> Router<Arc<World>> {
    let steered = Router::new()
        .route("/accounts", get(list_accounts).post(create_accounts))
        .route("/accounts/{address}/apply", post(apply))
        .route("/accounts/{address}/grant", post(grant))
        .route("/accounts/{address}/truth", get(truth_of_one))
        .route("/accounts/{address}/watches", get(watches))
        .route("/truth", get(truth_of_all))
        .route("/quota", get(quota).put(set_quota).delete(end_quota))
        .route("/requests", get(requests).delete(forget_requests))
        .merge(sign_in_routes())
        .merge(people::routes())
        .merge(steer::routes());
    Router::new().nest("/control/google", steered)
}

fn sign_in_routes() -> Router<Arc<World>> {
    Router::new()
        .route("/clients", post(register_client))
        .route("/tokens", get(token_counts).put(set_lifetime))
        .route("/service-account", get(service_account))
        .route("/delegation", put(set_delegation))
        .route("/push", get(push).put(set_push).delete(end_push))
}

async fn list_accounts(State(world): Wide) -> Json<Value> {
    let account = |mailbox: &Arc<Mailbox>| json!({"address": mailbox.address, "messages": mailbox.message_count()});
    Json(json!({"items": world.all().iter().map(account).collect::<Vec<_>>()}))
}

async fn create_accounts(State(world): Wide, Json(new): Json<NewAccounts<NewAccount>>) -> Response {
    let many = Arc::clone(&world);
    steer::create_accounts(new, |new| world.create(new), move |count, messages| many.create_many(count, messages)).await
}

async fn apply(State(world): Wide, Path(address): Path<String>, Json(operation): Json<Operation>) -> Response {
    match world.apply(&address, operation) {
        Ok(applied) => Json(applied).into_response(),
        Err(super::account::Refused::NoAccount) => missing(),
        Err(refused) => conflict(refused),
    }
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

async fn forget_requests(State(world): Wide) -> Response {
    world.forget_requests();
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
    /// Nothing: everywhere.
    domain: Option<String>,
}

async fn set_delegation(State(world): Wide, Json(to): Json<Delegation>) -> Response {
    match to.domain {
        Some(domain) => world.set_delegated_scopes_of(&domain, to.scopes),
        None => world.set_delegated_scopes(to.scopes),
    }
    done_if(true)
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
