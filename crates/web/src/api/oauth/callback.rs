//! End of the consent: the provider redirects a person back, with a code or an error.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use domain::{
    ConnectorError, ConsentFlow, ConsentGrant, MailboxSettings, MailboxState, Provider, Secret, redact_for_log,
};
use engine::credentials::consent::{ConsentError, ConsentRequest, ConsentReturn};
use engine::credentials::grant_leases::GrantLease;
use engine::operations::mailboxes::{self, ConnectRequest};
use engine::operations::{Invocation, Origin, Refusal};
use serde::Deserialize;
use serde_json::json;
use store::sql::mailboxes::Mailbox;
use store::{Precondition, StoreError};
use tracing::Instrument as _;
use utoipa::IntoParams;

use super::page::{self, ConsentFailure};
use super::site::ConsentSite;
use super::{check_throttle, cookie, record_forgery, set_cookie};
use crate::App;
use crate::api::caller::admit;
use crate::api::{Path, Problem, Query};
use crate::edge::{ClientAddress, RequestId};

/// How long to wait for another process that holds the grant of the same account.
const GRANT_WAIT: Duration = Duration::from_secs(5);

/// Attempts to connect a mailbox that others change at the same time.
const MAX_CONNECT_ATTEMPTS: usize = 5;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ConsentCallbackParams {
    /// State that was sent to the provider.
    state: Option<String>,
    /// Authorisation code.
    code: Option<String>,
    /// Error code, without a code.
    error: Option<String>,
    /// `True` after admin consent to a directory.
    admin_consent: Option<String>,
}

/// Redirect URI of a provider: connects the mailbox, or shows a page with the reason why not. Needs no key.
///
/// Also the redirect URI of admin consent to a directory.
#[utoipa::path(get, path = "/v1/oauth/{provider}/callback", operation_id = "end_consent", tag = "mailboxes",
    params(("provider" = String, Path, description = "Provider of the mailbox"), ConsentCallbackParams), security(()), responses(
    (status = 200, description = "A page: the mailbox is connected", content_type = "text/html", body = String),
    (status = 400, description = "A page: the state or code is invalid or expired", content_type = "text/html", body = String),
    (status = 403, description = "A page: consent was refused, or started in another browser", content_type = "text/html", body = String),
    (status = 409, description = "A page: another mailbox was chosen, or it is connected in another way", content_type = "text/html", body = String)))]
pub async fn end(
    State(app): State<App>,
    Path(segment): Path<String>,
    Query(params): Query<ConsentCallbackParams>,
    parts: Parts,
) -> Response {
    match ConsentSite::find(app.providers, &segment) {
        Some(site) => end_at(&app, site, params, &parts).await,
        None => Problem::no_such_route().into_response(),
    }
}

/// Ends a consent at this provider.
pub async fn end_at(app: &App, site: ConsentSite, params: ConsentCallbackParams, parts: &Parts) -> Response {
    let mut used = None;
    let mut response = match complete(app, site, parts, params, &mut used).await {
        Ok(response) => response,
        Err(failure) => {
            tracing::info!(
                provider = site.provider.as_str(),
                http.status = failure.status.as_u16(),
                error = failure.title,
                "consent failed"
            );
            failure.answer(&parts.headers)
        }
    };
    if let Some(cookie) = used {
        set_cookie(&mut response, app, &cookie, "");
    }
    response
}

async fn complete(
    app: &App,
    site: ConsentSite,
    parts: &Parts,
    params: ConsentCallbackParams,
    used: &mut Option<String>,
) -> Result<Response, ConsentFailure> {
    let state = params.state.as_deref().unwrap_or_default();
    check_throttle(parts, app, state)?;
    if site.consent.has_admin_consent
        && let Some(directory) = app.engine.end_admin_consent(state).await?
    {
        return admin_consent_page(parts, &params, &directory);
    }
    let returned = open(app, site, parts, state).await?;
    *used = Some(returned.cookie.clone());
    let request = &returned.request;
    let tenant = app.engine.store.system().find_tenant(&request.tenant.to_string()).await?;
    let Some(tenant) = tenant.filter(|tenant| tenant.is_active) else {
        return Err(forbidden("Nothing was connected", "The organisation that asked for this is not active any more."));
    };
    admit(parts, app, tenant.id, tenant.plan_tier).await?;
    let code = code(site, params)?;
    let provider = app.consents.get(&site.provider);
    let provider = provider
        .ok_or_else(|| ConsentFailure::new(StatusCode::CONFLICT, "Connecting failed", site.consent.not_configured))?;
    let exchange = CodeExchange { app: app.clone(), site, provider: provider.clone(), parts: parts.clone(), returned };
    // A task of its own: a person who closes or reloads the page must not lose the grant just given.
    let task = tokio::spawn(async move { exchange.run(&code).await }.in_current_span());
    let mailbox = task.await.map_err(|_| anyhow::anyhow!("the code exchange was aborted"))??;
    Ok(connected_page(parts, &mailbox, &tenant.name))
}

/// Exchanges an authorisation code for a grant and connects the mailbox with it.
struct CodeExchange {
    app: App,
    site: ConsentSite,
    provider: Arc<dyn ConsentFlow>,
    parts: Parts,
    returned: ConsentReturn,
}

impl CodeExchange {
    async fn run(&self, code: &Secret<String>) -> Result<Mailbox, ConsentFailure> {
        // Held before the exchange, so that no other process revokes the new grant together with an old one.
        let grant = match &self.returned.request.address {
            Some(address) => self.hold_grant(address).await?,
            None => None,
        };
        let mailbox = self.consented(code).await;
        if let Some(grant) = grant {
            grant.release().await;
        }
        mailbox
    }

    async fn consented(&self, code: &Secret<String>) -> Result<Mailbox, ConsentFailure> {
        let Self { app, site, provider, parts, returned } = self;
        let exchanged = provider.exchange(code, &returned.verifier, &returned.redirect_uri).await;
        let consented = exchanged.map_err(|e| exchange_failure(*site, &e))?;
        let grant = match consented_address(&consented).filter(|_| returned.request.address.is_none()) {
            Some(address) => match self.hold_grant(&address).await {
                Ok(grant) => grant,
                Err(failure) => {
                    revoke_later(app.clone(), provider.clone(), consented, address);
                    return Err(failure);
                }
            },
            None => None,
        };
        let outcome = match connect(app, *site, parts, returned, &consented).await {
            Err(failure) => Err(revoke(app, provider.as_ref(), &consented, failure).await),
            connected => connected,
        };
        if let Some(grant) = grant {
            grant.release().await;
        }
        outcome
    }

    /// Holds the grant of the account, so that no other process revokes it. Returns `None` if only its owner can revoke it.
    async fn hold_grant(&self, address: &str) -> Result<Option<GrantLease>, ConsentFailure> {
        if self.provider.revocation_page().is_some() {
            return Ok(None);
        }
        let held = self.app.engine.wait_for_grant_lease(self.site.provider, address, GRANT_WAIT).await?;
        held.map(Some).ok_or_else(|| {
            let text = "This account is being connected or removed by another request. Start again in a while.";
            ConsentFailure::new(StatusCode::CONFLICT, "Please start again", text)
        })
    }
}

fn consented_address(consented: &ConsentGrant) -> Option<String> {
    consented.address.as_deref().and_then(domain::address::canonical)
}

fn code(site: ConsentSite, params: ConsentCallbackParams) -> Result<Secret<String>, ConsentFailure> {
    match (params.error.as_deref(), params.code) {
        (Some("access_denied"), _) => {
            Err(forbidden("Nothing was connected", "You did not give your consent. Nothing has changed."))
        }
        (Some(_), _) => {
            let name = site.consent.name;
            let text =
                format!("{name} refused the request; its page has the reason. Nothing has changed; start again.");
            Err(ConsentFailure::new(StatusCode::BAD_REQUEST, "The provider refused", text))
        }
        (None, None) => Err(start_again("There is no code in this URL.")),
        (None, Some(code)) => Ok(Secret::new(code)),
    }
}

/// Shows the outcome of admin consent, which changes nothing here.
fn admin_consent_page(
    parts: &Parts,
    params: &ConsentCallbackParams,
    directory: &str,
) -> Result<Response, ConsentFailure> {
    let has_agreed = params.admin_consent.as_deref().is_some_and(|said| said.eq_ignore_ascii_case("true"));
    if params.error.is_some() || !has_agreed {
        let text = format!("No administrator of {directory} gave consent. Nothing has changed.");
        return Err(forbidden("Mailroom was not authorised", text));
    }
    let text =
        format!("{directory} has authorised Mailroom. Its operator can add mailboxes now. You can close this page.");
    let json = json!({"directory": directory, "admin_consent": true});
    Ok(page::done(&parts.headers, "Mailroom is authorised", &text, json))
}

async fn open(app: &App, site: ConsentSite, parts: &Parts, state: &str) -> Result<ConsentReturn, ConsentFailure> {
    match app.engine.end_consent(state, |name| cookie(&parts.headers, name)).await? {
        // A state that was sent to one provider must not come back from another.
        Ok(returned) if returned.request.provider == site.provider => Ok(returned),
        Ok(_) | Err(ConsentError::Invalid) => {
            record_forgery(parts, app, state);
            Err(start_again("This URL was altered, or is older than ten minutes."))
        }
        Err(ConsentError::OtherBrowser) => {
            let text = "This was started in another browser. Open the link again in this one, or go back to the other.";
            Err(forbidden("Another browser", text))
        }
    }
}

fn start_again(why: &str) -> ConsentFailure {
    ConsentFailure::new(
        StatusCode::BAD_REQUEST,
        "Please start again",
        format!("{why} Nothing has changed; start again."),
    )
}

fn forbidden(title: &'static str, text: impl Into<String>) -> ConsentFailure {
    ConsentFailure::new(StatusCode::FORBIDDEN, title, text)
}

fn exchange_failure(site: ConsentSite, e: &ConnectorError) -> ConsentFailure {
    let name = site.consent.name;
    match e {
        ConnectorError::Unauthorized(_) => {
            start_again(&format!("{name} does not accept this code: it was used before, or has expired."))
        }
        ConnectorError::AppRejected(_) => {
            tracing::warn!(
                provider = site.provider.as_str(),
                error = redact_for_log(e),
                "provider rejected our OAuth client"
            );
            let text = format!(
                "{name} does not accept this server's configuration. Tell its operator; `mailroom doctor` says more."
            );
            ConsentFailure::new(StatusCode::BAD_GATEWAY, "Connecting failed", text)
        }
        e => {
            tracing::warn!(provider = site.provider.as_str(), error = redact_for_log(e), "code exchange failed");
            let text = format!("{name} did not respond as expected. Nothing has changed; start again in a while.");
            ConsentFailure::new(StatusCode::BAD_GATEWAY, "Connecting failed", text)
        }
    }
}

/// Revokes a grant that was not used, unless a connected mailbox depends on it. Where only the owner can revoke it, the
/// page says so.
async fn revoke(
    app: &App,
    provider: &dyn ConsentFlow,
    consented: &ConsentGrant,
    mut failure: ConsentFailure,
) -> ConsentFailure {
    let is_given_back = revoke_unused(app, provider, consented).await;
    if let Some(place) = provider.revocation_page().filter(|_| is_given_back) {
        failure.text = format!("{} You can withdraw your consent at {place}.", failure.text);
    }
    failure
}

/// Returns `false` if a connected mailbox depends on the grant.
async fn revoke_unused(app: &App, provider: &dyn ConsentFlow, consented: &ConsentGrant) -> bool {
    let is_used = match &consented_address(consented) {
        Some(address) => {
            app.engine.store.system().is_account_connected(provider.provider(), address).await.unwrap_or(true)
        }
        None => false,
    };
    if is_used {
        return false;
    }
    if let Err(e) = provider.revoke(consented.secret.as_ref().unwrap_or(&consented.token)).await {
        let provider = provider.provider().as_str();
        tracing::warn!(provider, error = redact_for_log(&e), "unused grant not revoked");
    }
    true
}

/// Revokes an unused grant once the process that holds it is done: it may be about to connect the account.
fn revoke_later(app: App, provider: Arc<dyn ConsentFlow>, consented: ConsentGrant, address: String) {
    tokio::spawn(async move {
        let lease = app.engine.wait_for_grant_lease(
            provider.provider(),
            &address,
            engine::credentials::grant_leases::GRANT_LEASE_TTL * 2,
        );
        let error = match lease.await {
            Ok(Some(grant)) => {
                revoke_unused(&app, provider.as_ref(), &consented).await;
                return grant.release().await;
            }
            Ok(None) => "the grant is held by another process".to_owned(),
            Err(e) => redact_for_log(&format_args!("{e:#}")),
        };
        tracing::warn!(provider = provider.provider().as_str(), error, "unused grant not revoked");
    });
}

async fn connect(
    app: &App,
    site: ConsentSite,
    parts: &Parts,
    params: &ConsentReturn,
    consented: &ConsentGrant,
) -> Result<Mailbox, ConsentFailure> {
    let request = &params.request;
    if !consented.missing.is_empty() {
        let text = format!(
            "Mailroom needs a permission that you did not grant. Start again and tick the box that allows it to {}.",
            consented.missing.join(", and ").trim_start_matches("to ")
        );
        return Err(forbidden("A permission is missing", text));
    }
    let address = consented_address(consented);
    let address = address.ok_or_else(|| start_again(&format!("{} did not name the mailbox.", site.consent.name)))?;
    if request.address.as_ref().is_some_and(|wanted| *wanted != address) {
        let text = "You chose another account than the requested one. Start again and choose that one.";
        return Err(ConsentFailure::new(StatusCode::CONFLICT, "Another account", text));
    }
    let (store, origin) = (app.engine.store.tenant(request.tenant), origin(parts, request));
    for _ in 0..MAX_CONNECT_ATTEMPTS {
        let existing = store.find_mailbox(&address).await?;
        let connected = match &existing {
            Some(existing) if !can_be_replaced(existing) => {
                reconnect(app, site, &origin, request, existing, consented).await
            }
            _ => connect_new(app, site, &origin, request, &address, consented).await,
        };
        match connected {
            // Another request connected or changed the mailbox first.
            Err(ConnectFailure::Refusal(refusal))
                if refusal.is(Precondition::MailboxExists) || refusal.is(Precondition::MailboxChanged) => {}
            Err(ConnectFailure::Refusal(refusal)) => return Err(Problem::from(refusal).into()),
            Err(ConnectFailure::Consent(failure)) => return Err(failure),
            Ok(mailbox) => return Ok(mailbox),
        }
    }
    Err(StoreError::Precondition(Precondition::MailboxChanged).into())
}

/// The person came by a link that somebody else asked for: that is the actor.
fn origin(parts: &Parts, request: &ConsentRequest) -> Origin {
    Origin {
        actor: request.actor.clone(),
        address: parts.extensions.get::<ClientAddress>().map(|address| address.0.to_string()),
        request_id: parts.extensions.get::<RequestId>().map(ToString::to_string),
    }
}

/// Returns whether the address is free: disconnected, or for imported files only.
fn can_be_replaced(existing: &Mailbox) -> bool {
    existing.state == MailboxState::Disconnected || existing.provider == Provider::Files
}

/// Why a mailbox could not be connected.
enum ConnectFailure {
    Consent(ConsentFailure),
    Refusal(Refusal),
}

impl From<Refusal> for ConnectFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

impl From<StoreError> for ConnectFailure {
    fn from(e: StoreError) -> Self {
        Self::Refusal(e.into())
    }
}

async fn connect_new(
    app: &App,
    site: ConsentSite,
    origin: &Origin,
    request: &ConsentRequest,
    address: &str,
    consented: &ConsentGrant,
) -> Result<Mailbox, ConnectFailure> {
    let Some(secret) = consented.secret.clone() else { return Err(no_refresh_token(site)) };
    let connect = ConnectRequest {
        provider: request.provider,
        address: address.to_owned(),
        settings: MailboxSettings { connection: json!({}), ..request.settings.clone() },
        secret: Some(secret),
        backfill: request.backfill,
    };
    let call = Invocation::begin(&app.engine, origin).await?;
    Ok(mailboxes::connect(&call, request.tenant, &connect).await?)
}

/// Gives an existing mailbox new credentials; its mail and settings stay.
async fn reconnect(
    app: &App,
    site: ConsentSite,
    origin: &Origin,
    request: &ConsentRequest,
    existing: &Mailbox,
    consented: &ConsentGrant,
) -> Result<Mailbox, ConnectFailure> {
    if existing.provider != request.provider {
        let text = "This mailbox is already connected in another way. Remove it there first.";
        return Err(ConnectFailure::Consent(ConsentFailure::new(StatusCode::CONFLICT, "Already connected", text)));
    }
    if consented.secret.is_none() && existing.secret_ref.is_none() {
        return Err(no_refresh_token(site));
    }
    let given = MailboxSettings { connection: json!({}), ..request.settings.clone() };
    let settings = existing.settings.clone().overridden_by(given);
    let call = Invocation::begin(&app.engine, origin).await?;
    Ok(mailboxes::reconnect(&call, existing, settings, consented.secret.as_ref()).await?)
}

fn no_refresh_token(site: ConsentSite) -> ConnectFailure {
    let text = site.consent.no_refresh_token;
    ConnectFailure::Consent(ConsentFailure::new(StatusCode::CONFLICT, "Please start again", text))
}

fn connected_page(parts: &Parts, mailbox: &Mailbox, tenant: &str) -> Response {
    let json = json!({"mailbox_id": mailbox.id, "address": mailbox.address, "state": mailbox.state.as_str()});
    let more = if mailbox.state == MailboxState::Paused {
        "It is paused until it is resumed."
    } else {
        "Its mail is being fetched."
    };
    let text = format!("{} is connected for {tenant}. {more} You can close this page.", mailbox.address);
    page::done(&parts.headers, "The mailbox is connected", &text, json)
}
