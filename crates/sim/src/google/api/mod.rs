//! What programs ask Google: signing in, the Gmail API and many calls of it in one, and who there is in an organisation.

mod batch;
mod call;
mod directory;
mod history;
mod labels;
mod mailbox;
mod messages;
mod payload;
mod refusals;

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Uri};
use axum::routing::{any, get, post};
use bytes::Bytes;

use super::faults::{Kind, Route};
use super::oauth;
use super::world::World;
use crate::answer::Answer;
use crate::form::pairs;

type Wide = State<Arc<World>>;

/// Bodies are batches at most.
const MOST_BYTES: usize = 8 << 20;

pub fn routes() -> Router<Arc<World>> {
    Router::new()
        .route("/o/oauth2/v2/auth", get(authorize).post(decide))
        .route("/token", post(token))
        .route("/revoke", post(revoke))
        .route("/oauth2/v3/certs", get(certs))
        .route("/oauth2/v2/userinfo", any(method))
        .route("/gmail/v1/users/{*rest}", any(method))
        .route("/admin/directory/v1/{*rest}", any(method))
        .route("/batch/gmail/v1", post(many))
        .layer(axum::extract::DefaultBodyLimit::max(MOST_BYTES))
}

async fn authorize(State(world): Wide, RawQuery(query): RawQuery) -> Answer {
    let query = pairs(&query.unwrap_or_default());
    outside(&world, Route::Authorize, "GET", "", || oauth::show(&world, &query)).await
}

async fn decide(State(world): Wide, body: Bytes) -> Answer {
    let form = pairs(&String::from_utf8_lossy(&body));
    outside(&world, Route::Authorize, "POST", "", || oauth::decide(&world, &form)).await
}

async fn token(State(world): Wide, head: HeaderMap, body: Bytes) -> Answer {
    let form = pairs(&String::from_utf8_lossy(&body));
    let (authorization, account) = (text(&head, AUTHORIZATION), oauth::whose(&world, &form));
    outside(&world, Route::Token, "POST", &account, || oauth::token(&world, authorization, &form)).await
}

async fn revoke(State(world): Wide, body: Bytes) -> Answer {
    let form = pairs(&String::from_utf8_lossy(&body));
    let account = oauth::whose(&world, &form);
    outside(&world, Route::Revoke, "POST", &account, || oauth::revoke(&world, &form)).await
}

async fn certs(State(world): Wide) -> Answer {
    let age = "public, max-age=19800, must-revalidate, no-transform";
    let answer = || Answer::json(world.oauth.certs()).with(CACHE_CONTROL, age);
    outside(&world, Route::Certs, "GET", "", answer).await
}

/// A route that is not asked with an access token: it waits, fails on purpose, answers and is written down.
async fn outside(world: &World, route: Route, verb: &str, account: &str, answer: impl FnOnce() -> Answer) -> Answer {
    world.wait().await;
    let faults = world.faults.draw(account, route);
    let answer = match refusals::instead_of_oauth(&faults).await {
        Some(answer) => answer,
        None => answer(),
    };
    world.requests.add(verb, route, account, answer.status, false);
    answer.spoil(&faults)
}

async fn method(State(world): Wide, verb: Method, uri: Uri, head: HeaderMap, body: Bytes) -> Answer {
    world.wait().await;
    let asked = call::Asked {
        verb: verb.as_str(),
        target: uri.path_and_query().map_or("/", |target| target.as_str()),
        authorization: text(&head, AUTHORIZATION),
        body: &body,
        in_batch: false,
    };
    call::call(&world, &asked).await
}

async fn many(State(world): Wide, head: HeaderMap, body: Bytes) -> Answer {
    world.wait().await;
    let authorization = text(&head, AUTHORIZATION);
    let account = call::opened(&world, authorization).map(|access| access.account).unwrap_or_default();
    let faults = world.faults.draw(&account, Route::Batch);
    let answer = match refusals::instead(&faults).await {
        Some(answer) => answer,
        None => {
            batch::answer(&world, text(&head, CONTENT_TYPE).unwrap_or_default(), authorization, &body, &faults).await
        }
    };
    world.requests.add("POST", Route::Batch, &account, answer.status, false);
    answer.spoil(&faults)
}

fn text(head: &HeaderMap, name: axum::http::HeaderName) -> Option<&str> {
    head.get(name).and_then(|value| value.to_str().ok())
}

/// Whether a fault of this kind has come.
fn has(faults: &[Kind], kind: &Kind) -> bool {
    faults.contains(kind)
}
