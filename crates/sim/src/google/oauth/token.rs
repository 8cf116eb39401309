//! The token endpoint: exchanges codes, refresh tokens and signed assertions for access tokens.

use axum::http::header::CACHE_CONTROL;
use serde_json::{Value, json};

use super::super::faults::GoogleRoute;
use super::super::world::GoogleWorld;
use super::GoogleClient;
use super::service_account::ServiceAccount;
use super::token_store::GoogleGrant;
use crate::consent::{IssuedTokens, is_verified};
use crate::form::{self, FormFields, value};
use crate::response::{ResponseBody, SimResponse};
use crate::sign_in::basic_credentials;
use crate::spec::Side;

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const MAX_ASSERTION_SECONDS: i64 = 3_600;

/// The tolerated clock difference.
const CLOCK_SKEW_SECONDS: i64 = 300;

pub fn token(world: &GoogleWorld, authorization: Option<&str>, form: &FormFields) -> SimResponse {
    let Some(grant_type) = value(form, "grant_type") else {
        return error(400, "invalid_request", "Missing required parameter: grant_type");
    };
    let fields: &[&str] = match grant_type {
        "authorization_code" => &["code", "redirect_uri", "code_verifier", "client_id", "client_secret"],
        "refresh_token" => &["refresh_token", "client_id", "client_secret", "scope"],
        JWT_BEARER => &["assertion"],
        other => return error(400, "unsupported_grant_type", &format!("Invalid grant_type: {other}")),
    };
    if let Err(answer) = check_fields(world, GoogleRoute::Token, form, fields) {
        return *answer;
    }
    if grant_type == JWT_BEARER {
        return delegate(world, form);
    }
    let client = match authenticate(world, authorization, form) {
        Ok(client) => client,
        Err(answer) => return *answer,
    };
    match grant_type {
        "refresh_token" => refresh(world, &client, form),
        _ => redeem(world, &client, form),
    }
}

/// Revokes the grant that a token belongs to.
pub fn revoke(world: &GoogleWorld, form: &FormFields) -> SimResponse {
    if let Err(answer) = check_fields(world, GoogleRoute::Revoke, form, &["token"]) {
        return *answer;
    }
    let given = value(form, "token").unwrap_or_default();
    if world.provider.oauth.tokens_mut().revoke(given) {
        SimResponse::json(json!({}))
    } else {
        error(400, "invalid_token", "Token expired or revoked")
    }
}

/// Returns the account that a form is about, or an empty string if that is unknown.
pub fn account_of_form(world: &GoogleWorld, form: &FormFields) -> String {
    if let Some(claims) = value(form, "assertion").and_then(|token| world.provider.oauth.service_account.open(token)) {
        return claims["sub"].as_str().unwrap_or_default().to_lowercase();
    }
    let grants = world.provider.oauth.tokens();
    let given = ["refresh_token", "code", "token"].into_iter().find_map(|field| value(form, field));
    given.and_then(|text| grants.find_account(text)).unwrap_or_default().to_owned()
}

fn error(status: u16, error: &str, description: &str) -> SimResponse {
    SimResponse::new(status, ResponseBody::Json(json!({"error": error, "error_description": description})))
        .with(CACHE_CONTROL, "no-cache, no-store, max-age=0, must-revalidate")
}

fn invalid_grant(description: &str) -> SimResponse {
    error(400, "invalid_grant", description)
}

fn boxed<T>(answer: SimResponse) -> Result<T, Box<SimResponse>> {
    Err(Box::new(answer))
}

/// Refuses unknown and repeated form fields. No API description covers these forms.
fn check_fields(
    world: &GoogleWorld,
    route: GoogleRoute,
    form: &FormFields,
    fields: &[&str],
) -> Result<(), Box<SimResponse>> {
    form::check_fields(form, &["grant_type"], fields).map_err(|why| {
        world.violations.add(Side::Request, route.as_str(), &why);
        Box::new(error(400, "invalid_request", &why))
    })
}

fn form_credentials(form: &FormFields) -> Option<(String, String)> {
    Some((value(form, "client_id")?.to_owned(), value(form, "client_secret").unwrap_or("").to_owned()))
}

fn authenticate(
    world: &GoogleWorld,
    authorization: Option<&str>,
    form: &FormFields,
) -> Result<GoogleClient, Box<SimResponse>> {
    let Some((id, secret)) = basic_credentials(authorization).or_else(|| form_credentials(form)) else {
        return boxed(error(400, "invalid_request", "Could not determine client ID from request."));
    };
    let client = world.provider.oauth.client(&id);
    let client = client.ok_or_else(|| Box::new(error(401, "invalid_client", "The OAuth client was not found.")))?;
    if secret.is_empty() {
        return boxed(error(400, "invalid_request", "client_secret is missing."));
    }
    if client.secret == secret {
        Ok(client)
    } else {
        boxed(error(401, "invalid_client", "The provided client secret is invalid."))
    }
}

fn redeem(world: &GoogleWorld, client: &GoogleClient, form: &FormFields) -> SimResponse {
    let now_ms = world.now_ms();
    let mut grants = world.provider.oauth.tokens_mut();
    let given = value(form, "code").unwrap_or_default();
    let Some(code) = grants.take_code(given, now_ms) else { return invalid_grant("Malformed auth code.") };
    if code.grant.client != client.id {
        return invalid_grant("Bad Request");
    }
    if value(form, "redirect_uri") != Some(&code.redirect_uri) {
        return error(400, "redirect_uri_mismatch", "Bad Request");
    }
    let Some(verifier) = value(form, "code_verifier") else {
        return invalid_grant("Missing code verifier.");
    };
    if !is_verified(verifier, &code.challenge) {
        return invalid_grant("Invalid code verifier.");
    }
    let granted = grants.grant(&code.grant, now_ms);
    drop(grants);
    token_response(world, &code.grant, &granted, code.nonce.as_deref())
}

fn refresh(world: &GoogleWorld, client: &GoogleClient, form: &FormFields) -> SimResponse {
    let token = value(form, "refresh_token").unwrap_or_default();
    let owner = account_of_form(world, form);
    if !owner.is_empty() && !world.may_sign_in(&owner) {
        return invalid_grant("Account has been disabled or deleted.");
    }
    let refreshed = {
        let mut grants = world.provider.oauth.tokens_mut();
        grants.refresh(token, &client.id, world.now_ms())
    };
    match refreshed {
        None => invalid_grant("Token has been expired or revoked."),
        Some((grant, granted)) => token_response(world, &grant, &granted, None),
    }
}

fn delegate(world: &GoogleWorld, form: &FormFields) -> SimResponse {
    let assertion = value(form, "assertion").unwrap_or_default();
    let Some(claims) = world.provider.oauth.service_account.open(assertion) else {
        return invalid_grant("Invalid JWT Signature.");
    };
    let account = claims["sub"].as_str().unwrap_or_default().to_lowercase();
    let scopes: Vec<String> =
        claims["scope"].as_str().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    if let Err(answer) = check_claims(world, &claims, &account, &scopes) {
        return *answer;
    }
    let account = world.find(&account).map_or(account, |mailbox| mailbox.address.clone());
    let client = ServiceAccount::CLIENT_ID.to_owned();
    let grant = GoogleGrant { account, client, scopes, is_offline: false, is_forced: false };
    let granted = {
        let mut grants = world.provider.oauth.tokens_mut();
        grants.delegate(&grant, world.now_ms())
    };
    let (expires_in, token) = (granted.expires_in, granted.access_token);
    SimResponse::json(json!({"access_token": token, "expires_in": expires_in, "token_type": "Bearer"}))
}

fn check_claims(world: &GoogleWorld, claims: &Value, account: &str, scopes: &[String]) -> Result<(), Box<SimResponse>> {
    if claims["iss"] != ServiceAccount::EMAIL {
        return boxed(invalid_grant("Invalid grant: account not found"));
    }
    let audience = claims["aud"].as_str().unwrap_or_default();
    if audience != format!("{}/token", world.url()) && audience != "https://oauth2.googleapis.com/token" {
        return boxed(invalid_grant("Invalid JWT: Failed audience check."));
    }
    let now = world.now_ms() / 1_000;
    let [issued, expires] = ["iat", "exp"].map(|claim| claims[claim].as_i64().unwrap_or_default());
    if expires - issued > MAX_ASSERTION_SECONDS
        || expires <= issued
        || expires <= now - CLOCK_SKEW_SECONDS
        || issued > now + CLOCK_SKEW_SECONDS
    {
        return boxed(invalid_grant(
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. \
             Check your iat and exp values in the JWT claim.",
        ));
    }
    if scopes.is_empty() {
        return boxed(error(400, "invalid_scope", "Empty or missing scope not allowed."));
    }
    let organisation =
        world.provider.people.read().find(account).map(|found| found.organisation.clone()).unwrap_or_default();
    if !scopes.iter().all(|scope| world.provider.oauth.is_delegated(scope, &organisation)) {
        return boxed(error(
            401,
            "unauthorized_client",
            "Client is unauthorized to retrieve access tokens using this method, or client not authorized for any of \
             the scopes requested.",
        ));
    }
    if world.may_sign_in(account) { Ok(()) } else { boxed(invalid_grant("Invalid email or User ID")) }
}

fn token_response(
    world: &GoogleWorld,
    grant: &GoogleGrant,
    granted: &IssuedTokens,
    nonce: Option<&str>,
) -> SimResponse {
    let mut body = json!({
        "access_token": granted.access_token, "expires_in": granted.expires_in, "token_type": "Bearer",
        "scope": granted.scopes.join(" "),
    });
    if let Some(token) = &granted.refresh_token {
        body["refresh_token"] = json!(token);
    }
    if granted.scopes.iter().any(|scope| scope == "openid") {
        body["id_token"] = json!(world.provider.oauth.id_token(&grant.account, &grant.client, nonce, world.now_ms()));
    }
    SimResponse::json(body).with(CACHE_CONTROL, "no-cache, no-store, max-age=0, must-revalidate")
}
