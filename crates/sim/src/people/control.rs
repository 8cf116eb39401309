//! The control API of organisations, shared by all providers that have them.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::directory_provider::{DirectoryProvider, NewOrganisation};
use super::operation::{PeopleOperation, PeopleOperationError};
use crate::control_api::conflict;

pub fn routes<W: DirectoryProvider>() -> Router<Arc<W>> {
    Router::new()
        .route("/organisations", get(list::<W>).post(organise::<W>))
        .route("/organisations/{name}/truth", get(truth::<W>))
        .route("/organisations/{name}/apply", post(apply::<W>))
}

fn missing() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": PeopleOperationError::NoOrganisation.to_string()}))).into_response()
}

async fn list<W: DirectoryProvider>(State(world): State<Arc<W>>) -> Json<Value> {
    let organisations = world.people().read();
    Json(json!({"items": organisations.list().iter().map(|found| {
        let people = found.present().count();
        json!({"id": found.id, "domains": found.domains, "people": people, "groups": found.groups.len()})
    }).collect::<Vec<_>>()}))
}

async fn organise<W: DirectoryProvider>(State(world): State<Arc<W>>, Json(new): Json<NewOrganisation>) -> Response {
    // Thousands of people take a moment, so they are made on a blocking thread.
    let made = tokio::task::spawn_blocking(move || world.create_organisation(&new)).await.ok().flatten();
    match made {
        Some(id) => (StatusCode::CREATED, Json(json!({"id": id}))).into_response(),
        None => conflict("there is an organisation with this domain already"),
    }
}

async fn truth<W: DirectoryProvider>(State(world): State<Arc<W>>, Path(name): Path<String>) -> Response {
    world.organisation(&name).map_or_else(missing, |truth| Json(truth).into_response())
}

async fn apply<W: DirectoryProvider>(
    State(world): State<Arc<W>>,
    Path(name): Path<String>,
    Json(operation): Json<PeopleOperation>,
) -> Response {
    match world.apply_to_people(&name, operation) {
        Ok(applied) => Json(applied).into_response(),
        Err(PeopleOperationError::NoOrganisation) => missing(),
        Err(refused) => conflict(refused),
    }
}
