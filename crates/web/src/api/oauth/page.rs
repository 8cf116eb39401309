//! What a person is told in the browser: a plain page that loads and runs nothing, or JSON for who asks for that.

use axum::Json;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::header::{HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::api::problem::Problem;

/// Nothing runs, nothing is loaded, nobody puts it in a frame.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Why nothing came of it.
#[derive(Debug)]
pub struct Stop {
    pub status: StatusCode,
    pub title: &'static str,
    /// What it is, and what to do about it.
    pub text: String,
}

impl Stop {
    pub fn new(status: StatusCode, title: &'static str, text: impl Into<String>) -> Self {
        Self { status, title, text: text.into() }
    }

    pub fn answer(self, headers: &HeaderMap) -> Response {
        if wants_json(headers) {
            return quiet(Problem::new(self.status, self.text).into_response());
        }
        page(self.status, self.title, &self.text)
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, "That did not work", problem.detail())
    }
}

impl From<anyhow::Error> for Stop {
    fn from(e: anyhow::Error) -> Self {
        Problem::from(e).into()
    }
}

impl From<store::StoreError> for Stop {
    fn from(e: store::StoreError) -> Self {
        Problem::from(e).into()
    }
}

pub fn done(headers: &HeaderMap, title: &str, text: &str, json: Value) -> Response {
    if wants_json(headers) {
        return quiet(Json(json).into_response());
    }
    page(StatusCode::OK, title, text)
}

/// A browser wants a page, whatever else it takes.
fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.contains("json") && !accept.contains("text/html")
}

fn page(status: StatusCode, title: &str, text: &str) -> Response {
    let (title, text) = (escaped(title), escaped(text));
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n<p>{text}</p>\n</body>\n</html>\n"
    );
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    quiet(response)
}

/// The address had a code in it: nobody keeps the answer, and nobody is told where it came from.
pub fn quiet(mut response: Response) -> Response {
    const SAID: [(HeaderName, &str); 3] =
        [(CACHE_CONTROL, "no-store"), (REFERRER_POLICY, "no-referrer"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    for (name, value) in SAID {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// To the provider, and never twice.
pub fn redirect(url: &str) -> Response {
    let mut response = StatusCode::FOUND.into_response();
    if let Ok(url) = url.parse() {
        response.headers_mut().insert(header::LOCATION, url);
    }
    quiet(response)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_elsewhere_is_text() {
        assert_eq!(escaped("<a href='x\">&"), "&lt;a href=&#39;x&quot;&gt;&amp;");
    }

    #[test]
    fn json_is_for_who_asks_for_it_and_is_no_browser() {
        let of = |accept: &'static str| wants_json(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]));
        assert!(of("application/json") && of("application/problem+json, */*"));
        assert!(!of("text/html,application/xhtml+xml,application/json;q=0.9") && !of("*/*"));
        assert!(!wants_json(&HeaderMap::new()));
    }
}
