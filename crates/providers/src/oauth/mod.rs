//! OAuth 2.0 as all providers have it (RFC 6749): token requests and their responses. The meaning of an error differs
//! between providers and is in their modules.

pub mod access_fields;
pub mod signing;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::connector::{ConnectorAccount, TokenGrant};
use domain::{Clock, ConnectorError, Secret, SystemClock};
use jiff::SignedDuration;
use outbound::http::header::CONTENT_TYPE;
use outbound::http::{RequestBuilder, Url};
use serde::Deserialize;
use serde_json::Value;

use crate::http::{ErrorResponse, HttpClient, protocol, unavailable};

/// With a larger difference between the clocks, an assertion of ours is not valid yet or has expired.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(4);

/// Lifetime of a token whose response has no `expires_in`.
const DEFAULT_TOKEN_LIFETIME_SECONDS: u64 = 3600;

#[derive(Deserialize)]
pub struct TokenResponse {
    pub access_token: String,
    expires_in: Option<Value>,
    pub refresh_token: Option<String>,
    pub scope: Option<String>,
    pub id_token: Option<String>,
}

impl TokenResponse {
    /// Reads `expires_in`, a number that some providers send as a string.
    fn expires_in(&self) -> Duration {
        let seconds = match &self.expires_in {
            Some(Value::String(text)) => text.parse().unwrap_or(0),
            Some(number) => number.as_u64().unwrap_or(0),
            None => DEFAULT_TOKEN_LIFETIME_SECONDS,
        };
        // No provider grants more; the limit keeps date arithmetic from overflowing.
        Duration::from_secs(seconds.min(86_400))
    }

    /// Returns the grant for this account, with a refresh token that replaces its secret if the provider has rotated it.
    pub fn into_grant(self, account: &ConnectorAccount) -> TokenGrant {
        let expires_in = self.expires_in();
        // The same token again changes nothing, and an account without a secret needs none.
        let secret = self.refresh_token.map(Secret::new).filter(|secret| {
            let known = account.secret.as_ref().map(Secret::expose);
            !secret.expose().is_empty() && known.is_some_and(|known| known != secret.expose())
        });
        TokenGrant { token: Secret::new(self.access_token), expires_in, secret }
    }

    /// Returns the refresh token, if there is one.
    pub fn lasting_refresh_token(&self) -> Option<Secret<String>> {
        self.refresh_token.clone().filter(|secret| !secret.is_empty()).map(Secret::new)
    }

    /// Returns whether a scope that matches was granted. Without `scope`, all requested ones are (RFC 6749, 5.1).
    pub fn has_scope(&self, matches: impl Fn(&str) -> bool) -> bool {
        self.scope.as_deref().is_none_or(|scope| scope.split_ascii_whitespace().any(matches))
    }
}

/// Requests a token. Returns the error response as `Ok(Err(…))`.
pub async fn request_token(
    http: &HttpClient,
    url: &str,
    fields: &[(&str, &str)],
) -> Result<Result<TokenResponse, ErrorResponse>, ConnectorError> {
    let request = form(http.client.post(url), fields)?;
    match http.try_json::<TokenResponse>(request).await {
        Ok(Ok(token)) if token.access_token.is_empty() => Err(malformed_response()),
        Err(ConnectorError::Protocol(_)) => Err(malformed_response()),
        response => response,
    }
}

fn malformed_response() -> ConnectorError {
    unavailable("the token response is malformed")
}

/// Adds the fields as an `application/x-www-form-urlencoded` body.
pub fn form(request: RequestBuilder, fields: &[(&str, &str)]) -> Result<RequestBuilder, ConnectorError> {
    // A form has the encoding of a query string.
    let url = Url::parse_with_params("http://form", fields).map_err(|_| protocol("the form cannot be encoded"))?;
    let body = url.query().unwrap_or_default().to_owned();
    Ok(request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body))
}

/// Returns a URL with these query parameters.
pub fn with_query(base: &str, fields: &[(&str, &str)]) -> String {
    Url::parse_with_params(base, fields).map_or_else(|_| base.to_owned(), Into::into)
}

/// An error of the token endpoint.
#[derive(Debug, Default)]
pub struct TokenError {
    /// `invalid_grant` and the like; empty if the response has none.
    pub error: String,
    /// Microsoft's own numbers (AADSTS…).
    pub codes: Vec<u64>,
}

impl TokenError {
    pub fn of(response: &ErrorResponse) -> Self {
        let body: Value = response.json().unwrap_or_default();
        let codes = body["error_codes"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        Self { error: body["error"].as_str().unwrap_or_default().to_owned(), codes: codes.collect() }
    }

    /// Returns whether one of Microsoft's numbers is among these.
    pub fn has_code(&self, codes: &[u64]) -> bool {
        self.codes.iter().any(|code| codes.contains(code))
    }
}

/// Returns the claims of an id token if its audience is us. It comes from the provider itself over TLS, so its signature
/// need not be checked (OpenID Connect Core, 3.1.3.7).
pub fn claims_for(client_id: &str, id_token: &str) -> Option<Value> {
    let claims = URL_SAFE_NO_PAD.decode(id_token.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let is_for_us = claims["aud"] == client_id
        || claims["aud"].as_array().is_some_and(|all| all.iter().any(|aud| aud == client_id));
    is_for_us.then_some(claims)
}

/// Returns whether the settings say that our app opens the mailbox without its owner's consent.
pub fn is_app_only(settings: &str) -> bool {
    let settings: Option<Value> = serde_json::from_str(settings).ok();
    settings.is_some_and(|settings| settings["app_only"] == true)
}

/// Returns the user of app-only calls: by its id in the directory if that is known, else by the account's address.
pub fn user(account: &ConnectorAccount) -> String {
    setting(account, "user").unwrap_or_else(|| address(account))
}

/// Returns the account's address at the provider. The mailbox may have another name, if that was taken.
pub fn address(account: &ConnectorAccount) -> String {
    setting(account, "account").unwrap_or_else(|| account.address.clone())
}

fn setting(account: &ConnectorAccount, name: &str) -> Option<String> {
    let settings: Value = serde_json::from_str(&account.settings).ok()?;
    settings[name].as_str().map(str::to_owned)
}

/// Returns whether our clock differs so much from the server's that it may reject an assertion for that alone.
pub fn is_clock_wrong(response: &ErrorResponse) -> bool {
    response.date().is_some_and(|theirs| theirs.duration_since(SystemClock.now()).abs() > MAX_CLOCK_SKEW)
}

pub fn unauthorized(what: &str) -> ConnectorError {
    ConnectorError::Unauthorized(what.to_owned())
}

/// Returns an error that only the operator can fix.
pub fn app_rejected(what: &str) -> ConnectorError {
    ConnectorError::AppRejected(what.to_owned())
}
