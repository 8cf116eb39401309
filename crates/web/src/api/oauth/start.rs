//! Start of the consent: creates a link for a person, and redirects the person who opens it to the provider.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use domain::{AuthorizationRequest, MailboxSettings};
use engine::credentials::consent::ConsentRequest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::page::{self, ConsentFailure};
use super::site::ConsentSite;
use super::{check_throttle, record_forgery, set_cookie};
use crate::App;
use crate::api::auth::{ChangeActor, TenantWriter};
use crate::api::mailbox_changes::resolve_backfill;
use crate::api::users::parse_address;
use crate::api::{Path, Query};
use crate::problem::Problem;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StartConsentParams {
    /// Ticket of a link from this operation. Needs no key and no other parameters.
    ticket: Option<String>,
    /// Only this mailbox. Default: the person chooses.
    #[param(example = "me@acme.test")]
    address: Option<String>,
    /// How much existing mail to fetch: `all`, `none`, or a number of days, such as `30d`. Default: the tenant's setting, else
    /// `sync.backfill`.
    #[param(example = "30d")]
    backfill: Option<String>,
    /// Names of the labels or folders to sync, separated by commas.
    folders: Option<String>,
    /// Names of labels or folders not to sync, separated by commas.
    exclude: Option<String>,
    /// Seconds between syncs.
    #[param(minimum = 1, maximum = 2_592_000)]
    interval_seconds: Option<u64>,
}

/// Link by which a person connects a mailbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConsentLink)]
pub struct LinkView {
    /// URL to open in the browser of the mailbox's owner.
    url: String,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// Get a link by which the owner of a mailbox connects it in a browser.
///
/// With a ticket: redirect the owner to the provider.
#[utoipa::path(get, path = "/v1/oauth/{provider}/start", operation_id = "start_consent", tag = "mailboxes",
    params(("provider" = String, Path, description = "Provider of the mailbox"), StartConsentParams), responses(
    (status = 200, description = "A link that is valid for ten minutes", body = LinkView),
    (status = 302, description = "With a ticket: redirect to the provider", headers(("Location" = String))),
    (status = 400, description = "With an invalid or expired ticket: a page for people", content_type = "text/html", body = String),
    (status = 409, description = "The provider is not configured on this server")))]
pub async fn start(
    State(app): State<App>,
    Path(segment): Path<String>,
    Query(params): Query<StartConsentParams>,
    parts: Parts,
) -> Response {
    match ConsentSite::find(app.providers, &segment) {
        Some(site) => start_at(&app, site, params, parts).await,
        None => Problem::no_such_route().into_response(),
    }
}

/// Starts a consent at this provider.
pub async fn start_at(app: &App, site: ConsentSite, params: StartConsentParams, mut parts: Parts) -> Response {
    match &params.ticket {
        Some(ticket) => match redirect_to_provider(app, site, &parts, ticket).await {
            Ok(response) => response,
            Err(failure) => failure.answer(&parts.headers),
        },
        None => match create_link(app, site, params, &mut parts).await {
            Ok(view) => page::without_caching(Json(view).into_response()),
            Err(problem) => problem.into_response(),
        },
    }
}

async fn create_link(
    app: &App,
    site: ConsentSite,
    params: StartConsentParams,
    parts: &mut Parts,
) -> Result<LinkView, Problem> {
    let by = TenantWriter::from_request_parts(parts, app).await?;
    if !app.consents.contains_key(&site.provider) {
        return Err(Problem::conflict(site.consent.not_configured));
    }
    let address = params.address.as_deref().map(parse_address).transpose()?;
    let settings = MailboxSettings {
        folders: params.folders.as_deref().map(split_names),
        exclude: params.exclude.as_deref().map(split_names),
        interval_seconds: params.interval_seconds,
        ..MailboxSettings::default()
    };
    settings.check().map_err(Problem::from)?;
    let request = ConsentRequest {
        tenant: by.store.id,
        provider: site.provider,
        actor: by.actor(),
        address,
        settings,
        backfill: resolve_backfill(app, &by.store.tenant_settings().await?, params.backfill.as_deref())?,
    };
    let (ticket, expires_at) = app.engine.create_consent_ticket(&request).await?;
    Ok(LinkView {
        url: format!("{}{}?ticket={ticket}", app.edge.settings.public_url, site.consent.start_path()),
        expires_at,
    })
}

fn split_names(text: &str) -> Vec<String> {
    text.split(',').map(|name| name.trim().to_owned()).collect()
}

async fn redirect_to_provider(
    app: &App,
    site: ConsentSite,
    parts: &Parts,
    ticket: &str,
) -> Result<Response, ConsentFailure> {
    check_throttle(parts, app, ticket)?;
    let request = app.engine.open_ticket(ticket).await?.filter(|request| request.provider == site.provider);
    let Some(request) = request else {
        record_forgery(parts, app, ticket);
        let text = "This link is invalid, or older than ten minutes. Ask for a new one.";
        return Err(ConsentFailure::new(StatusCode::BAD_REQUEST, "This link is not valid", text));
    };
    let Some(provider) = app.consents.get(&site.provider) else {
        return Err(ConsentFailure::new(StatusCode::CONFLICT, "Connecting failed", site.consent.not_configured));
    };
    let redirect_uri = format!("{}{}", app.edge.settings.public_url, site.consent.callback_path());
    let address = request.address.clone();
    let begun = app.engine.begin_consent(request, redirect_uri.clone()).await?;
    let url = provider.authorization_url(&AuthorizationRequest {
        redirect_uri: &redirect_uri,
        state: &begun.state,
        challenge: &begun.challenge,
        address: address.as_deref(),
    });
    let mut response = page::redirect(&url);
    set_cookie(&mut response, app, &begun.cookie.0, begun.cookie.1.expose());
    Ok(response)
}
