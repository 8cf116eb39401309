//! Where it begins: with a key there is a link for a person, and with the link the person goes on to the provider.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use domain::Question;
use engine::consent::Wish;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::page::{self, Stop};
use super::site::{GOOGLE, MICROSOFT, Site};
use super::{keep, must_be_welcome, was_made_up};
use crate::App;
use crate::api::Query;
use crate::api::auth::{Principal, Writer};
use crate::api::mailbox_changes::backfill;
use crate::api::mailbox_settings::Wanted;
use crate::api::problem::Problem;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Begin {
    /// From a link that this operation gave. Nothing else is said beside it, and no key is needed.
    ticket: Option<String>,
    /// Only this mailbox; left out, whichever the person chooses.
    #[param(example = "me@acme.test")]
    address: Option<String>,
    /// How much of what is there already is wanted: `all`, `none`, or the last days, like `30d`. Left out: 30d.
    #[param(example = "30d")]
    backfill: Option<String>,
    /// Only these labels or folders, by name, with commas between them.
    folders: Option<String>,
    /// Not these.
    exclude: Option<String>,
    /// How often it is looked at.
    #[param(minimum = 1, maximum = 2_592_000)]
    interval_seconds: Option<u64>,
}

/// Where a person can connect a mailbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConsentLink)]
pub struct LinkView {
    /// To be opened in the browser of the mailbox's owner.
    url: String,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// Get a link under which the owner of a Gmail mailbox connects it in a browser. With a ticket: send them to Google.
#[utoipa::path(get, path = "/v1/oauth/google/start", operation_id = "start_google_consent", tag = "mailboxes",
    params(Begin), responses(
    (status = 200, description = "Good for ten minutes", body = LinkView),
    (status = 302, description = "With a ticket: to Google", headers(("Location" = String))),
    (status = 400, description = "With a ticket that is not valid, or not any more: a page for people", content_type = "text/html", body = String),
    (status = 409, description = "Nobody has set up Google here")))]
pub async fn start_google(State(app): State<App>, Query(begin): Query<Begin>, parts: Parts) -> Response {
    start(&app, &GOOGLE, begin, parts).await
}

/// Get a link under which the owner of an Outlook mailbox connects it in a browser. With a ticket: send them to Microsoft.
#[utoipa::path(get, path = "/v1/oauth/microsoft/start", operation_id = "start_microsoft_consent", tag = "mailboxes",
    params(Begin), responses(
    (status = 200, description = "Good for ten minutes", body = LinkView),
    (status = 302, description = "With a ticket: to Microsoft", headers(("Location" = String))),
    (status = 400, description = "With a ticket that is not valid, or not any more: a page for people", content_type = "text/html", body = String),
    (status = 409, description = "Nobody has set up Microsoft here")))]
pub async fn start_microsoft(State(app): State<App>, Query(begin): Query<Begin>, parts: Parts) -> Response {
    start(&app, &MICROSOFT, begin, parts).await
}

async fn start(app: &App, site: &Site, begin: Begin, mut parts: Parts) -> Response {
    match &begin.ticket {
        Some(ticket) => match send(app, site, &parts, ticket).await {
            Ok(response) => response,
            Err(stop) => stop.answer(&parts.headers),
        },
        None => match link(app, site, begin, &mut parts).await {
            Ok(view) => page::quiet(Json(view).into_response()),
            Err(problem) => problem.into_response(),
        },
    }
}

async fn link(app: &App, site: &Site, begin: Begin, parts: &mut Parts) -> Result<LinkView, Problem> {
    let by = Writer::from_request_parts(parts, app).await?;
    if !app.consents.contains_key(&site.provider) {
        return Err(Problem::conflict(site.not_set_up));
    }
    let address = match &begin.address {
        None => None,
        Some(text) => {
            let address = domain::address::canonical(text);
            Some(address.ok_or_else(|| Problem::invalid("address", "it is like somebody@somewhere"))?)
        }
    };
    let names = |text: Option<String>| text.map(|text| text.split(',').map(|name| name.trim().to_owned()).collect());
    let wanted = Wanted {
        folders: names(begin.folders),
        exclude: names(begin.exclude),
        interval_seconds: begin.interval_seconds,
        ..Wanted::default()
    };
    let wish = Wish {
        tenant: by.store.id,
        provider: site.provider,
        actor: by.actor(),
        address,
        settings: wanted.of_any_mailbox()?,
        backfill: backfill(begin.backfill.as_deref())?,
    };
    let (ticket, expires_at) = app.engine.consent_ticket(&wish).await?;
    Ok(LinkView { url: format!("{}{}?ticket={ticket}", app.edge.settings.public_url, site.start), expires_at })
}

async fn send(app: &App, site: &Site, parts: &Parts, ticket: &str) -> Result<Response, Stop> {
    must_be_welcome(parts, app, ticket)?;
    let wish = app.engine.open_ticket(ticket).await?.filter(|wish| wish.provider == site.provider);
    let Some(wish) = wish else {
        was_made_up(parts, app, ticket);
        let text = "This link is not valid, or its ten minutes have passed. Ask for a new one.";
        return Err(Stop::new(StatusCode::BAD_REQUEST, "This link is not valid", text));
    };
    let Some(provider) = app.consents.get(&site.provider) else {
        return Err(Stop::new(StatusCode::CONFLICT, "That did not work", site.not_set_up));
    };
    let redirect_uri = format!("{}{}", app.edge.settings.public_url, site.callback);
    let address = wish.address.clone();
    let begun = app.engine.begin_consent(wish, redirect_uri.clone()).await?;
    let url = provider.ask(&Question {
        redirect_uri: &redirect_uri,
        state: &begun.state,
        challenge: &begun.challenge,
        address: address.as_deref(),
    });
    let mut response = page::redirect(&url);
    keep(&mut response, app, &begun.cookie.0, begun.cookie.1.expose());
    Ok(response)
}
