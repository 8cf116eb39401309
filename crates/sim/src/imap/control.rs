//! The control API of the simulated IMAP server.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{Imap, ImapWorld};
use crate::control_api::{self, WorldState, done_if};

pub fn routes() -> Router<Arc<ImapWorld>> {
    let routes = Router::new()
        .route("/accounts/{address}/password", put(set_password))
        .route("/accounts/{address}/disconnect", post(disconnect))
        .route("/capabilities", get(capabilities).put(set_capabilities))
        .merge(control_api::mailbox_routes());
    Router::new().nest("/control/imap", routes)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PasswordRequest {
    password: String,
}

async fn set_password(
    State(world): WorldState<Imap>,
    Path(address): Path<String>,
    Json(to): Json<PasswordRequest>,
) -> Response {
    done_if(world.set_password(&address, &to.password))
}

async fn disconnect(State(world): WorldState<Imap>, Path(address): Path<String>) -> Response {
    done_if(world.disconnect(&address))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CapabilitiesRequest {
    capabilities: String,
}

async fn capabilities(State(world): WorldState<Imap>) -> Json<Value> {
    Json(json!({"capabilities": world.capabilities()}))
}

async fn set_capabilities(State(world): WorldState<Imap>, Json(to): Json<CapabilitiesRequest>) -> Response {
    world.set_capabilities(&to.capabilities);
    done_if(true)
}
