//! Who sends a push: a token that Google has signed, for us, in the name of the service account of our subscription.

use domain::Clock;
use serde_json::Value;

use super::PushSettings;
use crate::oidc::{Checked, Issuer, is_for, is_still_to_come, said, wrong_time};

/// Both are Google's own.
const ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

/// Why a call is not believed; for people, and nothing of the token is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Nobody knows who it is.
    Unauthorized(&'static str),
    /// Google has signed it, but not for us or not for whom it must.
    Forbidden(&'static str),
    /// Whether it is good cannot be said now.
    NoKeys,
}

impl Refused {
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unauthorized(reason) | Self::Forbidden(reason) => reason,
            Self::NoKeys => "the keys that it may be signed with cannot be had",
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
    settings: &PushSettings,
    clock: &dyn Clock,
    token: &str,
) -> Result<(), Refused> {
    match issuer.check(token).await {
        Checked::Claims(claims) => right_claims(&claims, settings, clock),
        Checked::Refused(refusal) => Err(Refused::Unauthorized(said(refusal))),
        Checked::NoKeys => Err(Refused::NoKeys),
    }
}

fn right_claims(claims: &Value, settings: &PushSettings, clock: &dyn Clock) -> Result<(), Refused> {
    if !ISSUERS.iter().any(|issuer| claims["iss"] == *issuer) {
        return Err(Refused::Unauthorized("it is of another issuer"));
    }
    if let Some(wrong) = wrong_time(claims, clock) {
        return Err(Refused::Unauthorized(wrong));
    }
    if is_still_to_come(claims, "iat", clock) {
        return Err(Refused::Unauthorized("it was made at a time that is still to come (iat)"));
    }
    if !is_for(claims, &settings.audience) {
        return Err(Refused::Forbidden(
            "it is meant for somebody else (aud); the audience of the subscription must be providers.google.push_audience",
        ));
    }
    let is_whom_it_must = claims["email"].as_str().is_some_and(|email| email == settings.service_account);
    if !is_whom_it_must || claims["email_verified"] != true {
        return Err(Refused::Forbidden(
            "it is of another service account than the subscription's (providers.google.push_service_account)",
        ));
    }
    Ok(())
}
