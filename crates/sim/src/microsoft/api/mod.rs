//! Microsoft's HTTP endpoints: the identity platform, and Graph with its batches.

mod attachments;
mod batch;
mod call;
mod delta;
mod fault_responses;
mod folders;
mod groups;
mod messages;
mod prefer;
mod select;
mod subscriptions;
mod users;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, Uri};
use axum::routing::{any, get, post};
use bytes::Bytes;

use super::faults::MicrosoftRoute;
use super::identity;
use super::spec;
use super::world::{Microsoft, MicrosoftWorld};
use crate::control_api::WorldState;
use crate::form::{pairs, value};
use crate::http::header_text;
use crate::response::{ResponseBody, SimResponse};
use crate::spec::Side;

/// The maximum size of a request body; batches are the largest.
const MAX_BODY_BYTES: usize = 8 << 20;

pub fn routes() -> Router<Arc<MicrosoftWorld>> {
    Router::new()
        .route("/{tenant}/v2.0/.well-known/openid-configuration", get(configuration))
        .route("/{tenant}/discovery/v2.0/keys", get(keys))
        .route("/{tenant}/oauth2/v2.0/authorize", get(authorize).post(decide))
        .route("/{tenant}/oauth2/v2.0/token", post(token))
        .route("/{tenant}/v2.0/adminconsent", get(ask_admin).post(decide_as_admin))
        .route("/{tenant}/adminconsent", get(ask_admin).post(decide_as_admin))
        .route("/v1.0/$batch", post(batch_calls))
        .route("/v1.0/{*rest}", any(method))
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
}

async fn configuration(State(world): WorldState<Microsoft>, Path(tenant): Path<String>) -> SimResponse {
    answer_outside_api(&world, MicrosoftRoute::Discovery, "GET", "", || identity::configuration(&world, &tenant)).await
}

async fn keys(State(world): WorldState<Microsoft>, Path(tenant): Path<String>) -> SimResponse {
    answer_outside_api(&world, MicrosoftRoute::Keys, "GET", "", || identity::keys(&world, &tenant)).await
}

async fn authorize(
    State(world): WorldState<Microsoft>,
    Path(tenant): Path<String>,
    RawQuery(query): RawQuery,
) -> SimResponse {
    let query = pairs(&query.unwrap_or_default());
    answer_outside_api(&world, MicrosoftRoute::Authorize, "GET", "", || identity::show(&world, &tenant, &query)).await
}

async fn decide(State(world): WorldState<Microsoft>, Path(tenant): Path<String>, body: Bytes) -> SimResponse {
    let form = pairs(&String::from_utf8_lossy(&body));
    answer_outside_api(&world, MicrosoftRoute::Authorize, "POST", "", || identity::decide(&world, &tenant, &form)).await
}

async fn ask_admin(State(world): WorldState<Microsoft>, Path(tenant): Path<String>, uri: Uri) -> SimResponse {
    let query = pairs(uri.query().unwrap_or_default());
    answer_outside_api(&world, MicrosoftRoute::AdminConsent, "GET", "", || {
        identity::ask_admin(&world, &tenant, uri.path(), &query)
    })
    .await
}

async fn decide_as_admin(State(world): WorldState<Microsoft>, Path(tenant): Path<String>, body: Bytes) -> SimResponse {
    let form = pairs(&String::from_utf8_lossy(&body));
    answer_outside_api(&world, MicrosoftRoute::AdminConsent, "POST", "", || {
        identity::decide_as_admin(&world, &tenant, &form)
    })
    .await
}

async fn token(
    State(world): WorldState<Microsoft>,
    Path(tenant): Path<String>,
    head: HeaderMap,
    body: Bytes,
) -> SimResponse {
    let form = pairs(&String::from_utf8_lossy(&body));
    let (authorization, account) = (header_text(&head, AUTHORIZATION), identity::account_of_form(&world, &form));
    let _permit = value(&form, "refresh_token").map(|_| world.provider.identity.begin_refresh(&account));
    answer_outside_api(&world, MicrosoftRoute::Token, "POST", &account, || {
        let answer = identity::token(&world, &tenant, authorization, &form);
        if let ResponseBody::Json(body) = &answer.body
            && let Err(why) = spec::check_token(answer.status, body)
        {
            world.violations.add(Side::Response, MicrosoftRoute::Token.as_str(), &why);
        }
        answer
    })
    .await
}

/// Answers a route that takes no access token: applies latency and faults, and logs the request.
async fn answer_outside_api(
    world: &MicrosoftWorld,
    route: MicrosoftRoute,
    verb: &str,
    account: &str,
    answer: impl FnOnce() -> SimResponse,
) -> SimResponse {
    world.wait().await;
    let faults = world.faults.draw(account, route);
    let answer = match fault_responses::identity_replacement(world, &faults).await {
        Some(answer) => answer,
        None => answer(),
    };
    world.requests.add(verb, route, account, answer.status, false);
    answer.damaged_by(&faults)
}

async fn method(
    State(world): WorldState<Microsoft>,
    verb: Method,
    uri: Uri,
    head: HeaderMap,
    body: Bytes,
) -> SimResponse {
    let request = call::GraphRequest {
        verb: verb.as_str(),
        target: uri.path_and_query().map_or("/", |target| target.as_str()),
        authorization: header_text(&head, AUTHORIZATION),
        prefer: head.get_all("prefer").iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(", "),
        is_eventual: is_eventual(head.get("consistencylevel").and_then(|value| value.to_str().ok())),
        body: &body,
        in_batch: false,
    };
    call::answer_call(&world, &request).await
}

async fn batch_calls(State(world): WorldState<Microsoft>, head: HeaderMap, body: Bytes) -> SimResponse {
    let authorization = header_text(&head, AUTHORIZATION);
    let access = call::open_token(&world, authorization);
    let named = batch::first_user(&body);
    let (_permit, refusal) = call::acquire_permit(&world, access.as_ref(), named.as_deref()).unzip();
    world.wait().await;
    let account = access.as_ref().and_then(|access| access.grant.account.clone()).unwrap_or_default();
    let faults = world.faults.draw(&account, MicrosoftRoute::Batch);
    let answer = match (fault_responses::replacement(&world, &faults).await, refusal.flatten(), access) {
        (Some(answer), _, _) => answer,
        (None, Some(refusal), _) => refusal.answer(&world),
        (None, None, Some(_)) => batch::answer(&world, authorization, &body, &faults).await,
        (None, None, None) => call::unauthenticated().answer(&world),
    };
    world.requests.add("POST", MicrosoftRoute::Batch, &account, answer.status, false);
    answer.damaged_by(&faults)
}

/// Returns whether the header asks for eventual consistency, which advanced queries need.
fn is_eventual(consistency_level: Option<&str>) -> bool {
    consistency_level.is_some_and(|level| level.eq_ignore_ascii_case("eventual"))
}
