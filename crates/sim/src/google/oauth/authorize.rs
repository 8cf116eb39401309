//! The authorization endpoint: consent page, decision, redirect with a code.

use super::super::faults::GoogleRoute;
use super::super::world::GoogleWorld;
use super::token_store::GoogleGrant;
use crate::consent::{is_challenge, is_loopback, page};
use crate::form::{FormFields, find_unknown, value};
use crate::response::SimResponse;
use crate::spec::Side;

/// The parameters that the endpoint takes; any other is refused.
const KNOWN_PARAMETERS: [&str; 13] = [
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

/// The parameters that the consent page adds.
const DECISION_PARAMETERS: [&str; 3] = ["account", "granted", "decision"];

/// An invalid request. Google shows it to the person instead of redirecting.
struct AuthorizeError {
    status: u16,
    error: &'static str,
    why: String,
}

/// Shows the consent page, or redirects at once if consent is automatic.
pub fn show(world: &GoogleWorld, query: &FormFields) -> SimResponse {
    if let Err(wrong) = check(world, query, &[]) {
        return refuse(world, &wrong);
    }
    let consent = world.consent();
    let hint = value(query, "login_hint").filter(|hint| world.find(hint).is_some());
    if !consent.auto {
        return SimResponse::text(
            200,
            page::HTML,
            page::consent("Google", "/o/oauth2/v2/auth", query, &world.first_addresses(50), hint),
        );
    }
    let Some(account) = consent.account.or_else(|| hint.map(str::to_owned)).or_else(|| world.first_addresses(1).pop())
    else {
        return refuse(
            world,
            &AuthorizeError { status: 400, error: "invalid_request", why: "there are no accounts".to_owned() },
        );
    };
    let granted = scopes(query).filter(|scope| !consent.unticked.iter().any(|unticked| unticked == scope));
    finish(world, query, (!consent.denied).then(|| (account, granted.map(str::to_owned).collect())))
}

/// Handles the decision that was made on the consent page.
pub fn decide(world: &GoogleWorld, form: &FormFields) -> SimResponse {
    if let Err(wrong) = check(world, form, &DECISION_PARAMETERS) {
        return refuse(world, &wrong);
    }
    let account = value(form, "account").unwrap_or_default();
    let is_allowed = value(form, "decision") == Some("allow");
    if is_allowed && world.find(account).is_none() {
        return refuse(
            world,
            &AuthorizeError { status: 400, error: "invalid_request", why: "there is no such account".to_owned() },
        );
    }
    let granted = form.iter().filter(|(name, _)| name == "granted").map(|(_, scope)| scope.clone()).collect();
    finish(world, form, is_allowed.then(|| (account.to_owned(), granted)))
}

fn scopes(query: &FormFields) -> impl Iterator<Item = &str> {
    value(query, "scope").unwrap_or_default().split_whitespace()
}

fn invalid_request(why: String) -> AuthorizeError {
    AuthorizeError { status: 400, error: "invalid_request", why }
}

fn require_one_of(query: &FormFields, name: &str, allowed: &[&str]) -> Result<(), AuthorizeError> {
    match value(query, name) {
        Some(given) if allowed.contains(&given) => Ok(()),
        given => Err(invalid_request(format!("{name} is {given:?}, not one of {allowed:?}"))),
    }
}

fn check(world: &GoogleWorld, query: &FormFields, more: &[&str]) -> Result<(), AuthorizeError> {
    if let Some(name) = find_unknown(query, &KNOWN_PARAMETERS, more) {
        return Err(invalid_request(format!("unknown parameter {name:?}")));
    }
    let id = value(query, "client_id").unwrap_or_default();
    let Some(client) = world.provider.oauth.client(id) else {
        let why = "The OAuth client was not found.".to_owned();
        return Err(AuthorizeError { status: 401, error: "invalid_client", why });
    };
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    if !client.redirect_uris.iter().any(|known| known == redirect_uri) && !is_loopback(redirect_uri) {
        let why = format!("redirect_uri={redirect_uri}");
        return Err(AuthorizeError { status: 400, error: "redirect_uri_mismatch", why });
    }
    require_one_of(query, "response_type", &["code"])?;
    require_one_of(query, "code_challenge_method", &["S256"])?;
    if value(query, "access_type").is_some() {
        require_one_of(query, "access_type", &["online", "offline"])?;
    }
    if !is_challenge(value(query, "code_challenge").unwrap_or_default()) {
        return Err(invalid_request("code_challenge is no SHA-256 in base64url".to_owned()));
    }
    if scopes(query).next().is_none() {
        return Err(invalid_request("Missing required parameter: scope".to_owned()));
    }
    Ok(())
}

/// Expands the two scopes that have short names, as Google does in its response.
fn full_name(scope: &str) -> &str {
    match scope {
        "email" => "https://www.googleapis.com/auth/userinfo.email",
        "profile" => "https://www.googleapis.com/auth/userinfo.profile",
        other => other,
    }
}

fn refuse(world: &GoogleWorld, wrong: &AuthorizeError) -> SimResponse {
    world.violations.add(Side::Request, GoogleRoute::Authorize.as_str(), &format!("{}: {}", wrong.error, wrong.why));
    SimResponse::text(wrong.status, page::HTML, page::refusal(wrong.status, wrong.error, &wrong.why))
}

/// Redirects back to the client with a code or an error.
fn finish(world: &GoogleWorld, query: &FormFields, granted: Option<(String, Vec<String>)>) -> SimResponse {
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    let mut parameters: Vec<(&str, String)> = Vec::new();
    parameters.extend(value(query, "state").map(|state| ("state", state.to_owned())));
    if let Some((account, _)) = granted.as_ref().filter(|(account, _)| !world.may_sign_in(account)) {
        let why = format!("{account} cannot sign in");
        return SimResponse::text(403, page::HTML, page::refusal(403, "account_disabled", &why));
    }
    match granted.filter(|(_, scopes)| !scopes.is_empty()) {
        None => parameters.push(("error", "access_denied".to_owned())),
        Some((account, mut scopes)) => {
            let account = world.find(&account).map_or(account, |mailbox| mailbox.address.clone()).to_lowercase();
            scopes.iter_mut().for_each(|scope| *scope = full_name(scope).to_owned());
            let client = value(query, "client_id").unwrap_or_default();
            let mut grants = world.provider.oauth.tokens_mut();
            if value(query, "include_granted_scopes") == Some("true") {
                let before = grants.granted(&account, client).into_iter().flatten();
                let added: Vec<String> = before.filter(|scope| !scopes.contains(scope)).cloned().collect();
                scopes.extend(added);
            }
            let grant = GoogleGrant {
                account,
                client: client.to_owned(),
                scopes: scopes.clone(),
                is_offline: value(query, "access_type") == Some("offline"),
                is_forced: value(query, "prompt").is_some_and(|prompt| prompt.split(' ').any(|word| word == "consent")),
            };
            let challenge = value(query, "code_challenge").unwrap_or_default();
            let code = grants.give_code(grant, redirect_uri, challenge, value(query, "nonce"), world.now_ms());
            let rest = [("scope", scopes.join(" ")), ("authuser", "0".to_owned()), ("prompt", "consent".to_owned())];
            parameters.push(("code", code));
            parameters.extend(rest);
        }
    }
    SimResponse::redirect(redirect_uri, &parameters)
}
