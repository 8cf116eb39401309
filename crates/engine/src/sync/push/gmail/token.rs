//! Authenticates a push: its token must be signed by Google, for us, in the name of the service account of our
//! subscription.

use domain::Clock;
use serde_json::Value;

use super::GmailPushSettings;
use crate::credentials::oidc::{Issuer, TokenCheck, find_time_error, is_for, is_in_future, refusal_text};

/// The two spellings of Google's issuer.
const ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

/// Why a call is refused; for people, and without anything of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushRefusal {
    /// The token is missing or not valid.
    Unauthorized(&'static str),
    /// Google has signed the token, but not for us or not for our service account.
    Forbidden(&'static str),
    /// The keys of the issuer are not at hand, so the token cannot be checked now.
    NoKeys,
}

impl PushRefusal {
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unauthorized(reason) | Self::Forbidden(reason) => reason,
            Self::NoKeys => "Google's signing keys cannot be fetched",
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized(_) => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::NoKeys => "no_keys",
        }
    }
}

pub(super) async fn verify(
    issuer: &Issuer,
    settings: &GmailPushSettings,
    clock: &dyn Clock,
    token: &str,
) -> Result<(), PushRefusal> {
    match issuer.check(token).await {
        TokenCheck::Claims(claims) => check_claims(&claims, settings, clock),
        TokenCheck::Refused(refusal) => Err(PushRefusal::Unauthorized(refusal_text(refusal))),
        TokenCheck::NoKeys => Err(PushRefusal::NoKeys),
    }
}

fn check_claims(claims: &Value, settings: &GmailPushSettings, clock: &dyn Clock) -> Result<(), PushRefusal> {
    if !ISSUERS.iter().any(|issuer| claims["iss"] == *issuer) {
        return Err(PushRefusal::Unauthorized("the token was issued by another issuer (iss)"));
    }
    if let Some(wrong) = find_time_error(claims, clock) {
        return Err(PushRefusal::Unauthorized(wrong));
    }
    if is_in_future(claims, "iat", clock) {
        return Err(PushRefusal::Unauthorized("the token was issued in the future (iat)"));
    }
    if !is_for(claims, &settings.audience) {
        return Err(PushRefusal::Forbidden(
            "the token is meant for another audience (aud); the audience of the subscription must be providers.google.push_audience",
        ));
    }
    let is_whom_it_must = claims["email"].as_str().is_some_and(|email| email == settings.service_account);
    if !is_whom_it_must || claims["email_verified"] != true {
        return Err(PushRefusal::Forbidden(
            "the token is of another service account than the subscription's (providers.google.push_service_account)",
        ));
    }
    Ok(())
}
