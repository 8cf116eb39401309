//! The control API of the simulated JMAP server.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::put;
use axum::{Json, Router};
use serde::Deserialize;

use super::world::{JmapProvider, JmapWorld};
use crate::control_api::{self, WorldState, done_if};

pub fn routes() -> Router<Arc<JmapWorld>> {
    let routes = Router::new()
        .route("/accounts/{address}/password", put(set_password))
        .route("/limits", put(set_limits))
        .merge(control_api::mailbox_routes());
    Router::new().nest("/control/jmap", routes)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JmapPasswordRequest {
    password: String,
}

async fn set_password(
    State(world): WorldState<JmapProvider>,
    Path(address): Path<String>,
    Json(to): Json<JmapPasswordRequest>,
) -> Response {
    done_if(world.set_password(&address, &to.password))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JmapLimitsRequest {
    max_objects: usize,
}

async fn set_limits(State(world): WorldState<JmapProvider>, Json(to): Json<JmapLimitsRequest>) -> Response {
    world.set_max_objects(to.max_objects);
    done_if(true)
}
