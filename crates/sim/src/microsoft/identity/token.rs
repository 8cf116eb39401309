//! The token endpoint: exchanges codes, refresh tokens and client credentials for access tokens.

use axum::http::header::CACHE_CONTROL;
use serde_json::json;

use super::super::directory::{Authority, DEFAULT_PERMISSIONS};
use super::super::faults::MicrosoftRoute;
use super::super::world::MicrosoftWorld;
use super::assertion::authenticate;
use super::client::MicrosoftClient;
use super::discovery::unknown_tenant;
use super::error::IdentityError;
use super::token_store::{MicrosoftGrant, TokenRejection};
use super::{GRAPH, permission, unknown_scope};
use crate::consent::{IssuedTokens, is_verified};
use crate::form::{self, FormFields, value};
use crate::response::SimResponse;
use crate::spec::Side;

const CREDENTIALS: [&str; 5] =
    ["grant_type", "client_id", "client_secret", "client_assertion", "client_assertion_type"];

pub fn token(world: &MicrosoftWorld, tenant: &str, authorization: Option<&str>, form: &FormFields) -> SimResponse {
    let answer = match exchange(world, tenant, authorization, form) {
        Ok(answer) => answer,
        Err(wrong) => wrong.answer(world),
    };
    answer.with(CACHE_CONTROL, "no-store, no-cache")
}

fn exchange(
    world: &MicrosoftWorld,
    tenant: &str,
    authorization: Option<&str>,
    form: &FormFields,
) -> Result<SimResponse, IdentityError> {
    let authority = world.tenant(tenant).ok_or_else(|| unknown_tenant(tenant))?;
    let grant_type = value(form, "grant_type").ok_or_else(|| missing("grant_type"))?;
    let fields: &[&str] = match grant_type {
        "authorization_code" => &["code", "redirect_uri", "code_verifier", "scope"],
        "refresh_token" => &["refresh_token", "scope"],
        "client_credentials" => &["scope"],
        other => {
            let message = format!("The app requested an unsupported grant type '{other}'.");
            return Err(IdentityError::new("unsupported_grant_type", 70_003, message));
        }
    };
    check_fields(world, form, fields)?;
    let audience = format!("{}/{tenant}/oauth2/v2.0/token", world.url());
    let client = authenticate(world, authorization, form, &audience)?;
    match grant_type {
        "authorization_code" => redeem(world, &authority, &client, form),
        "refresh_token" => refresh(world, &authority, &client, form),
        _ => issue_app_only(world, &authority, &client, form),
    }
}

/// Returns the account that a form is about, or an empty string if that is unknown.
pub fn account_of_form(world: &MicrosoftWorld, form: &FormFields) -> String {
    let given = ["refresh_token", "code"].into_iter().find_map(|field| value(form, field));
    given.and_then(|text| world.provider.identity.tokens().find_account(text)).unwrap_or_default()
}

fn missing(field: &str) -> IdentityError {
    IdentityError::request(900_144, format!("The request body must contain the following parameter: '{field}'."))
}

/// Refuses unknown and repeated form fields. No API description covers these forms.
fn check_fields(world: &MicrosoftWorld, form: &FormFields, fields: &[&str]) -> Result<(), IdentityError> {
    form::check_fields(form, &CREDENTIALS, fields).map_err(|why| {
        world.violations.add(Side::Request, MicrosoftRoute::Token.as_str(), &why);
        IdentityError::request(900_144, why)
    })
}

fn redeem(
    world: &MicrosoftWorld,
    authority: &Authority,
    client: &MicrosoftClient,
    form: &FormFields,
) -> Result<SimResponse, IdentityError> {
    let given = value(form, "code").ok_or_else(|| missing("code"))?;
    let code = world.provider.identity.tokens_mut().take_code(given, world.now_ms()).map_err(|rejection| match rejection {
        TokenRejection::Used => IdentityError::grant(54_005, "OAuth2 Authorization code was already redeemed, please retry with a new valid code or use an existing refresh token."),
        TokenRejection::Expired => IdentityError::grant(70_008, "The provided authorization code or refresh token has expired due to inactivity. Send a new interactive authorization request for this user and resource."),
        _ => IdentityError::grant(9_002_313, "Invalid request. Request is malformed or invalid."),
    })?;
    if code.grant.client != client.id || !authority.accepts(&code.grant.directory) {
        return Err(IdentityError::grant(
            70_000,
            "The provided value for the 'code' parameter is not valid for this client.",
        ));
    }
    if value(form, "redirect_uri") != Some(&code.redirect_uri) {
        return Err(IdentityError::grant(
            500_112,
            "The reply address does not match the reply address provided when requesting Authorization code.",
        ));
    }
    let verifier = value(form, "code_verifier").ok_or_else(|| missing("code_verifier"))?;
    if !is_verified(verifier, &code.challenge) {
        return Err(IdentityError::grant(
            501_481,
            "The Code_Verifier does not match the code_challenge supplied in the authorization request.",
        ));
    }
    check_person(world, code.grant.account.as_deref())?;
    let grant = narrow_scopes(code.grant, form)?;
    let granted = world.provider.identity.tokens_mut().grant(&grant, world.now_ms());
    Ok(token_response(world, &grant, &granted, code.nonce.as_deref()))
}

fn refresh(
    world: &MicrosoftWorld,
    authority: &Authority,
    client: &MicrosoftClient,
    form: &FormFields,
) -> Result<SimResponse, IdentityError> {
    let token = value(form, "refresh_token").ok_or_else(|| missing("refresh_token"))?;
    let now_ms = world.now_ms();
    let grant =
        world.provider.identity.tokens().grant_of_refresh_token(token, &client.id, now_ms).map_err(refresh_error)?;
    check_person(world, grant.account.as_deref())?;
    if !authority.accepts(&grant.directory) {
        return Err(refresh_error(TokenRejection::Unknown));
    }
    let grant = narrow_scopes(grant, form)?;
    let granted = world.provider.identity.tokens_mut().refresh(token, &grant, now_ms).map_err(refresh_error)?;
    Ok(token_response(world, &grant, &granted, None))
}

/// Checks that the account's owner is present and may sign in.
pub fn check_person(world: &MicrosoftWorld, account: Option<&str>) -> Result<(), IdentityError> {
    let Some(mailbox) = account.and_then(|account| world.find(account)) else { return Ok(()) };
    let person = world.person(&mailbox);
    if !person.is_present() {
        let message = format!("The user account {} does not exist in the directory.", mailbox.id);
        return Err(IdentityError::grant(50_034, message));
    }
    if person.is_suspended {
        return Err(IdentityError::grant(50_057, "The user account is disabled."));
    }
    Ok(())
}

fn refresh_error(rejection: TokenRejection) -> IdentityError {
    match rejection {
        TokenRejection::Expired => IdentityError::grant(
            700_082,
            "The refresh token has expired due to inactivity. The token was inactive for 90.00:00:00.",
        ),
        TokenRejection::Revoked => IdentityError {
            suberror: Some("bad_token"),
            ..IdentityError::grant(
                50_173,
                "The provided grant has expired due to it being revoked, a fresh auth token is needed.",
            )
        },
        TokenRejection::Unknown | TokenRejection::Used | TokenRejection::Reused => {
            IdentityError::grant(70_000, "The provided value for the input parameter 'refresh_token' is not valid.")
        }
    }
}

/// Narrows a grant to the requested scopes, which must have been granted.
fn narrow_scopes(grant: MicrosoftGrant, form: &FormFields) -> Result<MicrosoftGrant, IdentityError> {
    let Some(wanted) = value(form, "scope").filter(|wanted| !wanted.is_empty()) else { return Ok(grant) };
    if let Some(scope) = unknown_scope(wanted.split_whitespace()) {
        return Err(IdentityError::new("invalid_scope", 70_011, format!("The scope {scope} is not valid.")));
    }
    if !wanted.split_whitespace().all(|scope| {
        permission(scope) == ".default"
            || grant.scopes.iter().any(|granted| permission(granted).eq_ignore_ascii_case(permission(scope)))
    }) {
        let message = "The user or administrator has not consented to use the application. Send an interactive \
                       authorization request for this user and resource.";
        return Err(IdentityError { suberror: Some("consent_required"), ..IdentityError::grant(65_001, message) });
    }
    let scopes = wanted.split_whitespace().filter(|scope| permission(scope) != ".default").map(str::to_owned).collect();
    Ok(if wanted.contains(".default") { grant } else { MicrosoftGrant { scopes, ..grant } })
}

fn issue_app_only(
    world: &MicrosoftWorld,
    authority: &Authority,
    client: &MicrosoftClient,
    form: &FormFields,
) -> Result<SimResponse, IdentityError> {
    let Authority::One(directory) = authority else {
        let message = "The grant type 'client_credentials' is not supported over the /common or /consumers endpoints. \
                       Please use the /organizations or tenant-specific endpoint.";
        return Err(IdentityError::request(9_001_023, message));
    };
    if value(form, "scope").ok_or_else(|| missing("scope"))? != format!("{GRAPH}.default") {
        let message = "The provided value for scope is not valid. Client credential flows must have a scope value with \
                       /.default suffixed to the resource identifier.";
        return Err(IdentityError::new("invalid_scope", 1_002_012, message));
    }
    let scopes =
        world.consented(directory, &client.id).ok_or_else(|| super::assertion::unknown_application(&client.id))?;
    let grant = MicrosoftGrant { account: None, directory: directory.clone(), client: client.id.clone(), scopes };
    let granted = world.provider.identity.tokens_mut().issue_app_only(&grant, world.now_ms());
    let (expires_in, token) = (granted.expires_in, granted.access_token);
    Ok(SimResponse::json(json!({
        "token_type": "Bearer", "expires_in": expires_in, "ext_expires_in": expires_in, "access_token": token,
    })))
}

fn token_response(
    world: &MicrosoftWorld,
    grant: &MicrosoftGrant,
    granted: &IssuedTokens,
    nonce: Option<&str>,
) -> SimResponse {
    let mut body = json!({
        "token_type": "Bearer", "scope": granted.scopes.join(" "), "expires_in": granted.expires_in,
        "ext_expires_in": granted.expires_in, "access_token": granted.access_token,
    });
    if let Some(token) = &granted.refresh_token {
        body["refresh_token"] = json!(token);
    }
    let mailbox = grant.account.as_deref().and_then(|account| world.find(account));
    if let Some(mailbox) = mailbox.filter(|_| grant.scopes.iter().any(|scope| scope == "openid")) {
        body["id_token"] = json!(world.provider.identity.id_token(world, &mailbox, &grant.client, nonce));
    }
    SimResponse::json(body)
}

/// Returns the default permissions of an administrator's consent.
pub fn permissions() -> Vec<String> {
    DEFAULT_PERMISSIONS.map(str::to_owned).to_vec()
}
