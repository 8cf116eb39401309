//! Who a program is, by its secret or by what its certificate's key has signed.

use std::sync::PoisonError;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::world::World;
use super::certificate::Certificate;
use super::client::Client;
use super::error::Wrong;
use crate::form::{decode, value};

pub const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The longest life of an assertion, with a minute for clocks that differ.
const LONGEST: i64 = 11 * 60;

/// Clocks that differ by so many seconds are still believed.
const SKEW: i64 = 300;

type Pairs = [(String, String)];

/// `audience`: the address that the token is asked at.
pub fn authenticate(world: &World, authorization: Option<&str>, form: &Pairs, audience: &str) -> Result<Client, Wrong> {
    let basic = authorization.and_then(|given| given.strip_prefix("Basic ")).and_then(|given| {
        let text = String::from_utf8(STANDARD.decode(given).ok()?).ok()?;
        let (id, secret) = text.split_once(':')?;
        Some((decode(id), decode(secret)))
    });
    let id = basic.as_ref().map(|(id, _)| id.as_str()).or_else(|| value(form, "client_id"));
    let Some(id) = id else {
        let message = "The request body must contain the following parameter: 'client_id'.";
        return Err(Wrong::request(900_144, message));
    };
    let client = world.identity.client(id).ok_or_else(|| not_found(id))?;
    let secret = basic.as_ref().map(|(_, secret)| secret.as_str()).or_else(|| value(form, "client_secret"));
    match (secret, value(form, "client_assertion")) {
        (Some(secret), None) => check_secret(&client, secret)?,
        (None, Some(assertion)) => check_assertion(world, &client, form, assertion, audience)?,
        (Some(_), Some(_)) => {
            return Err(Wrong::request(90_014, "Both a secret and an assertion were given; one is expected."));
        }
        (None, None) => {
            let message =
                "The request body must contain the following parameter: 'client_assertion' or 'client_secret'.";
            return Err(Wrong::client(7_000_218, message));
        }
    }
    Ok(client)
}

pub fn not_found(id: &str) -> Wrong {
    let message = format!("Application with identifier '{id}' was not found in the directory.");
    Wrong::new("unauthorized_client", 700_016, message)
}

fn check_secret(client: &Client, secret: &str) -> Result<(), Wrong> {
    if client.secret.as_deref() != Some(secret) {
        let message = "Invalid client secret provided. Ensure the secret being sent in the request is the client secret \
                       value, not the client secret ID.";
        return Err(Wrong::client(7_000_215, message));
    }
    if client.secret_expired {
        let message = format!("The provided client secret keys for app '{}' are expired.", client.id);
        return Err(Wrong::client(7_000_222, message));
    }
    Ok(())
}

fn check_assertion(world: &World, client: &Client, form: &Pairs, assertion: &str, audience: &str) -> Result<(), Wrong> {
    if value(form, "client_assertion_type") != Some(JWT_BEARER) {
        return Err(Wrong::request(900_144, "client_assertion_type is not the one of RFC 7523."));
    }
    let certificate = client.certificate.as_deref().and_then(Certificate::from_pem);
    let claims = certificate.and_then(|certificate| certificate.open(assertion));
    let Some(claims) = claims else {
        let message = "The certificate with identifier used to sign the client assertion is not registered on \
                       application, or the signature is wrong.";
        return Err(Wrong::client(700_027, message));
    };
    check_claims(&claims, client, audience, world.now_ms() / 1_000)?;
    let name = claims["jti"].as_str().unwrap_or_default();
    let mut assertions = world.identity.assertions.lock().unwrap_or_else(PoisonError::into_inner);
    if name.is_empty() || !assertions.insert(format!("{} {name}", client.id)) {
        return Err(Wrong::client(700_027, "The 'jti' claim of the client assertion is missing or was used before."));
    }
    Ok(())
}

fn check_claims(claims: &Value, client: &Client, audience: &str, now: i64) -> Result<(), Wrong> {
    if claims["aud"] != audience {
        let message = format!("Client assertion audience claim does not match: it must be '{audience}'.");
        return Err(Wrong::client(700_023, message));
    }
    if claims["iss"] != client.id.as_str() || claims["sub"] != client.id.as_str() {
        return Err(Wrong::client(
            700_021,
            "Client assertion application identifier doesn't match 'client_id' parameter.",
        ));
    }
    let [from, until] = ["nbf", "exp"].map(|claim| claims[claim].as_i64());
    let (Some(from), Some(until)) = (from, until) else {
        return Err(Wrong::client(700_027, "Client assertion has no 'nbf' or no 'exp'."));
    };
    if until <= from || until - from > LONGEST || from > now + SKEW || until <= now - SKEW {
        return Err(Wrong::client(700_024, "Client assertion is not within its valid time range."));
    }
    Ok(())
}
