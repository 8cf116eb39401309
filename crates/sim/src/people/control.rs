//! What every provider's organisations are steered with alike.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::operation::{PeopleOperation, PeopleRefused};
use super::organised::{NewOrganisation, Organised};
use crate::steer::conflict;

pub fn routes<W: Organised>() -> Router<Arc<W>> {
    Router::new()
        .route("/organisations", get(list::<W>).post(organise::<W>))
        .route("/organisations/{name}/truth", get(truth::<W>))
        .route("/organisations/{name}/apply", post(apply::<W>))
}

type Wide<W> = State<Arc<W>>;

fn missing() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": PeopleRefused::NoOrganisation.to_string()}))).into_response()
}

async fn list<W: Organised>(State(world): Wide<W>) -> Json<Value> {
    let organisations = world.people().read();
    let one = |found: &&super::Organisation| {
        let people = found.present().count();
        json!({"id": found.id, "domains": found.domains, "people": people, "groups": found.groups.len()})
    };
    Json(json!({"items": organisations.list().iter().map(one).collect::<Vec<_>>()}))
}

async fn organise<W: Organised>(State(world): Wide<W>, Json(new): Json<NewOrganisation>) -> Response {
    // Thousands of people take a moment; nobody else waits for it.
    let made = tokio::task::spawn_blocking(move || world.organise(&new)).await.ok().flatten();
    match made {
        Some(id) => (StatusCode::CREATED, Json(json!({"id": id}))).into_response(),
        None => conflict("there is an organisation with this domain already"),
    }
}

async fn truth<W: Organised>(State(world): Wide<W>, Path(name): Path<String>) -> Response {
    world.organisation(&name).map_or_else(missing, |truth| Json(truth).into_response())
}

async fn apply<W: Organised>(
    State(world): Wide<W>,
    Path(name): Path<String>,
    Json(operation): Json<PeopleOperation>,
) -> Response {
    match world.apply_to_people(&name, operation) {
        Ok(applied) => Json(applied).into_response(),
        Err(PeopleRefused::NoOrganisation) => missing(),
        Err(refused) => conflict(refused),
    }
}
