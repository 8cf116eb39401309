//! Checks of claims that every token has.

use domain::Clock;
use serde_json::Value;

/// How far the clocks may differ.
const CLOCK_LEEWAY_SECONDS: f64 = 30.0;

/// Returns whether a token is meant for this audience, and perhaps for others.
pub fn is_for(claims: &Value, audience: &str) -> bool {
    match &claims["aud"] {
        Value::Array(all) => all.iter().any(|one| one == audience),
        one => one == audience,
    }
}

/// Returns why a token is not valid at this time, if so.
pub fn find_time_error(claims: &Value, clock: &dyn Clock) -> Option<&'static str> {
    let now = clock.now().as_millisecond() as f64 / 1000.0;
    // An exp that is not a number counts as missing.
    match claims["exp"].as_f64() {
        None => return Some("it has no expiry time (exp)"),
        Some(until) if now >= until + CLOCK_LEEWAY_SECONDS => return Some("it has expired"),
        Some(_) => {}
    }
    is_in_future(claims, "nbf", clock).then_some("it is not valid yet (nbf)")
}

/// Returns whether a time claim is in the future; one that is not a number counts as such.
pub fn is_in_future(claims: &Value, claim: &str, clock: &dyn Clock) -> bool {
    let now = clock.now().as_millisecond() as f64 / 1000.0;
    match &claims[claim] {
        Value::Null => false,
        from => from.as_f64().is_none_or(|from| now < from - CLOCK_LEEWAY_SECONDS),
    }
}
