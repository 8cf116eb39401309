//! What programs ask Microsoft: signing in, Graph, and many calls of it in one.

mod attachments;
mod batch;
mod call;
mod delta;
mod folders;
mod groups;
mod messages;
mod prefer;
mod refusals;
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

use super::faults::Route;
use super::identity;
use super::spec;
use super::world::World;
use crate::answer::{Answer, Body};
use crate::form::{pairs, value};
use crate::spec::Side;

type Wide = State<Arc<World>>;

/// Bodies are batches at most.
const MOST_BYTES: usize = 8 << 20;

pub fn routes() -> Router<Arc<World>> {
    Router::new()
        .route("/{tenant}/v2.0/.well-known/openid-configuration", get(configuration))
        .route("/{tenant}/discovery/v2.0/keys", get(keys))
        .route("/{tenant}/oauth2/v2.0/authorize", get(authorize).post(decide))
        .route("/{tenant}/oauth2/v2.0/token", post(token))
        .route("/{tenant}/v2.0/adminconsent", get(ask_admin).post(decide_as_admin))
        .route("/{tenant}/adminconsent", get(ask_admin).post(decide_as_admin))
        .route("/v1.0/$batch", post(many))
        .route("/v1.0/{*rest}", any(method))
        .layer(axum::extract::DefaultBodyLimit::max(MOST_BYTES))
}

async fn configuration(State(world): Wide, Path(tenant): Path<String>) -> Answer {
    outside(&world, Route::Discovery, "GET", "", || identity::configuration(&world, &tenant)).await
}

async fn keys(State(world): Wide, Path(tenant): Path<String>) -> Answer {
    outside(&world, Route::Keys, "GET", "", || identity::keys(&world, &tenant)).await
}

async fn authorize(State(world): Wide, Path(tenant): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let query = pairs(&query.unwrap_or_default());
    outside(&world, Route::Authorize, "GET", "", || identity::show(&world, &tenant, &query)).await
}

async fn decide(State(world): Wide, Path(tenant): Path<String>, body: Bytes) -> Answer {
    let form = pairs(&String::from_utf8_lossy(&body));
    outside(&world, Route::Authorize, "POST", "", || identity::decide(&world, &tenant, &form)).await
}

async fn ask_admin(State(world): Wide, Path(tenant): Path<String>, uri: Uri) -> Answer {
    let query = pairs(uri.query().unwrap_or_default());
    outside(&world, Route::AdminConsent, "GET", "", || identity::ask_admin(&world, &tenant, uri.path(), &query)).await
}

async fn decide_as_admin(State(world): Wide, Path(tenant): Path<String>, body: Bytes) -> Answer {
    let form = pairs(&String::from_utf8_lossy(&body));
    outside(&world, Route::AdminConsent, "POST", "", || identity::decide_as_admin(&world, &tenant, &form)).await
}

async fn token(State(world): Wide, Path(tenant): Path<String>, head: HeaderMap, body: Bytes) -> Answer {
    let form = pairs(&String::from_utf8_lossy(&body));
    let (authorization, account) = (text(&head, AUTHORIZATION), identity::whose(&world, &form));
    let _under_way = value(&form, "refresh_token").map(|_| world.identity.refreshing(&account));
    outside(&world, Route::Token, "POST", &account, || {
        let answer = identity::token(&world, &tenant, authorization, &form);
        if let Body::Json(body) = &answer.body
            && let Err(why) = spec::check_token(answer.status, body)
        {
            world.violations.add(Side::Response, Route::Token.as_str(), &why);
        }
        answer
    })
    .await
}

/// A route that is not asked with an access token: it waits, fails on purpose, answers and is written down.
async fn outside(world: &World, route: Route, verb: &str, account: &str, answer: impl FnOnce() -> Answer) -> Answer {
    world.wait().await;
    let faults = world.faults.draw(account, route);
    let answer = match refusals::instead_of_identity(world, &faults).await {
        Some(answer) => answer,
        None => answer(),
    };
    world.requests.add(verb, route, account, answer.status, false);
    answer.spoil(&faults)
}

async fn method(State(world): Wide, verb: Method, uri: Uri, head: HeaderMap, body: Bytes) -> Answer {
    let asked = call::Asked {
        verb: verb.as_str(),
        target: uri.path_and_query().map_or("/", |target| target.as_str()),
        authorization: text(&head, AUTHORIZATION),
        prefer: head.get_all("prefer").iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(", "),
        is_eventual: is_eventual(head.get("consistencylevel").and_then(|value| value.to_str().ok())),
        body: &body,
        in_batch: false,
    };
    call::alone(&world, &asked).await
}

async fn many(State(world): Wide, head: HeaderMap, body: Bytes) -> Answer {
    let authorization = text(&head, AUTHORIZATION);
    let access = call::opened(&world, authorization);
    let named = batch::first_user(&body);
    let (_under_way, refusal) = call::begun(&world, access.as_ref(), named.as_deref()).unzip();
    world.wait().await;
    let account = access.as_ref().and_then(|access| access.asked.account.clone()).unwrap_or_default();
    let faults = world.faults.draw(&account, Route::Batch);
    let answer = match (refusals::instead(&world, &faults).await, refusal.flatten(), access) {
        (Some(answer), _, _) => answer,
        (None, Some(refusal), _) => refusal.answer(&world),
        (None, None, Some(_)) => batch::answer(&world, authorization, &body, &faults).await,
        (None, None, None) => call::unauthenticated().answer(&world),
    };
    world.requests.add("POST", Route::Batch, &account, answer.status, false);
    answer.spoil(&faults)
}

/// What some questions about people need.
fn is_eventual(consistency_level: Option<&str>) -> bool {
    consistency_level.is_some_and(|level| level.eq_ignore_ascii_case("eventual"))
}

fn text(head: &HeaderMap, name: axum::http::HeaderName) -> Option<&str> {
    head.get(name).and_then(|value| value.to_str().ok())
}
