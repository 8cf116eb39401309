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
mod describe;
mod directories;
mod download;
mod emails;
mod events;
mod job_changes;
mod jobs;
mod keys;
mod mailbox_changes;
mod mailbox_settings;
mod mailboxes;
mod oauth;
mod page;
mod problem;
mod signed;
mod tenants;
mod usage;
mod users;
mod webhooks;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::App;
pub use change::UnderWay;
pub use oauth::Site;
pub use problem::Problem;

/// As axum's, but what is wrong is told as a problem.
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Problem))]
struct Query<T>(T);

#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
struct Path<T>(T);

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

pub fn router(app: &App) -> Router<App> {
    let (routes, mut description) = OpenApiRouter::with_openapi(describe::begin())
        .routes(routes!(tenants::list, tenants::create))
        .routes(routes!(tenants::get, tenants::change, tenants::delete))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(usage::usage))
        .routes(routes!(mailboxes::list, mailbox_changes::create))
        .routes(routes!(mailboxes::get, mailbox_changes::change, mailbox_changes::delete))
        .routes(routes!(mailbox_changes::sync))
        .routes(routes!(mailbox_changes::pause))
        .routes(routes!(mailbox_changes::resume))
        .routes(routes!(mailboxes::health))
        .routes(routes!(mailboxes::folders))
        .routes(routes!(mailboxes::completeness))
        .routes(routes!(directories::list))
        .routes(routes!(directories::get, directories::put, directories::delete))
        .routes(routes!(directories::discover))
        .routes(routes!(users::list))
        .routes(routes!(oauth::start_google))
        .routes(routes!(oauth::end_google))
        .routes(routes!(oauth::start_microsoft))
        .routes(routes!(oauth::end_microsoft))
        .routes(routes!(emails::list))
        .routes(routes!(emails::get, emails::delete))
        .routes(routes!(emails::raw))
        .routes(routes!(attachments::get))
        .routes(routes!(attachments::content))
        .routes(routes!(signed::url))
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
        .routes(routes!(crate::hooks::gmail::notify))
        .routes(routes!(crate::hooks::graph::notify))
        .routes(routes!(crate::hooks::graph::tell_lifecycle))
        .with_state::<App>(app.clone())
        .split_for_parts();
    describe::complete(&mut description);
    Router::new()
        .merge(routes.with_state(app.clone()))
        .route("/openapi.json", get(|| async move { Json(description) }))
        .fallback(|| async { Problem::nowhere() })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this address does not take that method")
        })
}
