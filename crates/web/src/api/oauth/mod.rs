//! OAuth consent: the owner of a mailbox connects it in a browser. `start` redirects them to the provider, which redirects
//! them back to `callback`.
//!
//! A browser sends no key, so this is not a change like the others: the holder of a key gets a link that carries the
//! settings of the mailbox, sealed. The outcome is a page for people.

mod callback;
mod declared_routes;
mod page;
mod site;
mod start;

use axum::http::HeaderMap;
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::response::Response;
use domain::Sha256;
use engine::credentials::consent::CONSENT_LIFETIME;

pub use callback::{__path_end, end};
pub use declared_routes::add_declared_routes;
pub use start::{__path_start, start};

use super::problem::Problem;
use crate::App;
use crate::edge::{ClientAddress, KeyHistory};

/// Finds a cookie by name.
fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

/// Sets a cookie for the consent pages, which the browser also sends when the provider redirects it back. An empty value
/// deletes the cookie.
fn set_cookie(response: &mut Response, app: &App, name: &str, value: &str) {
    let seconds = if value.is_empty() { 0 } else { CONSENT_LIFETIME.as_secs() };
    let public_url = &app.edge.settings.public_url;
    let secure = if public_url.starts_with("https://") { "; Secure" } else { "" };
    // Behind a proxy with a path prefix, the browser sees that prefix.
    let under = public_url.splitn(4, '/').nth(3).map(|path| path.trim_end_matches('/')).filter(|path| !path.is_empty());
    let under = under.map(|path| format!("/{path}")).unwrap_or_default();
    let cookie = format!("{name}={value}; Path={under}/v1/oauth; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    // All parts are ours and ASCII, hence valid.
    if let Ok(cookie) = cookie.parse() {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// Fails with 429 if too many forged links came from the address; they count like wrong keys.
fn check_throttle(parts: &Parts, app: &App, sealed: &str) -> Result<(), Problem> {
    let Some(ClientAddress(address)) = parts.extensions.get() else { return Ok(()) };
    match app.edge.auth_throttle.check(*address, Sha256::of(sealed.as_bytes())) {
        KeyHistory::Throttled(wait) => {
            Err(Problem::too_many_requests("too many invalid links were opened from this address", wait))
        }
        KeyHistory::RecentlyValid(_) | KeyHistory::Unknown => Ok(()),
    }
}

fn record_forgery(parts: &Parts, app: &App, sealed: &str) {
    if let Some(ClientAddress(address)) = parts.extensions.get() {
        app.edge.auth_throttle.record_failure(*address, Sha256::of(sealed.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_found_by_its_exact_name() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; mailroom_consent_x=abc=; b=2".parse().unwrap());
        headers.append(COOKIE, "c=3".parse().unwrap());

        assert_eq!(cookie(&headers, "mailroom_consent_x").as_deref(), Some("abc="));
        assert_eq!(cookie(&headers, "c").as_deref(), Some("3"));
        assert_eq!(cookie(&headers, "mailroom_consent"), None);
    }
}
