//! Checks of claims that every token has.

use domain::Clock;
use serde_json::Value;

use crate::signed_token::TokenRefusal;

/// How far the clocks may differ.
const CLOCK_LEEWAY_SECONDS: f64 = 30.0;

/// What a token must say of its issuer and audience.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedClaims<'a> {
    /// The spellings of the issuer.
    pub issuers: &'a [&'a str],
    pub audience: &'a str,
}

impl ExpectedClaims<'_> {
    /// Checks issuer, lifetime and audience.
    pub(crate) fn check(self, claims: &Value, clock: &dyn Clock) -> Result<(), TokenRefusal> {
        if !self.issuers.iter().any(|issuer| claims["iss"] == *issuer) {
            return Err(TokenRefusal::WrongIssuer);
        }
        let now = clock.now().as_millisecond() as f64 / 1000.0;
        // An exp that is not a number counts as missing.
        let until = claims["exp"].as_f64().ok_or(TokenRefusal::NoExpiry)?;
        if now >= until + CLOCK_LEEWAY_SECONDS {
            return Err(TokenRefusal::Expired);
        }
        if is_in_future(claims, "nbf", clock) {
            return Err(TokenRefusal::NotYetValid);
        }
        // A token may be meant for others as well.
        let is_for_us = match &claims["aud"] {
            Value::Array(all) => all.iter().any(|one| one == self.audience),
            one => one == self.audience,
        };
        if is_for_us { Ok(()) } else { Err(TokenRefusal::WrongAudience) }
    }
}

/// Returns whether a time claim is in the future; one that is not a number counts as such.
pub fn is_in_future(claims: &Value, claim: &str, clock: &dyn Clock) -> bool {
    let now = clock.now().as_millisecond() as f64 / 1000.0;
    match &claims[claim] {
        Value::Null => false,
        from => from.as_f64().is_none_or(|from| now < from - CLOCK_LEEWAY_SECONDS),
    }
}
