//! Client authentication: by secret, or by an assertion signed with the certificate's key.

use std::sync::PoisonError;

use serde_json::Value;

use super::super::world::MicrosoftWorld;
use super::certificate::Certificate;
use super::client::MicrosoftClient;
use super::error::IdentityError;
use crate::form::{FormFields, value};
use crate::sign_in::basic_credentials;

pub const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The maximum lifetime of an assertion, with a minute of tolerance.
const MAX_ASSERTION_SECONDS: i64 = 11 * 60;

/// The tolerated clock difference.
const CLOCK_SKEW_SECONDS: i64 = 300;

/// Authenticates the client. `audience` is the token endpoint's URL.
pub fn authenticate(
    world: &MicrosoftWorld,
    authorization: Option<&str>,
    form: &FormFields,
    audience: &str,
) -> Result<MicrosoftClient, IdentityError> {
    let basic = basic_credentials(authorization);
    let id = basic.as_ref().map(|(id, _)| id.as_str()).or_else(|| value(form, "client_id"));
    let Some(id) = id else {
        let message = "The request body must contain the following parameter: 'client_id'.";
        return Err(IdentityError::request(900_144, message));
    };
    let client = world.provider.identity.find_client(id).ok_or_else(|| unknown_application(id))?;
    let secret = basic.as_ref().map(|(_, secret)| secret.as_str()).or_else(|| value(form, "client_secret"));
    match (secret, value(form, "client_assertion")) {
        (Some(secret), None) => check_secret(&client, secret)?,
        (None, Some(assertion)) => check_assertion(world, &client, form, assertion, audience)?,
        (Some(_), Some(_)) => {
            return Err(IdentityError::request(90_014, "Both a secret and an assertion were given; one is expected."));
        }
        (None, None) => {
            let message =
                "The request body must contain the following parameter: 'client_assertion' or 'client_secret'.";
            return Err(IdentityError::client(7_000_218, message));
        }
    }
    Ok(client)
}

pub fn unknown_application(id: &str) -> IdentityError {
    let message = format!("Application with identifier '{id}' was not found in the directory.");
    IdentityError::new("unauthorized_client", 700_016, message)
}

fn check_secret(client: &MicrosoftClient, secret: &str) -> Result<(), IdentityError> {
    if client.secret.as_deref() != Some(secret) {
        let message = "Invalid client secret provided. Ensure the secret being sent in the request is the client secret \
                       value, not the client secret ID.";
        return Err(IdentityError::client(7_000_215, message));
    }
    if client.secret_expired {
        let message = format!("The provided client secret keys for app '{}' are expired.", client.id);
        return Err(IdentityError::client(7_000_222, message));
    }
    Ok(())
}

fn check_assertion(
    world: &MicrosoftWorld,
    client: &MicrosoftClient,
    form: &FormFields,
    assertion: &str,
    audience: &str,
) -> Result<(), IdentityError> {
    if value(form, "client_assertion_type") != Some(JWT_BEARER) {
        return Err(IdentityError::request(900_144, "client_assertion_type is not the one of RFC 7523."));
    }
    let certificate = client.certificate.as_deref().and_then(Certificate::from_pem);
    let claims = certificate.and_then(|certificate| certificate.open(assertion));
    let Some(claims) = claims else {
        let message = "The certificate with identifier used to sign the client assertion is not registered on \
                       application, or the signature is wrong.";
        return Err(IdentityError::client(700_027, message));
    };
    check_claims(&claims, client, audience, world.now_ms() / 1_000)?;
    let name = claims["jti"].as_str().unwrap_or_default();
    let mut assertions = world.provider.identity.assertions.lock().unwrap_or_else(PoisonError::into_inner);
    if name.is_empty() || !assertions.insert(format!("{} {name}", client.id)) {
        return Err(IdentityError::client(
            700_027,
            "The 'jti' claim of the client assertion is missing or was used before.",
        ));
    }
    Ok(())
}

fn check_claims(claims: &Value, client: &MicrosoftClient, audience: &str, now: i64) -> Result<(), IdentityError> {
    if claims["aud"] != audience {
        let message = format!("Client assertion audience claim does not match: it must be '{audience}'.");
        return Err(IdentityError::client(700_023, message));
    }
    if claims["iss"] != client.id.as_str() || claims["sub"] != client.id.as_str() {
        return Err(IdentityError::client(
            700_021,
            "Client assertion application identifier doesn't match 'client_id' parameter.",
        ));
    }
    let [from, until] = ["nbf", "exp"].map(|claim| claims[claim].as_i64());
    let (Some(from), Some(until)) = (from, until) else {
        return Err(IdentityError::client(700_027, "Client assertion has no 'nbf' or no 'exp'."));
    };
    if until <= from
        || until - from > MAX_ASSERTION_SECONDS
        || from > now + CLOCK_SKEW_SECONDS
        || until <= now - CLOCK_SKEW_SECONDS
    {
        return Err(IdentityError::client(700_024, "Client assertion is not within its valid time range."));
    }
    Ok(())
}
