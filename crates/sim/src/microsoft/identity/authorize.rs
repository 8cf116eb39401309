//! The authorization endpoint: consent page, decision, redirect with a code.

use std::sync::Arc;

use super::super::directory::Authority;
use super::super::faults::MicrosoftRoute;
use super::super::world::{MicrosoftMailbox, MicrosoftWorld};
use super::discovery::unknown_tenant;
use super::error::IdentityError;
use super::token::check_person;
use super::token_store::MicrosoftGrant;
use super::unknown_scope;
use crate::consent::{is_challenge, is_loopback, page};
use crate::form::{FormFields, find_unknown, value};
use crate::response::SimResponse;
use crate::spec::Side;

/// The parameters that the endpoint takes; any other is refused.
const KNOWN_PARAMETERS: [&str; 12] = [
    "client_id",
    "response_type",
    "redirect_uri",
    "response_mode",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
    "prompt",
    "login_hint",
    "domain_hint",
    "nonce",
];

/// The parameters that the consent page adds.
const DECISION_PARAMETERS: [&str; 3] = ["account", "granted", "decision"];

/// Shows the consent page, or redirects at once if consent is automatic.
pub fn show(world: &MicrosoftWorld, tenant: &str, query: &FormFields) -> SimResponse {
    let authority = match check(world, tenant, query, &[]) {
        Ok(authority) => authority,
        Err(answer) => return *answer,
    };
    let consent = world.consent();
    let hint = value(query, "login_hint").filter(|hint| world.find(hint).is_some());
    let is_silent = value(query, "prompt") == Some("none");
    if !consent.auto && !is_silent {
        let action = format!("/{tenant}/oauth2/v2.0/authorize");
        let accounts = world.first_addresses(50, &authority);
        return SimResponse::text(200, page::HTML, page::consent("Microsoft", &action, query, &accounts, hint));
    }
    let account = consent
        .account
        .clone()
        .or_else(|| hint.map(str::to_owned))
        .or_else(|| world.first_addresses(1, &authority).pop());
    let Some(mailbox) = account.and_then(|account| world.find(&account)) else {
        return redirect_with_error(
            world,
            query,
            &IdentityError::new(
                "login_required",
                50_058,
                "A silent sign-in request was sent but no user is signed in.",
            ),
        );
    };
    let granted: Vec<String> = scopes(query)
        .filter(|scope| !consent.unticked.iter().any(|unticked| unticked == scope))
        .map(str::to_owned)
        .collect();
    if is_silent && !world.provider.identity.tokens().has_granted(&grant(query, &mailbox, granted.clone())) {
        let message = "The user or administrator has not consented to use the application.";
        return redirect_with_error(world, query, &IdentityError::new("consent_required", 65_001, message));
    }
    finish(world, &authority, query, (!consent.denied).then_some((mailbox, granted)))
}

/// Handles the decision that was made on the consent page.
pub fn decide(world: &MicrosoftWorld, tenant: &str, form: &FormFields) -> SimResponse {
    let authority = match check(world, tenant, form, &DECISION_PARAMETERS) {
        Ok(authority) => authority,
        Err(answer) => return *answer,
    };
    let granted = form.iter().filter(|(name, _)| name == "granted").map(|(_, scope)| scope.clone()).collect();
    if value(form, "decision") != Some("allow") {
        return finish(world, &authority, form, None);
    }
    match world.find(value(form, "account").unwrap_or_default()) {
        Some(mailbox) => finish(world, &authority, form, Some((mailbox, granted))),
        None => blocked(400, &IdentityError::request(50_034, "The user account does not exist.")),
    }
}

fn scopes(query: &FormFields) -> impl Iterator<Item = &str> {
    value(query, "scope").unwrap_or_default().split_whitespace()
}

fn grant(query: &FormFields, mailbox: &MicrosoftMailbox, scopes: Vec<String>) -> MicrosoftGrant {
    MicrosoftGrant {
        account: Some(mailbox.address.clone()),
        directory: mailbox.state.directory.clone(),
        client: value(query, "client_id").unwrap_or_default().to_lowercase(),
        scopes,
    }
}

/// Checks the request. Errors of client or redirect URI are shown to the person, others go back to the client.
fn check(
    world: &MicrosoftWorld,
    tenant: &str,
    query: &FormFields,
    more: &[&str],
) -> Result<Authority, Box<SimResponse>> {
    let authority = world.tenant(tenant).ok_or_else(|| refuse(world, &unknown_tenant(tenant)))?;
    if let Some(name) = find_unknown(query, &KNOWN_PARAMETERS, more) {
        return Err(refuse(world, &IdentityError::request(90_100, format!("unknown parameter {name:?}"))));
    }
    let id = value(query, "client_id").unwrap_or_default();
    let client = world
        .provider
        .identity
        .find_client(id)
        .ok_or_else(|| refuse(world, &super::assertion::unknown_application(id)))?;
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    if !client.redirect_uris.iter().any(|known| known == redirect_uri) && !is_loopback(redirect_uri) {
        let message = format!(
            "The redirect URI '{redirect_uri}' specified in the request does not match the redirect URIs configured for \
             the application '{id}'."
        );
        return Err(refuse(world, &IdentityError::request(50_011, message)));
    }
    check_rest(query).map_err(|wrong| {
        world.violations.add(Side::Request, MicrosoftRoute::Authorize.as_str(), &wrong.message);
        Box::new(redirect_with_error(world, query, &wrong))
    })?;
    Ok(authority)
}

/// Records a violation and shows the error to the person.
fn refuse(world: &MicrosoftWorld, error: &IdentityError) -> Box<SimResponse> {
    let why = format!("AADSTS{}: {}", error.code, error.message);
    world.violations.add(Side::Request, MicrosoftRoute::Authorize.as_str(), &why);
    Box::new(blocked(400, error))
}

fn require_one_of(query: &FormFields, name: &str, allowed: &[&str]) -> Result<(), IdentityError> {
    match value(query, name) {
        Some(given) if allowed.contains(&given) => Ok(()),
        given => Err(IdentityError::request(900_144, format!("{name} is {given:?}, not one of {allowed:?}"))),
    }
}

/// Checks the parameters whose errors go back to the client.
fn check_rest(query: &FormFields) -> Result<(), IdentityError> {
    require_one_of(query, "response_type", &["code"])?;
    require_one_of(query, "code_challenge_method", &["S256"])?;
    if value(query, "response_mode").is_some() {
        require_one_of(query, "response_mode", &["query", "form_post"])?;
    }
    if value(query, "prompt").is_some() {
        require_one_of(query, "prompt", &["login", "none", "consent", "select_account"])?;
    }
    if !is_challenge(value(query, "code_challenge").unwrap_or_default()) {
        return Err(IdentityError::request(501_491, "code_challenge is no SHA-256 in base64url"));
    }
    if scopes(query).next().is_none() {
        return Err(IdentityError::request(900_144, "The request body must contain the following parameter: 'scope'."));
    }
    match unknown_scope(scopes(query)) {
        Some(scope) => {
            let message = format!("The provided request must include a valid 'scope'. The scope {scope} is not valid.");
            Err(IdentityError::new("invalid_scope", 70_011, message))
        }
        None => Ok(()),
    }
}

fn blocked(status: u16, wrong: &IdentityError) -> SimResponse {
    let why = format!("AADSTS{}: {}", wrong.code, wrong.message);
    SimResponse::text(status, page::HTML, page::refusal(status, &wrong.error, &why))
}

/// Redirects back to the client with a code or an error.
fn finish(
    world: &MicrosoftWorld,
    authority: &Authority,
    query: &FormFields,
    granted: Option<(Arc<MicrosoftMailbox>, Vec<String>)>,
) -> SimResponse {
    let Some((mailbox, scopes)) = granted.filter(|(_, scopes)| !scopes.is_empty()) else {
        let message = "User declined to consent to access the app.";
        return redirect_with_error(world, query, &IdentityError::new("access_denied", 65_004, message));
    };
    if !authority.accepts(&mailbox.state.directory) {
        let message = format!(
            "User account '{}' does not exist in this tenant and cannot access the application.",
            mailbox.address
        );
        return blocked(400, &IdentityError::request(50_020, message));
    }
    if let Err(wrong) = check_person(world, Some(&mailbox.address)) {
        return blocked(400, &wrong);
    }
    let grant = grant(query, &mailbox, scopes);
    if !world.may_consent(&mailbox.state.directory, &grant.client) {
        return redirect_with_error(
            world,
            query,
            &IdentityError::new("access_denied", 90_094, "The grant requires admin permission."),
        );
    }
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    let challenge = value(query, "code_challenge").unwrap_or_default();
    let nonce = value(query, "nonce");
    let code = world.provider.identity.tokens_mut().give_code(grant, redirect_uri, challenge, nonce, world.now_ms());
    let [session, _] = world.provider.identity.two_guids();
    redirect_back(query, vec![("code", code), ("session_state", session)])
}

pub fn redirect_with_error(world: &MicrosoftWorld, query: &FormFields, wrong: &IdentityError) -> SimResponse {
    let uri = format!("https://login.microsoftonline.com/error?code={}", wrong.code);
    redirect_back(
        query,
        vec![("error", wrong.error.clone()), ("error_description", wrong.description(world)), ("error_uri", uri)],
    )
}

/// Redirects back to the client, by query or by a self-submitting form.
pub fn redirect_back(query: &FormFields, mut parameters: Vec<(&str, String)>) -> SimResponse {
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    parameters.extend(value(query, "state").map(|state| ("state", state.to_owned())));
    if value(query, "response_mode") == Some("form_post") {
        return SimResponse::text(200, page::HTML, page::posted(redirect_uri, &parameters));
    }
    SimResponse::redirect(redirect_uri, &parameters)
}
