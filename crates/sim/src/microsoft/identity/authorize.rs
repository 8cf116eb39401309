//! Where a person is sent to say who they are and what they allow.

use std::sync::Arc;

use axum::http::header::LOCATION;

use super::super::directory::Tenant;
use super::super::faults::Route;
use super::super::world::{Mailbox, World};
use super::discovery::unknown;
use super::error::Wrong;
use super::grants::Asked;
use super::token::check_person;
use super::unknown_scope;
use crate::answer::{Answer, Body};
use crate::consent::{is_challenge, is_loopback, page};
use crate::form::{encode, value};
use crate::spec::Side;

/// What may be asked with; whoever asks with more relies on something that is not there.
const KNOWN: [&str; 12] = [
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

/// What the page adds to it.
const DECIDED: [&str; 3] = ["account", "granted", "decision"];

type Pairs = [(String, String)];

/// The page, or what happens after it when nobody needs to click.
pub fn show(world: &World, tenant: &str, query: &Pairs) -> Answer {
    let place = match check(world, tenant, query, &[]) {
        Ok(place) => place,
        Err(answer) => return *answer,
    };
    let consent = world.consent();
    let hint = value(query, "login_hint").filter(|hint| world.find(hint).is_some());
    let is_silent = value(query, "prompt") == Some("none");
    if !consent.auto && !is_silent {
        let action = format!("/{tenant}/oauth2/v2.0/authorize");
        let accounts = world.first_addresses(50, &place);
        return Answer::text(200, page::HTML, page::consent("Microsoft", &action, query, &accounts, hint));
    }
    let first = || world.first_addresses(1, &place).pop();
    let account = consent.account.clone().or_else(|| hint.map(str::to_owned)).or_else(first);
    let Some(mailbox) = account.and_then(|account| world.find(&account)) else {
        return back_wrong(
            world,
            query,
            &Wrong::new("login_required", 50_058, "A silent sign-in request was sent but no user is signed in."),
        );
    };
    let is_unticked = |scope: &&str| consent.unticked.iter().any(|unticked| unticked == scope);
    let granted: Vec<String> = scopes(query).filter(|scope| !is_unticked(scope)).map(str::to_owned).collect();
    if is_silent && !world.identity.read().has_granted(&asked(query, &mailbox, granted.clone())) {
        let message = "The user or administrator has not consented to use the application.";
        return back_wrong(world, query, &Wrong::new("consent_required", 65_001, message));
    }
    finish(world, &place, query, (!consent.denied).then_some((mailbox, granted)))
}

/// What somebody has clicked.
pub fn decide(world: &World, tenant: &str, form: &Pairs) -> Answer {
    let place = match check(world, tenant, form, &DECIDED) {
        Ok(place) => place,
        Err(answer) => return *answer,
    };
    let granted = form.iter().filter(|(name, _)| name == "granted").map(|(_, scope)| scope.clone()).collect();
    if value(form, "decision") != Some("allow") {
        return finish(world, &place, form, None);
    }
    match world.find(value(form, "account").unwrap_or_default()) {
        Some(mailbox) => finish(world, &place, form, Some((mailbox, granted))),
        None => blocked(400, &Wrong::request(50_034, "The user account does not exist.")),
    }
}

fn scopes(query: &Pairs) -> impl Iterator<Item = &str> {
    value(query, "scope").unwrap_or_default().split_whitespace()
}

fn asked(query: &Pairs, mailbox: &Mailbox, scopes: Vec<String>) -> Asked {
    Asked {
        account: Some(mailbox.address.clone()),
        directory: mailbox.directory.clone(),
        client: value(query, "client_id").unwrap_or_default().to_lowercase(),
        scopes,
    }
}

/// Whoever is not known, or wants people sent to a place that is not theirs, is told nothing: the person is.
fn check(world: &World, tenant: &str, query: &Pairs, more: &[&str]) -> Result<Tenant, Box<Answer>> {
    let refuse = |wrong: &Wrong| {
        world.violations.add(
            Side::Request,
            Route::Authorize.as_str(),
            &format!("AADSTS{}: {}", wrong.code, wrong.message),
        );
        Box::new(blocked(400, wrong))
    };
    let place = world.tenant(tenant).ok_or_else(|| refuse(&unknown(tenant)))?;
    let is_unknown = |name: &&(String, String)| !KNOWN.contains(&name.0.as_str()) && !more.contains(&name.0.as_str());
    if let Some((name, _)) = query.iter().find(is_unknown) {
        return Err(refuse(&Wrong::request(90_100, format!("unknown parameter {name:?}"))));
    }
    let id = value(query, "client_id").unwrap_or_default();
    let client = world.identity.client(id).ok_or_else(|| refuse(&super::assertion::not_found(id)))?;
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    if !client.redirect_uris.iter().any(|known| known == redirect_uri) && !is_loopback(redirect_uri) {
        let message = format!(
            "The redirect URI '{redirect_uri}' specified in the request does not match the redirect URIs configured for \
             the application '{id}'."
        );
        return Err(refuse(&Wrong::request(50_011, message)));
    }
    check_rest(query).map_err(|wrong| {
        world.violations.add(Side::Request, Route::Authorize.as_str(), &wrong.message);
        Box::new(back_wrong(world, query, &wrong))
    })?;
    Ok(place)
}

/// What is told to the program itself.
fn check_rest(query: &Pairs) -> Result<(), Wrong> {
    let must_be = |name: &str, allowed: &[&str]| match value(query, name) {
        Some(given) if allowed.contains(&given) => Ok(()),
        given => Err(Wrong::request(900_144, format!("{name} is {given:?}, not one of {allowed:?}"))),
    };
    must_be("response_type", &["code"])?;
    must_be("code_challenge_method", &["S256"])?;
    if value(query, "response_mode").is_some() {
        must_be("response_mode", &["query", "form_post"])?;
    }
    if value(query, "prompt").is_some() {
        must_be("prompt", &["login", "none", "consent", "select_account"])?;
    }
    if !is_challenge(value(query, "code_challenge").unwrap_or_default()) {
        return Err(Wrong::request(501_491, "code_challenge is no SHA-256 in base64url"));
    }
    if scopes(query).next().is_none() {
        return Err(Wrong::request(900_144, "The request body must contain the following parameter: 'scope'."));
    }
    match unknown_scope(scopes(query)) {
        Some(scope) => {
            let message = format!("The provided request must include a valid 'scope'. The scope {scope} is not valid.");
            Err(Wrong::new("invalid_scope", 70_011, message))
        }
        None => Ok(()),
    }
}

fn blocked(status: u16, wrong: &Wrong) -> Answer {
    let why = format!("AADSTS{}: {}", wrong.code, wrong.message);
    Answer::text(status, page::HTML, page::refusal(status, &wrong.error, &why))
}

/// Back to whoever sent the person here, with a code or with a refusal.
fn finish(world: &World, place: &Tenant, query: &Pairs, granted: Option<(Arc<Mailbox>, Vec<String>)>) -> Answer {
    let Some((mailbox, scopes)) = granted.filter(|(_, scopes)| !scopes.is_empty()) else {
        let message = "User declined to consent to access the app.";
        return back_wrong(world, query, &Wrong::new("access_denied", 65_004, message));
    };
    if !place.takes(&mailbox.directory) {
        let message = format!(
            "User account '{}' does not exist in this tenant and cannot access the application.",
            mailbox.address
        );
        return blocked(400, &Wrong::request(50_020, message));
    }
    if let Err(wrong) = check_person(world, Some(&mailbox.address)) {
        return blocked(400, &wrong);
    }
    let asked = asked(query, &mailbox, scopes);
    if !world.may_consent(&mailbox.directory, &asked.client) {
        return back_wrong(world, query, &Wrong::new("access_denied", 90_094, "The grant requires admin permission."));
    }
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    let challenge = value(query, "code_challenge").unwrap_or_default();
    let nonce = value(query, "nonce");
    let code = world.identity.write().give_code(asked, redirect_uri, challenge, nonce, world.now_ms());
    let [session, _] = world.identity.two_guids();
    back(query, vec![("code", code), ("session_state", session)])
}

pub fn back_wrong(world: &World, query: &Pairs, wrong: &Wrong) -> Answer {
    let uri = format!("https://login.microsoftonline.com/error?code={}", wrong.code);
    back(
        query,
        vec![("error", wrong.error.clone()), ("error_description", wrong.description(world)), ("error_uri", uri)],
    )
}

/// As the program wants it: in the address, or in a form that sends itself.
pub fn back(query: &Pairs, mut told: Vec<(&str, String)>) -> Answer {
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    told.extend(value(query, "state").map(|state| ("state", state.to_owned())));
    if value(query, "response_mode") == Some("form_post") {
        return Answer::text(200, page::HTML, page::posted(redirect_uri, &told));
    }
    let told: Vec<String> = told.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    let joint = if redirect_uri.contains('?') { '&' } else { '?' };
    Answer::new(302, Body::Empty).with(LOCATION, &format!("{redirect_uri}{joint}{}", told.join("&")))
}
