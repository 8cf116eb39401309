//! Google's HTTP endpoints: OAuth, the Gmail API with its batches, and the directory API.

mod batch;
mod call;
mod directory;
mod fault_responses;
mod history;
mod labels;
mod mailbox;
mod messages;
mod payload;

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Uri};
use axum::routing::{any, get, post};
use bytes::Bytes;

use super::faults::{GoogleFaultKind, GoogleRoute};
use super::oauth;
use super::world::{Google, GoogleWorld};
use crate::control_api::WorldState;
use crate::form::pairs;
use crate::http::header_text;
use crate::response::SimResponse;

/// The maximum size of a request body; batches are the largest.
const MAX_BODY_BYTES: usize = 8 << 20;

pub fn routes() -> Router<Arc<GoogleWorld>> {
    Router::new()
        .route("/o/oauth2/v2/auth", get(authorize).post(decide))
        .route("/token", post(token))
        .route("/revoke", post(revoke))
        .route("/oauth2/v3/certs", get(certs))
        .route("/oauth2/v2/userinfo", any(method))
        .route("/gmail/v1/users/{*rest}", any(method))
        .route("/admin/directory/v1/{*rest}", any(method))
        .route("/batch/gmail/v1", post(batch_calls))
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
}

async fn authorize(State(world): WorldState<Google>, RawQuery(query): RawQuery) -> SimResponse {
    let query = pairs(&query.unwrap_or_default());
    answer_outside_api(&world, GoogleRoute::Authorize, "GET", "", || oauth::show(&world, &query)).await
}

async fn decide(State(world): WorldState<Google>, body: Bytes) -> SimResponse {
    let form = pairs(&String::from_utf8_lossy(&body));
    answer_outside_api(&world, GoogleRoute::Authorize, "POST", "", || oauth::decide(&world, &form)).await
}

async fn token(State(world): WorldState<Google>, head: HeaderMap, body: Bytes) -> SimResponse {
    let form = pairs(&String::from_utf8_lossy(&body));
    let (authorization, account) = (header_text(&head, AUTHORIZATION), oauth::account_of_form(&world, &form));
    answer_outside_api(&world, GoogleRoute::Token, "POST", &account, || oauth::token(&world, authorization, &form))
        .await
}

async fn revoke(State(world): WorldState<Google>, body: Bytes) -> SimResponse {
    let form = pairs(&String::from_utf8_lossy(&body));
    let account = oauth::account_of_form(&world, &form);
    answer_outside_api(&world, GoogleRoute::Revoke, "POST", &account, || oauth::revoke(&world, &form)).await
}

async fn certs(State(world): WorldState<Google>) -> SimResponse {
    let age = "public, max-age=19800, must-revalidate, no-transform";
    answer_outside_api(&world, GoogleRoute::Certs, "GET", "", || {
        SimResponse::json(world.provider.oauth.published_keys()).with(CACHE_CONTROL, age)
    })
    .await
}

/// Answers a route that takes no access token: applies latency and faults, and logs the request.
async fn answer_outside_api(
    world: &GoogleWorld,
    route: GoogleRoute,
    verb: &str,
    account: &str,
    answer: impl FnOnce() -> SimResponse,
) -> SimResponse {
    world.wait().await;
    let faults = world.faults.draw(account, route);
    let answer = match fault_responses::oauth_replacement(&faults).await {
        Some(answer) => answer,
        None => answer(),
    };
    world.requests.add(verb, route, account, answer.status, false);
    answer.damaged_by(&faults)
}

async fn method(State(world): WorldState<Google>, verb: Method, uri: Uri, head: HeaderMap, body: Bytes) -> SimResponse {
    world.wait().await;
    let request = call::GmailRequest {
        verb: verb.as_str(),
        target: uri.path_and_query().map_or("/", |target| target.as_str()),
        authorization: header_text(&head, AUTHORIZATION),
        body: &body,
        in_batch: false,
    };
    call::answer_call(&world, &request).await
}

async fn batch_calls(State(world): WorldState<Google>, head: HeaderMap, body: Bytes) -> SimResponse {
    world.wait().await;
    let authorization = header_text(&head, AUTHORIZATION);
    let account = call::open_token(&world, authorization).map(|access| access.account).unwrap_or_default();
    let faults = world.faults.draw(&account, GoogleRoute::Batch);
    let answer = match fault_responses::replacement(&faults).await {
        Some(answer) => answer,
        None => {
            batch::answer(&world, header_text(&head, CONTENT_TYPE).unwrap_or_default(), authorization, &body, &faults)
                .await
        }
    };
    world.requests.add("POST", GoogleRoute::Batch, &account, answer.status, false);
    answer.damaged_by(&faults)
}

/// Returns whether a fault of this kind has fired.
fn has(faults: &[GoogleFaultKind], kind: &GoogleFaultKind) -> bool {
    faults.contains(kind)
}
