//! The HTTP API: what CONTRACT names under `/v1`, described by `/openapi.json`.
//!
//! Every route is declared beside its handler, so the description and the router cannot differ.

mod attachments;
mod audit;
mod auth;
mod body;
mod caller;
mod change;
mod deliveries;
mod download;
mod emails;
mod events;
mod job_changes;
mod jobs;
mod keys;
mod mailbox_changes;
mod mailbox_settings;
mod mailboxes;
mod page;
mod problem;
mod tenants;
mod webhooks;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi as Description, SecurityRequirement};
use utoipa::{IntoParams, IntoResponses, Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::App;
pub use change::UnderWay;
pub use problem::Problem;

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

/// What a route that changes something may answer instead.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only described")]
enum ChangeRefusals {
    #[response(status = 400, description = "The body is no JSON", content_type = "application/problem+json")]
    NoJson(#[to_schema] Problem),
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
        status = 409,
        description = "It does not go together with what is there, or a request with this key is being answered",
        content_type = "application/problem+json"
    )]
    Conflict(#[to_schema] Problem),
    #[response(
        status = 412,
        description = "It was changed since it was read",
        content_type = "application/problem+json"
    )]
    Stale(#[to_schema] Problem),
    #[response(status = 413, description = "The body is too large", content_type = "application/problem+json")]
    TooLarge(#[to_schema] Problem),
    #[response(
        status = 415,
        description = "The body does not say that it is JSON",
        content_type = "application/problem+json"
    )]
    NotSaidToBeJson(#[to_schema] Problem),
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

/// With it a request can be sent again: it is answered the same for 24 hours, and nothing happens twice.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only described")]
struct IdempotencyKey {
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    key: Option<String>,
}

/// Only if it is still the version with this `ETag`.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only described")]
struct IfMatch {
    #[param(rename = "If-Match")]
    tags: Option<String>,
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
        .routes(routes!(tenants::list, tenants::create))
        .routes(routes!(tenants::get, tenants::change, tenants::delete))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(tenants::usage))
        .routes(routes!(mailboxes::list, mailbox_changes::create))
        .routes(routes!(mailboxes::get, mailbox_changes::change, mailbox_changes::delete))
        .routes(routes!(mailbox_changes::sync))
        .routes(routes!(mailbox_changes::pause))
        .routes(routes!(mailbox_changes::resume))
        .routes(routes!(mailboxes::health))
        .routes(routes!(mailboxes::folders))
        .routes(routes!(mailboxes::completeness))
        .routes(routes!(emails::list))
        .routes(routes!(emails::get, emails::delete))
        .routes(routes!(emails::raw))
        .routes(routes!(attachments::get))
        .routes(routes!(attachments::content))
        .routes(routes!(events::list))
        .routes(routes!(events::follow))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::get))
        .routes(routes!(jobs::why))
        .routes(routes!(job_changes::retry))
        .routes(routes!(job_changes::cancel))
        .routes(routes!(job_changes::move_to))
        .routes(routes!(jobs::dead_letters))
        .routes(routes!(job_changes::replay))
        .routes(routes!(jobs::queues))
        .routes(routes!(job_changes::pause_queue))
        .routes(routes!(job_changes::resume_queue))
        .routes(routes!(jobs::recurring))
        .routes(routes!(job_changes::run_recurring))
        .routes(routes!(job_changes::pause_recurring))
        .routes(routes!(job_changes::resume_recurring))
        .routes(routes!(audit::list))
        .routes(routes!(webhooks::list, webhooks::create))
        .routes(routes!(webhooks::get, webhooks::change, webhooks::delete))
        .routes(routes!(webhooks::rotate))
        .routes(routes!(deliveries::ping))
        .routes(routes!(deliveries::list))
        .routes(routes!(deliveries::get))
        .routes(routes!(deliveries::resend))
        .routes(routes!(deliveries::resend_since))
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
