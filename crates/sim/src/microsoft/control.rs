//! What a test or a person steers the simulated Microsoft with.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::account::Refused;
use super::directory::DirectoryChange;
use super::identity::{CLIENT_ID, Client, SCOPES, certificate_key_pem, certificate_pem};
use super::operation::Operation;
use super::subscriptions::{LifecycleEvent, Settings};
use super::throttle::Limits;
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
        .route("/truth", get(truth_of_all))
        .route("/requests", get(requests).delete(forget_requests))
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
        .merge(steer::routes());
    Router::new().nest("/control/microsoft", steered)
}

async fn list_accounts(State(world): Wide) -> Json<Value> {
    let account = |mailbox: &Arc<Mailbox>| {
        json!({
            "address": mailbox.address, "id": mailbox.id, "directory": mailbox.directory,
            "messages": mailbox.message_count(),
        })
    };
    Json(json!({"items": world.all().iter().map(account).collect::<Vec<_>>()}))
}

async fn create_accounts(State(world): Wide, Json(new): Json<NewAccounts<NewAccount>>) -> Response {
    let many = Arc::clone(&world);
    steer::create_accounts(new, |new| world.create(new), move |count, messages| many.create_many(count, messages)).await
}

async fn apply(State(world): Wide, Path(address): Path<String>, Json(operation): Json<Operation>) -> Response {
    match world.apply(&address, operation) {
        Ok(applied) => Json(applied).into_response(),
        Err(Refused::NoAccount) => missing(),
        Err(refused) => conflict(refused),
    }
}

async fn truth_of_one(State(world): Wide, Path(address): Path<String>) -> Response {
    world.truth(&address).map_or_else(missing, |truth| Json(truth).into_response())
}

async fn truth_of_all(State(world): Wide) -> Response {
    let truth: BTreeMap<String, _> =
        world.all().iter().map(|mailbox| (mailbox.address.clone(), mailbox.account().truth(&world.letters))).collect();
    Json(truth).into_response()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Grant {
    client_id: Option<String>,
    scopes: Option<Vec<String>>,
}

async fn grant(State(world): Wide, Path(address): Path<String>, grant: Option<Json<Grant>>) -> Response {
    let Json(Grant { client_id, scopes }) = grant.unwrap_or_default();
    let scopes = scopes.unwrap_or_else(|| SCOPES.map(str::to_owned).to_vec());
    let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let granted = world.grant_to(&address, client_id.as_deref().unwrap_or(CLIENT_ID), &scopes);
    granted.map_or_else(missing, |granted| Json(granted).into_response())
}

async fn requests(State(world): Wide) -> Response {
    let counted = world.requests();
    Json(json!({
        "all": counted.all, "accounts": counted.accounts, "without_immutable_ids": world.without_immutable_ids(),
    }))
    .into_response()
}

async fn forget_requests(State(world): Wide) -> Response {
    world.forget_counts();
    done_if(true)
}

async fn register_client(State(world): Wide, Json(client): Json<Client>) -> Response {
    world.register_client(client);
    (StatusCode::CREATED, Json(json!({}))).into_response()
}

/// The test client's, which is nobody's secret.
async fn certificate() -> Json<Value> {
    Json(json!({"client_id": CLIENT_ID, "certificate": certificate_pem(), "private_key": certificate_key_pem()}))
}

async fn directories(State(world): Wide) -> Json<Value> {
    Json(json!({"items": world.directories()}))
}

async fn change_directory(
    State(world): Wide,
    Path(name): Path<String>,
    Json(change): Json<DirectoryChange>,
) -> Response {
    world.change_directory(&name, &change);
    Json(world.directory(&name)).into_response()
}

async fn token_counts(State(world): Wide) -> Response {
    Json(world.token_counts()).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens {
    lifetime_seconds: Option<i64>,
    strict: Option<bool>,
}

async fn set_tokens(State(world): Wide, Json(to): Json<Tokens>) -> Response {
    if let Some(seconds) = to.lifetime_seconds {
        world.set_access_token_lifetime(seconds);
    }
    if let Some(is_strict) = to.strict {
        world.set_strict_refresh(is_strict);
    }
    done_if(true)
}

async fn quota(State(world): Wide) -> Json<Value> {
    Json(json!({"limits": world.throttle.limits(), "most_at_once": world.most_at_once()}))
}

async fn set_quota(State(world): Wide, Json(limits): Json<Limits>) -> Response {
    world.set_quota(Some(limits));
    done_if(true)
}

async fn end_quota(State(world): Wide) -> Response {
    world.set_quota(None);
    done_if(true)
}

async fn subscriptions(State(world): Wide) -> Json<Value> {
    Json(json!({"items": world.subscriptions()}))
}

fn done_if_subscribed(is_done: bool) -> Response {
    match is_done {
        true => done_if(true),
        false => (StatusCode::NOT_FOUND, Json(json!({"error": "there is no such subscription"}))).into_response(),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Removal {
    silently: bool,
}

async fn remove_subscription(State(world): Wide, Path(id): Path<String>, removal: Option<Json<Removal>>) -> Response {
    done_if_subscribed(world.remove_subscription(&id, removal.unwrap_or_default().silently))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lifecycle {
    event: LifecycleEvent,
}

async fn send_lifecycle(State(world): Wide, Path(id): Path<String>, Json(to): Json<Lifecycle>) -> Response {
    done_if_subscribed(world.send_lifecycle(&id, to.event))
}

async fn notifications(State(world): Wide) -> Json<Value> {
    Json(json!({"settings": world.subscriptions.settings(), "counts": world.notification_counts()}))
}

async fn set_notifications(State(world): Wide, Json(settings): Json<Settings>) -> Response {
    world.set_notifications(settings);
    done_if(true)
}
