//! A mailbox is connected in the browser of its owner: `start` sends them to their provider, who sends them back to
//! `callback`.
//!
//! It is not a change like the others, for a browser sends no key: whoever has one gets a link, and the link carries what
//! is wanted, sealed. What has become of it is a page for people.

mod callback;
mod page;
mod site;
mod start;

use axum::http::HeaderMap;
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::response::Response;
use domain::Sha256;
use engine::consent::GOOD_FOR;

pub use callback::{__path_end_google, __path_end_microsoft, end_google, end_microsoft};
pub use site::Site;
pub use start::{__path_start_google, __path_start_microsoft, start_google, start_microsoft};

use super::problem::Problem;
use crate::App;
use crate::edge::{ClientAddress, Known};

/// What a browser keeps under a name.
fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

/// The browser keeps it for these pages alone, and sends it when it comes back from elsewhere. Nothing ends it.
fn keep(response: &mut Response, app: &App, name: &str, value: &str) {
    let seconds = if value.is_empty() { 0 } else { GOOD_FOR.as_secs() };
    let public_url = &app.edge.settings.public_url;
    let secure = if public_url.starts_with("https://") { "; Secure" } else { "" };
    // Behind a proxy that serves us under a path of its own, that is what the browser sees.
    let under = public_url.splitn(4, '/').nth(3).map(|path| path.trim_end_matches('/')).filter(|path| !path.is_empty());
    let under = under.map(|path| format!("/{path}")).unwrap_or_default();
    let cookie = format!("{name}={value}; Path={under}/v1/oauth; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    // All of it is ours and ASCII.
    if let Ok(cookie) = cookie.parse() {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// What is made up counts like a wrong key: whoever tries many has to wait.
fn must_be_welcome(parts: &Parts, app: &App, sealed: &str) -> Result<(), Problem> {
    let Some(ClientAddress(address)) = parts.extensions.get() else { return Ok(()) };
    match app.edge.guesses.look(*address, Sha256::of(sealed.as_bytes())) {
        Known::TooMany(wait) => Err(Problem::too_many("too many wrong links came from your address", wait)),
        Known::Good(_) | Known::Nothing => Ok(()),
    }
}

fn was_made_up(parts: &Parts, app: &App, sealed: &str) {
    if let Some(ClientAddress(address)) = parts.extensions.get() {
        app.edge.guesses.was_wrong(*address, Sha256::of(sealed.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others_and_only_under_its_own_name() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; mailroom_consent_x=abc=; b=2".parse().unwrap());
        headers.append(COOKIE, "c=3".parse().unwrap());

        assert_eq!(cookie(&headers, "mailroom_consent_x").as_deref(), Some("abc="));
        assert_eq!(cookie(&headers, "c").as_deref(), Some("3"));
        assert_eq!(cookie(&headers, "mailroom_consent"), None);
    }
}
