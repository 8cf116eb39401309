//! What a test or a person steers the simulated IMAP server with.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::account::Refused;
use super::operation::Operation;
use super::world::{Mailbox, NewAccount, World};
use crate::steer::{self, NewAccounts, conflict, done_if, missing};

type Wide = State<Arc<World>>;

pub fn routes() -> Router<Arc<World>> {
    let steered = Router::new()
        .route("/accounts", get(list_accounts).post(create_accounts))
        .route("/accounts/{address}/apply", post(apply))
        .route("/accounts/{address}/truth", get(truth_of_one))
        .route("/accounts/{address}/password", put(set_password))
        .route("/accounts/{address}/disconnect", post(disconnect))
        .route("/truth", get(truth_of_all))
        .route("/capabilities", get(capabilities).put(set_capabilities))
        .route("/requests", get(requests).delete(forget_requests))
        .merge(steer::mailbox_routes());
    Router::new().nest("/control/imap", steered)
}

async fn list_accounts(State(world): Wide) -> Json<Value> {
    let account = |mailbox: &Arc<Mailbox>| {
        let listeners = mailbox.changes.receiver_count();
        json!({"address": mailbox.address, "messages": mailbox.message_count(), "listeners": listeners})
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Password {
    password: String,
}

async fn set_password(State(world): Wide, Path(address): Path<String>, Json(to): Json<Password>) -> Response {
    done_if(world.set_password(&address, &to.password))
}

async fn disconnect(State(world): Wide, Path(address): Path<String>) -> Response {
    done_if(world.disconnect(&address))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Capabilities {
    capabilities: String,
}

async fn capabilities(State(world): Wide) -> Json<Value> {
    Json(json!({"capabilities": world.capabilities()}))
}

async fn set_capabilities(State(world): Wide, Json(to): Json<Capabilities>) -> Response {
    world.set_capabilities(&to.capabilities);
    done_if(true)
}

async fn requests(State(world): Wide) -> Response {
    Json(world.requests()).into_response()
}

async fn forget_requests(State(world): Wide) -> Response {
    world.forget_requests();
    done_if(true)
}
