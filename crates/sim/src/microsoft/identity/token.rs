//! Where codes, refresh tokens and what programs know of themselves become access tokens.

use axum::http::header::CACHE_CONTROL;
use serde_json::json;

use super::super::directory::{PERMISSIONS, Tenant};
use super::super::faults::Route;
use super::super::world::World;
use super::assertion::authenticate;
use super::client::Client;
use super::discovery::unknown;
use super::error::Wrong;
use super::grants::{Asked, Dead};
use super::{GRAPH, permission, unknown_scope};
use crate::answer::Answer;
use crate::consent::{Granted, is_verified};
use crate::form::value;
use crate::spec::Side;

type Pairs = [(String, String)];

const CREDENTIALS: [&str; 5] =
    ["grant_type", "client_id", "client_secret", "client_assertion", "client_assertion_type"];

pub fn token(world: &World, tenant: &str, authorization: Option<&str>, form: &Pairs) -> Answer {
    let answer = match answered(world, tenant, authorization, form) {
        Ok(answer) => answer,
        Err(wrong) => wrong.answer(world),
    };
    answer.with(CACHE_CONTROL, "no-store, no-cache")
}

fn answered(world: &World, tenant: &str, authorization: Option<&str>, form: &Pairs) -> Result<Answer, Wrong> {
    let place = world.tenant(tenant).ok_or_else(|| unknown(tenant))?;
    let grant_type = value(form, "grant_type").ok_or_else(|| missing("grant_type"))?;
    let fields: &[&str] = match grant_type {
        "authorization_code" => &["code", "redirect_uri", "code_verifier", "scope"],
        "refresh_token" => &["refresh_token", "scope"],
        "client_credentials" => &["scope"],
        other => {
            let message = format!("The app requested an unsupported grant type '{other}'.");
            return Err(Wrong::new("unsupported_grant_type", 70_003, message));
        }
    };
    check_fields(world, form, fields)?;
    let audience = format!("{}/{tenant}/oauth2/v2.0/token", world.url());
    let client = authenticate(world, authorization, form, &audience)?;
    match grant_type {
        "authorization_code" => redeem(world, &place, &client, form),
        "refresh_token" => refresh(world, &place, &client, form),
        _ => give_to_program(world, &place, &client, form),
    }
}

/// Whose mail a form is about, as far as that can be told; empty otherwise.
pub fn whose(world: &World, form: &Pairs) -> String {
    let given = ["refresh_token", "code"].into_iter().find_map(|field| value(form, field));
    given.and_then(|text| world.identity.read().whose(text)).unwrap_or_default()
}

fn missing(field: &str) -> Wrong {
    Wrong::request(900_144, format!("The request body must contain the following parameter: '{field}'."))
}

/// No document describes these forms, so what is taken is written down here.
fn check_fields(world: &World, form: &Pairs, fields: &[&str]) -> Result<(), Wrong> {
    for (at, (name, _)) in form.iter().enumerate() {
        let why = if !CREDENTIALS.contains(&name.as_str()) && !fields.contains(&name.as_str()) {
            format!("unknown field {name:?}")
        } else if form[..at].iter().any(|(before, _)| before == name) {
            format!("field {name:?} comes twice")
        } else {
            continue;
        };
        world.violations.add(Side::Request, Route::Token.as_str(), &why);
        return Err(Wrong::request(900_144, why));
    }
    Ok(())
}

fn redeem(world: &World, place: &Tenant, client: &Client, form: &Pairs) -> Result<Answer, Wrong> {
    let given = value(form, "code").ok_or_else(|| missing("code"))?;
    let code = world.identity.write().take_code(given, world.now_ms()).map_err(|dead| match dead {
        Dead::Used => Wrong::grant(54_005, "OAuth2 Authorization code was already redeemed, please retry with a new valid code or use an existing refresh token."),
        Dead::Expired => Wrong::grant(70_008, "The provided authorization code or refresh token has expired due to inactivity. Send a new interactive authorization request for this user and resource."),
        _ => Wrong::grant(9_002_313, "Invalid request. Request is malformed or invalid."),
    })?;
    if code.asked.client != client.id || !place.takes(&code.asked.directory) {
        return Err(Wrong::grant(70_000, "The provided value for the 'code' parameter is not valid for this client."));
    }
    if value(form, "redirect_uri") != Some(&code.redirect_uri) {
        return Err(Wrong::grant(
            500_112,
            "The reply address does not match the reply address provided when requesting Authorization code.",
        ));
    }
    let verifier = value(form, "code_verifier").ok_or_else(|| missing("code_verifier"))?;
    if !is_verified(verifier, &code.challenge) {
        return Err(Wrong::grant(
            501_481,
            "The Code_Verifier does not match the code_challenge supplied in the authorization request.",
        ));
    }
    check_person(world, code.asked.account.as_deref())?;
    let asked = narrowed(code.asked, form)?;
    let granted = world.identity.write().grant(&asked, world.now_ms());
    Ok(told(world, &asked, &granted, code.nonce.as_deref()))
}

fn refresh(world: &World, place: &Tenant, client: &Client, form: &Pairs) -> Result<Answer, Wrong> {
    let token = value(form, "refresh_token").ok_or_else(|| missing("refresh_token"))?;
    let now_ms = world.now_ms();
    let asked = world.identity.read().asked_by(token, &client.id, now_ms).map_err(dead_refresh)?;
    check_person(world, asked.account.as_deref())?;
    if !place.takes(&asked.directory) {
        return Err(dead_refresh(Dead::Unknown));
    }
    let asked = narrowed(asked, form)?;
    let granted = world.identity.write().refresh(token, &asked, now_ms).map_err(dead_refresh)?;
    Ok(told(world, &asked, &granted, None))
}

/// Whether somebody is there and may sign in.
pub fn check_person(world: &World, account: Option<&str>) -> Result<(), Wrong> {
    let Some(mailbox) = account.and_then(|account| world.find(account)) else { return Ok(()) };
    let person = world.person(&mailbox);
    if !person.is_present() {
        let message = format!("The user account {} does not exist in the directory.", mailbox.id);
        return Err(Wrong::grant(50_034, message));
    }
    match person.is_suspended {
        true => Err(Wrong::grant(50_057, "The user account is disabled.")),
        false => Ok(()),
    }
}

fn dead_refresh(dead: Dead) -> Wrong {
    match dead {
        Dead::Expired => Wrong::grant(
            700_082,
            "The refresh token has expired due to inactivity. The token was inactive for 90.00:00:00.",
        ),
        Dead::Revoked => Wrong {
            suberror: Some("bad_token"),
            ..Wrong::grant(
                50_173,
                "The provided grant has expired due to it being revoked, a fresh auth token is needed.",
            )
        },
        Dead::Unknown | Dead::Used | Dead::Reused => {
            Wrong::grant(70_000, "The provided value for the input parameter 'refresh_token' is not valid.")
        }
    }
}

/// With no more than was granted.
fn narrowed(asked: Asked, form: &Pairs) -> Result<Asked, Wrong> {
    let Some(wanted) = value(form, "scope").filter(|wanted| !wanted.is_empty()) else { return Ok(asked) };
    if let Some(scope) = unknown_scope(wanted.split_whitespace()) {
        return Err(Wrong::new("invalid_scope", 70_011, format!("The scope {scope} is not valid.")));
    }
    let is_granted = |scope: &str| {
        permission(scope) == ".default"
            || asked.scopes.iter().any(|granted| permission(granted).eq_ignore_ascii_case(permission(scope)))
    };
    if !wanted.split_whitespace().all(is_granted) {
        let message = "The user or administrator has not consented to use the application. Send an interactive \
                       authorization request for this user and resource.";
        return Err(Wrong { suberror: Some("consent_required"), ..Wrong::grant(65_001, message) });
    }
    let scopes = wanted.split_whitespace().filter(|scope| permission(scope) != ".default").map(str::to_owned).collect();
    Ok(if wanted.contains(".default") { asked } else { Asked { scopes, ..asked } })
}

fn give_to_program(world: &World, place: &Tenant, client: &Client, form: &Pairs) -> Result<Answer, Wrong> {
    let Tenant::One(directory) = place else {
        let message = "The grant type 'client_credentials' is not supported over the /common or /consumers endpoints. \
                       Please use the /organizations or tenant-specific endpoint.";
        return Err(Wrong::request(9_001_023, message));
    };
    if value(form, "scope").ok_or_else(|| missing("scope"))? != format!("{GRAPH}.default") {
        let message = "The provided value for scope is not valid. Client credential flows must have a scope value with \
                       /.default suffixed to the resource identifier.";
        return Err(Wrong::new("invalid_scope", 1_002_012, message));
    }
    let scopes = world.consented(directory, &client.id).ok_or_else(|| super::assertion::not_found(&client.id))?;
    let asked = Asked { account: None, directory: directory.clone(), client: client.id.clone(), scopes };
    let granted = world.identity.write().give_to_program(&asked, world.now_ms());
    let (expires_in, token) = (granted.expires_in, granted.access_token);
    Ok(Answer::json(json!({
        "token_type": "Bearer", "expires_in": expires_in, "ext_expires_in": expires_in, "access_token": token,
    })))
}

fn told(world: &World, asked: &Asked, granted: &Granted, nonce: Option<&str>) -> Answer {
    let mut body = json!({
        "token_type": "Bearer", "scope": granted.scopes.join(" "), "expires_in": granted.expires_in,
        "ext_expires_in": granted.expires_in, "access_token": granted.access_token,
    });
    if let Some(token) = &granted.refresh_token {
        body["refresh_token"] = json!(token);
    }
    let mailbox = asked.account.as_deref().and_then(|account| world.find(account));
    if let Some(mailbox) = mailbox.filter(|_| asked.scopes.iter().any(|scope| scope == "openid")) {
        body["id_token"] = json!(world.identity.id_token(world, &mailbox, &asked.client, nonce));
    }
    Answer::json(body)
}

/// What an administrator's consent gives.
pub fn permissions() -> Vec<String> {
    PERMISSIONS.map(str::to_owned).to_vec()
}
