//! The HTTP API: what CONTRACT names under `/v1`, described by `/openapi.json`.
//!
//! Every route is declared beside its handler, so the description and the router cannot differ.

mod attachments;
mod auth;
#[allow(dead_code, reason = "for the routes that change something")]
mod body;
mod download;
mod emails;
mod events;
mod jobs;
mod mailboxes;
mod page;
mod problem;
mod tenants;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi as Description, SecurityRequirement};
use utoipa::{IntoResponses, Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::App;
use problem::Problem;

/// As axum's, but what is wrong is told as a problem.
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Problem))]
struct Query<T>(T);

#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
struct Path<T>(T);

/// What any route may answer instead.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only described")]
enum Refusals {
    #[response(
        status = 401,
        description = "No key, or one that is not valid",
        content_type = "application/problem+json"
    )]
    Unauthorized(#[to_schema] Problem),
    #[response(status = 403, description = "This key may not do that", content_type = "application/problem+json")]
    Forbidden(#[to_schema] Problem),
    #[response(
        status = 404,
        description = "It is not there, or another tenant's",
        content_type = "application/problem+json"
    )]
    Absent(#[to_schema] Problem),
    #[response(
        status = 422,
        description = "Something about the request is wrong",
        content_type = "application/problem+json"
    )]
    Invalid(#[to_schema] Problem),
    #[response(
        status = 503,
        description = "What is stored cannot be reached",
        content_type = "application/problem+json"
    )]
    Unavailable(#[to_schema] Problem),
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Mailroom", description = "Mail of many mailboxes, found, read and followed."),
    modifiers(&Keys)
)]
struct Api;

struct Keys;

impl Modify for Keys {
    fn modify(&self, api: &mut Description) {
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components.get_or_insert_default().add_security_scheme("key", bearer);
        api.security = Some(vec![SecurityRequirement::new("key", [""; 0])]);
    }
}

pub fn router(app: &App) -> Router<App> {
    let (routes, description) = OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(tenants::list))
        .routes(routes!(tenants::get))
        .routes(routes!(tenants::keys))
        .routes(routes!(tenants::usage))
        .routes(routes!(mailboxes::list))
        .routes(routes!(mailboxes::get))
        .routes(routes!(mailboxes::health))
        .routes(routes!(mailboxes::folders))
        .routes(routes!(mailboxes::completeness))
        .routes(routes!(emails::list))
        .routes(routes!(emails::get))
        .routes(routes!(emails::raw))
        .routes(routes!(attachments::get))
        .routes(routes!(attachments::content))
        .routes(routes!(events::list))
        .routes(routes!(events::follow))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::get))
        .routes(routes!(jobs::why))
        .routes(routes!(jobs::dead_letters))
        .routes(routes!(jobs::queues))
        .routes(routes!(jobs::recurring))
        .with_state::<App>(app.clone())
        .split_for_parts();
    Router::new()
        .merge(routes.with_state(app.clone()))
        .route("/openapi.json", get(|| async move { Json(description) }))
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is nothing at this address") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this address does not take that method")
        })
}
