//! OAuth 2.0 as all who speak it do (RFC 6749): asking for a token, and reading what is said to that. What a refusal means
//! differs from one provider to the next, and is theirs.

pub mod signing;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::connector::{Account, Grant};
use domain::{Clock, ConnectorError, Secret, SystemClock};
use jiff::SignedDuration;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use serde_json::Value;

use crate::http::{Http, Refused, protocol, unavailable};

/// More than this apart, and an assertion of ours is of the past or the future to whoever reads it.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(4);

/// What an answer means that does not say for how long its token is good.
const USUAL_LIFE_SECONDS: u64 = 3600;

#[derive(Deserialize)]
pub struct TokenAnswer {
    pub access_token: String,
    expires_in: Option<Value>,
    pub refresh_token: Option<String>,
    pub scope: Option<String>,
    pub id_token: Option<String>,
}

impl TokenAnswer {
    /// A number, which some write as a text.
    fn expires_in(&self) -> Duration {
        let seconds = match &self.expires_in {
            Some(Value::String(text)) => text.parse().unwrap_or(0),
            Some(number) => number.as_u64().unwrap_or(0),
            None => USUAL_LIFE_SECONDS,
        };
        // Nothing that long is ever given; it only has to be a time that can be reckoned with.
        Duration::from_secs(seconds.min(86_400))
    }

    /// What it gives this account, with what is to be used from now on in the place of its secret.
    pub fn grant(self, account: &Account) -> Grant {
        let expires_in = self.expires_in();
        // One that is the same is no news, and who has none needs none.
        let secret = self.refresh_token.map(Secret::new).filter(|secret| {
            let known = account.secret.as_ref().map(Secret::expose);
            !secret.expose().is_empty() && known.is_some_and(|known| known != secret.expose())
        });
        Grant { token: Secret::new(self.access_token), expires_in, secret }
    }

    /// What lasts, if it was given.
    pub fn lasting(&self) -> Option<Secret<String>> {
        self.refresh_token.clone().filter(|secret| !secret.is_empty()).map(Secret::new)
    }

    /// Whether one of these scopes was granted. Without a word about scopes all that were asked for are (RFC 6749, 5.1).
    pub fn has_scope(&self, is_it: impl Fn(&str) -> bool) -> bool {
        self.scope.as_deref().is_none_or(|scope| scope.split_ascii_whitespace().any(is_it))
    }
}

/// `Ok(Err(…))`: it was refused, and says why.
pub async fn ask_token(
    http: &Http,
    url: &str,
    fields: &[(&str, &str)],
) -> Result<Result<TokenAnswer, Refused>, ConnectorError> {
    let request = form(http.client.post(url), fields)?;
    match http.attempt::<TokenAnswer>(request).await {
        Ok(Ok(answer)) if answer.access_token.is_empty() => Err(senseless()),
        Err(ConnectorError::Protocol(_)) => Err(senseless()),
        asked => asked,
    }
}

fn senseless() -> ConnectorError {
    unavailable("the answer to a token call makes no sense")
}

pub fn form(request: RequestBuilder, fields: &[(&str, &str)]) -> Result<RequestBuilder, ConnectorError> {
    // A form is written as a query is.
    let url = Url::parse_with_params("http://form", fields).map_err(|_| protocol("a form that cannot be written"))?;
    let body = url.query().unwrap_or_default().to_owned();
    Ok(request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body))
}

/// Where a person is sent, with these parameters.
pub fn with_query(base: &str, fields: &[(&str, &str)]) -> String {
    Url::parse_with_params(base, fields).map_or_else(|_| base.to_owned(), Into::into)
}

/// Why a token call was refused.
#[derive(Debug, Default)]
pub struct ErrorAnswer {
    /// `invalid_grant` and its like; empty if it says nothing of the kind.
    pub error: String,
    /// Microsoft's own numbers.
    pub codes: Vec<u64>,
}

impl ErrorAnswer {
    pub fn of(refused: &Refused) -> Self {
        let said: Value = refused.json().unwrap_or_default();
        let codes = said["error_codes"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        Self { error: said["error"].as_str().unwrap_or_default().to_owned(), codes: codes.collect() }
    }
}

/// What an id token says, if it is for us. It comes from the provider itself over TLS, so nobody else can have made it
/// (OpenID Connect Core, 3.1.3.7); that it is for us is looked at all the same.
pub fn claims_for(client_id: &str, id_token: &str) -> Option<Value> {
    let claims = URL_SAFE_NO_PAD.decode(id_token.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let is_for_us = claims["aud"] == client_id
        || claims["aud"].as_array().is_some_and(|all| all.iter().any(|aud| aud == client_id));
    is_for_us.then_some(claims)
}

/// Whether our app opens the mailbox by itself.
pub fn is_app_only(settings: &str) -> bool {
    let settings: Option<Value> = serde_json::from_str(settings).ok();
    settings.is_some_and(|settings| settings["app_only"] == true)
}

/// Whom a call in our own name is for: as a directory calls them if that is known, else by the account's address.
pub fn user(account: &Account) -> String {
    setting(account, "user").unwrap_or_else(|| address(account))
}

/// What the provider knows the account by. The mailbox may be called otherwise, where its name was taken.
pub fn address(account: &Account) -> String {
    setting(account, "account").unwrap_or_else(|| account.address.clone())
}

fn setting(account: &Account, name: &str) -> Option<String> {
    let settings: Value = serde_json::from_str(&account.settings).ok()?;
    settings[name].as_str().map(str::to_owned)
}

/// Whether an assertion may have been refused only because of what time it is here.
pub fn is_clock_wrong(refused: &Refused) -> bool {
    refused.date().is_some_and(|theirs| theirs.duration_since(SystemClock.now()).abs() > CLOCK_TOLERANCE)
}

pub fn unauthorized(what: &str) -> ConnectorError {
    ConnectorError::Unauthorized(what.to_owned())
}

pub fn operator(what: &str) -> ConnectorError {
    ConnectorError::Operator(what.to_owned())
}
