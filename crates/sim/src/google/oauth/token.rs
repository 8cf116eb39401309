//! Where codes, refresh tokens and signed assertions become access tokens.

use std::sync::PoisonError;

use axum::http::header::CACHE_CONTROL;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::faults::Route;
use super::super::world::World;
use super::Client;
use super::grants::Asked;
use super::service_account::ServiceAccount;
use crate::answer::{Answer, Body};
use crate::consent::{Granted, is_verified};
use crate::form::{decode, value};
use crate::spec::Side;

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const HOUR: i64 = 3_600;

/// Clocks that differ by so many seconds are still believed.
const SKEW: i64 = 300;

type Pairs = [(String, String)];

pub fn token(world: &World, authorization: Option<&str>, form: &Pairs) -> Answer {
    let Some(grant_type) = value(form, "grant_type") else {
        return error(400, "invalid_request", "Missing required parameter: grant_type");
    };
    let fields: &[&str] = match grant_type {
        "authorization_code" => &["code", "redirect_uri", "code_verifier", "client_id", "client_secret"],
        "refresh_token" => &["refresh_token", "client_id", "client_secret", "scope"],
        JWT_BEARER => &["assertion"],
        other => return error(400, "unsupported_grant_type", &format!("Invalid grant_type: {other}")),
    };
    if let Err(answer) = check_fields(world, Route::Token, form, fields) {
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

/// Ends the whole grant that a token belongs to.
pub fn revoke(world: &World, form: &Pairs) -> Answer {
    if let Err(answer) = check_fields(world, Route::Revoke, form, &["token"]) {
        return *answer;
    }
    let given = value(form, "token").unwrap_or_default();
    if world.oauth.grants.write().unwrap_or_else(PoisonError::into_inner).revoke(given) {
        Answer::json(json!({}))
    } else {
        error(400, "invalid_token", "Token expired or revoked")
    }
}

/// Whose mail a form is about, as far as that can be told; empty otherwise.
pub fn whose(world: &World, form: &Pairs) -> String {
    if let Some(claims) = value(form, "assertion").and_then(|token| world.oauth.service_account.open(token)) {
        return claims["sub"].as_str().unwrap_or_default().to_lowercase();
    }
    let grants = world.oauth.grants.read().unwrap_or_else(PoisonError::into_inner);
    let given = ["refresh_token", "code", "token"].into_iter().find_map(|field| value(form, field));
    given.and_then(|text| grants.whose(text)).unwrap_or_default().to_owned()
}

fn error(status: u16, error: &str, description: &str) -> Answer {
    Answer::new(status, Body::Json(json!({"error": error, "error_description": description})))
        .with(CACHE_CONTROL, "no-cache, no-store, max-age=0, must-revalidate")
}

fn invalid_grant(description: &str) -> Answer {
    error(400, "invalid_grant", description)
}

fn refused<T>(answer: Answer) -> Result<T, Box<Answer>> {
    Err(Box::new(answer))
}

/// No document describes these forms, so what is taken is written down here.
fn check_fields(world: &World, route: Route, form: &Pairs, fields: &[&str]) -> Result<(), Box<Answer>> {
    for (at, (name, _)) in form.iter().enumerate() {
        let why = if name != "grant_type" && !fields.contains(&name.as_str()) {
            format!("unknown field {name:?}")
        } else if form[..at].iter().any(|(before, _)| before == name) {
            format!("field {name:?} comes twice")
        } else {
            continue;
        };
        world.violations.add(Side::Request, route.as_str(), &why);
        return refused(error(400, "invalid_request", &why));
    }
    Ok(())
}

fn authenticate(world: &World, authorization: Option<&str>, form: &Pairs) -> Result<Client, Box<Answer>> {
    let basic = authorization.and_then(|given| given.strip_prefix("Basic ")).and_then(|given| {
        let text = String::from_utf8(STANDARD.decode(given).ok()?).ok()?;
        let (id, secret) = text.split_once(':')?;
        Some((decode(id), decode(secret)))
    });
    let of_form =
        || Some((value(form, "client_id")?.to_owned(), value(form, "client_secret").unwrap_or("").to_owned()));
    let Some((id, secret)) = basic.or_else(of_form) else {
        return refused(error(400, "invalid_request", "Could not determine client ID from request."));
    };
    let client = world.oauth.client(&id);
    let client = client.ok_or_else(|| Box::new(error(401, "invalid_client", "The OAuth client was not found.")))?;
    if secret.is_empty() {
        return refused(error(400, "invalid_request", "client_secret is missing."));
    }
    match client.secret == secret {
        true => Ok(client),
        false => refused(error(401, "invalid_client", "The provided client secret is invalid.")),
    }
}

fn redeem(world: &World, client: &Client, form: &Pairs) -> Answer {
    let now_ms = world.now_ms();
    let mut grants = world.oauth.grants.write().unwrap_or_else(PoisonError::into_inner);
    let given = value(form, "code").unwrap_or_default();
    let Some(code) = grants.take_code(given, now_ms) else { return invalid_grant("Malformed auth code.") };
    if code.asked.client != client.id {
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
    let granted = grants.grant(&code.asked, now_ms);
    drop(grants);
    grant(world, &code.asked, &granted, code.nonce.as_deref())
}

fn refresh(world: &World, client: &Client, form: &Pairs) -> Answer {
    let token = value(form, "refresh_token").unwrap_or_default();
    let owner = whose(world, form);
    if !owner.is_empty() && !world.may_sign_in(&owner) {
        return invalid_grant("Account has been disabled or deleted.");
    }
    let refreshed = {
        let mut grants = world.oauth.grants.write().unwrap_or_else(PoisonError::into_inner);
        grants.refresh(token, &client.id, world.now_ms())
    };
    match refreshed {
        None => invalid_grant("Token has been expired or revoked."),
        Some((asked, granted)) => grant(world, &asked, &granted, None),
    }
}

fn delegate(world: &World, form: &Pairs) -> Answer {
    let assertion = value(form, "assertion").unwrap_or_default();
    let Some(claims) = world.oauth.service_account.open(assertion) else {
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
    let asked = Asked { account, client, scopes, is_offline: false, is_forced: false };
    let granted = {
        let mut grants = world.oauth.grants.write().unwrap_or_else(PoisonError::into_inner);
        grants.delegate(&asked, world.now_ms())
    };
    let (expires_in, token) = (granted.expires_in, granted.access_token);
    Answer::json(json!({"access_token": token, "expires_in": expires_in, "token_type": "Bearer"}))
}

fn check_claims(world: &World, claims: &Value, account: &str, scopes: &[String]) -> Result<(), Box<Answer>> {
    if claims["iss"] != ServiceAccount::EMAIL {
        return refused(invalid_grant("Invalid grant: account not found"));
    }
    let audience = claims["aud"].as_str().unwrap_or_default();
    if audience != format!("{}/token", world.url()) && audience != "https://oauth2.googleapis.com/token" {
        return refused(invalid_grant("Invalid JWT: Failed audience check."));
    }
    let now = world.now_ms() / 1_000;
    let [issued, expires] = ["iat", "exp"].map(|claim| claims[claim].as_i64().unwrap_or_default());
    if expires - issued > HOUR || expires <= issued || expires <= now - SKEW || issued > now + SKEW {
        return refused(invalid_grant(
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. \
             Check your iat and exp values in the JWT claim.",
        ));
    }
    if scopes.is_empty() {
        return refused(error(400, "invalid_scope", "Empty or missing scope not allowed."));
    }
    let organisation = world.people.read().find(account).map(|found| found.organisation.clone()).unwrap_or_default();
    if !scopes.iter().all(|scope| world.oauth.is_delegated(scope, &organisation)) {
        return refused(error(
            401,
            "unauthorized_client",
            "Client is unauthorized to retrieve access tokens using this method, or client not authorized for any of \
             the scopes requested.",
        ));
    }
    match world.may_sign_in(account) {
        true => Ok(()),
        false => refused(invalid_grant("Invalid email or User ID")),
    }
}

fn grant(world: &World, asked: &Asked, granted: &Granted, nonce: Option<&str>) -> Answer {
    let mut body = json!({
        "access_token": granted.access_token, "expires_in": granted.expires_in, "token_type": "Bearer",
        "scope": granted.scopes.join(" "),
    });
    if let Some(token) = &granted.refresh_token {
        body["refresh_token"] = json!(token);
    }
    if granted.scopes.iter().any(|scope| scope == "openid") {
        body["id_token"] = json!(world.oauth.id_token(&asked.account, &asked.client, nonce, world.now_ms()));
    }
    Answer::json(body).with(CACHE_CONTROL, "no-cache, no-store, max-age=0, must-revalidate")
}
