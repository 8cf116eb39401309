//! The HTTP API under `/v1`, described by `/openapi.json`.
//!
//! Each route is declared beside its handler, so that the description and the router cannot differ.

mod attachments;
mod audit;
mod auth;
mod body;
mod caller;
mod change;
mod connection_body;
mod deliveries;
mod directories;
mod download;
mod emails;
mod event_types;
mod events;
mod job_changes;
mod jobs;
mod keys;
mod mailbox_changes;
mod mailbox_settings;
mod mailboxes;
mod oauth;
mod openapi;
mod page;
mod settings_schemas;
mod signed_urls;
mod tenant_settings;
mod tenants;
mod usage;
mod users;
mod webhooks;

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::App;
use crate::parameters::{Path, Query};
use crate::problem::{self, Problem};
pub use change::InFlightKeys;

/// Header that makes a repeated request safe.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "for the OpenAPI description only")]
struct IdempotencyKey {
    /// Makes the request safe to repeat: for 24 hours, a request with the same key gets the same response and changes
    /// nothing again.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    key: Option<String>,
}

/// Header that makes a change conditional.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "for the OpenAPI description only")]
struct IfMatch {
    /// Makes the change only if the current version has this `ETag`; otherwise the response is 412.
    #[param(rename = "If-Match")]
    tags: Option<String>,
}

pub fn router(app: &App) -> Router<App> {
    let (routes, mut description) = OpenApiRouter::with_openapi(openapi::base_description())
        .routes(routes!(tenants::list, tenants::create))
        .routes(routes!(tenants::get, tenants::change, tenants::delete))
        .routes(routes!(tenants::undelete))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(usage::usage))
        .routes(routes!(mailboxes::list, mailbox_changes::create))
        .routes(routes!(mailboxes::get, mailbox_changes::change, mailbox_changes::delete))
        .routes(routes!(mailbox_changes::sync))
        .routes(routes!(mailbox_changes::apply_removals))
        .routes(routes!(mailbox_changes::pause))
        .routes(routes!(mailbox_changes::resume))
        .routes(routes!(mailboxes::health))
        .routes(routes!(mailboxes::folders))
        .routes(routes!(mailboxes::completeness))
        .routes(routes!(directories::list))
        .routes(routes!(directories::get, directories::put, directories::delete))
        .routes(routes!(directories::discover))
        .routes(routes!(users::list))
        .routes(routes!(oauth::start))
        .routes(routes!(oauth::end))
        .routes(routes!(emails::list))
        .routes(routes!(emails::get, emails::delete))
        .routes(routes!(emails::raw))
        .routes(routes!(emails::restore))
        .routes(routes!(attachments::get))
        .routes(routes!(attachments::content))
        .routes(routes!(signed_urls::url))
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
        .routes(routes!(crate::hooks::notify))
        .split_for_parts();
    let routes = oauth::add_declared_routes(app, routes, &mut description);
    let routes = crate::hooks::add_declared_routes(app, routes, &mut description);
    connection_body::describe_fields(&mut description, app.providers);
    openapi::add_common_responses(&mut description);
    Router::new()
        .merge(routes.with_state(app.clone()))
        .route("/openapi.json", get(|| async move { Json(description) }))
        .fallback(|| async { Problem::no_such_route() })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this route does not support the method")
        })
}
