//! Where a person is sent to say who they are and what they allow.

use std::sync::PoisonError;

use axum::http::header::LOCATION;

use super::super::faults::Route;
use super::super::world::World;
use super::grants::Asked;
use crate::answer::{Answer, Body};
use crate::consent::{is_challenge, is_loopback, page};
use crate::form::{encode, value};
use crate::spec::Side;

/// What may be asked with; whoever asks with more relies on something that is not there.
const KNOWN: [&str; 13] = [
    "client_id",
    "redirect_uri",
    "response_type",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
    "access_type",
    "prompt",
    "include_granted_scopes",
    "login_hint",
    "nonce",
    "hd",
];

/// What the page adds to it.
const DECIDED: [&str; 3] = ["account", "granted", "decision"];

type Pairs = [(String, String)];

/// What is wrong with a request; Google says it to the person, because it trusts nobody to be sent to.
struct Wrong {
    status: u16,
    error: &'static str,
    why: String,
}

/// The page, or what happens after it when nobody needs to click.
pub fn show(world: &World, query: &Pairs) -> Answer {
    if let Err(wrong) = check(world, query, &[]) {
        return refuse(world, &wrong);
    }
    let consent = world.consent();
    let hint = value(query, "login_hint").filter(|hint| world.find(hint).is_some());
    if !consent.auto {
        return Answer::text(
            200,
            page::HTML,
            page::consent("Google", "/o/oauth2/v2/auth", query, &world.first_addresses(50), hint),
        );
    }
    let first = || world.first_addresses(1).pop();
    let Some(account) = consent.account.or_else(|| hint.map(str::to_owned)).or_else(first) else {
        return refuse(
            world,
            &Wrong { status: 400, error: "invalid_request", why: "there are no accounts".to_owned() },
        );
    };
    let granted = scopes(query).filter(|scope| !consent.unticked.iter().any(|unticked| unticked == scope));
    finish(world, query, (!consent.denied).then(|| (account, granted.map(str::to_owned).collect())))
}

/// What somebody has clicked.
pub fn decide(world: &World, form: &Pairs) -> Answer {
    if let Err(wrong) = check(world, form, &DECIDED) {
        return refuse(world, &wrong);
    }
    let account = value(form, "account").unwrap_or_default();
    let is_allowed = value(form, "decision") == Some("allow");
    if is_allowed && world.find(account).is_none() {
        return refuse(
            world,
            &Wrong { status: 400, error: "invalid_request", why: "there is no such account".to_owned() },
        );
    }
    let granted = form.iter().filter(|(name, _)| name == "granted").map(|(_, scope)| scope.clone()).collect();
    finish(world, form, is_allowed.then(|| (account.to_owned(), granted)))
}

fn scopes(query: &Pairs) -> impl Iterator<Item = &str> {
    value(query, "scope").unwrap_or_default().split_whitespace()
}

fn check(world: &World, query: &Pairs, more: &[&str]) -> Result<(), Wrong> {
    let invalid = |why: String| Wrong { status: 400, error: "invalid_request", why };
    let is_unknown = |name: &&(String, String)| !KNOWN.contains(&name.0.as_str()) && !more.contains(&name.0.as_str());
    if let Some((name, _)) = query.iter().find(is_unknown) {
        return Err(invalid(format!("unknown parameter {name:?}")));
    }
    let id = value(query, "client_id").unwrap_or_default();
    let Some(client) = world.oauth.client(id) else {
        let why = "The OAuth client was not found.".to_owned();
        return Err(Wrong { status: 401, error: "invalid_client", why });
    };
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    if !client.redirect_uris.iter().any(|known| known == redirect_uri) && !is_loopback(redirect_uri) {
        let why = format!("redirect_uri={redirect_uri}");
        return Err(Wrong { status: 400, error: "redirect_uri_mismatch", why });
    }
    let must_be = |name: &str, allowed: &[&str]| match value(query, name) {
        Some(given) if allowed.contains(&given) => Ok(()),
        given => Err(invalid(format!("{name} is {given:?}, not one of {allowed:?}"))),
    };
    must_be("response_type", &["code"])?;
    must_be("code_challenge_method", &["S256"])?;
    if value(query, "access_type").is_some() {
        must_be("access_type", &["online", "offline"])?;
    }
    if !is_challenge(value(query, "code_challenge").unwrap_or_default()) {
        return Err(invalid("code_challenge is no SHA-256 in base64url".to_owned()));
    }
    if scopes(query).next().is_none() {
        return Err(invalid("Missing required parameter: scope".to_owned()));
    }
    Ok(())
}

/// Two scopes have short names, and what was granted is told by the long ones.
fn full_name(scope: &str) -> &str {
    match scope {
        "email" => "https://www.googleapis.com/auth/userinfo.email",
        "profile" => "https://www.googleapis.com/auth/userinfo.profile",
        other => other,
    }
}

fn refuse(world: &World, wrong: &Wrong) -> Answer {
    world.violations.add(Side::Request, Route::Authorize.as_str(), &format!("{}: {}", wrong.error, wrong.why));
    Answer::text(wrong.status, page::HTML, page::refusal(wrong.status, wrong.error, &wrong.why))
}

/// Back to whoever sent the person here, with a code or with a refusal.
fn finish(world: &World, query: &Pairs, granted: Option<(String, Vec<String>)>) -> Answer {
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    let mut told: Vec<(&str, String)> = Vec::new();
    told.extend(value(query, "state").map(|state| ("state", state.to_owned())));
    if let Some((account, _)) = granted.as_ref().filter(|(account, _)| !world.may_sign_in(account)) {
        let why = format!("{account} cannot sign in");
        return Answer::text(403, page::HTML, page::refusal(403, "account_disabled", &why));
    }
    match granted.filter(|(_, scopes)| !scopes.is_empty()) {
        None => told.push(("error", "access_denied".to_owned())),
        Some((account, mut scopes)) => {
            let account = world.find(&account).map_or(account, |mailbox| mailbox.address.clone()).to_lowercase();
            scopes.iter_mut().for_each(|scope| *scope = full_name(scope).to_owned());
            let client = value(query, "client_id").unwrap_or_default();
            let mut grants = world.oauth.grants.write().unwrap_or_else(PoisonError::into_inner);
            if value(query, "include_granted_scopes") == Some("true") {
                let before = grants.granted(&account, client).into_iter().flatten();
                let added: Vec<String> = before.filter(|scope| !scopes.contains(scope)).cloned().collect();
                scopes.extend(added);
            }
            let asked = Asked {
                account,
                client: client.to_owned(),
                scopes: scopes.clone(),
                is_offline: value(query, "access_type") == Some("offline"),
                is_forced: value(query, "prompt").is_some_and(|prompt| prompt.split(' ').any(|word| word == "consent")),
            };
            let challenge = value(query, "code_challenge").unwrap_or_default();
            let code = grants.give_code(asked, redirect_uri, challenge, value(query, "nonce"), world.now_ms());
            let rest = [("scope", scopes.join(" ")), ("authuser", "0".to_owned()), ("prompt", "consent".to_owned())];
            told.push(("code", code));
            told.extend(rest);
        }
    }
    let told: Vec<String> = told.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    let joint = if redirect_uri.contains('?') { '&' } else { '?' };
    Answer::new(302, Body::Empty).with(LOCATION, &format!("{redirect_uri}{joint}{}", told.join("&")))
}
