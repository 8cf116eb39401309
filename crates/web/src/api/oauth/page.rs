//! Pages of the consent flow: plain HTML that loads and runs nothing, or JSON if requested.

use axum::Json;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::header::{HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::problem::Problem;

/// Content security policy: no scripts, no resources, no frames.
const CONTENT_POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A consent that failed, as shown to the person.
#[derive(Debug)]
pub struct ConsentFailure {
    pub status: StatusCode,
    pub title: &'static str,
    /// What happened, and what to do.
    pub text: String,
}

impl ConsentFailure {
    pub fn new(status: StatusCode, title: &'static str, text: impl Into<String>) -> Self {
        Self { status, title, text: text.into() }
    }

    pub fn answer(self, headers: &HeaderMap) -> Response {
        if wants_json(headers) {
            return without_caching(Problem::new(self.status, self.text).into_response());
        }
        page(self.status, self.title, &self.text)
    }
}

impl From<Problem> for ConsentFailure {
    fn from(problem: Problem) -> Self {
        let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, "Connecting failed", problem.detail())
    }
}

impl From<anyhow::Error> for ConsentFailure {
    fn from(e: anyhow::Error) -> Self {
        Problem::from(e).into()
    }
}

impl From<store::StoreError> for ConsentFailure {
    fn from(e: store::StoreError) -> Self {
        Problem::from(e).into()
    }
}

pub fn done(headers: &HeaderMap, title: &str, text: &str, json: Value) -> Response {
    if wants_json(headers) {
        return without_caching(Json(json).into_response());
    }
    page(StatusCode::OK, title, text)
}

/// Returns whether the client asks for JSON and is not a browser.
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
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY));
    without_caching(response)
}

/// Forbids caching and referrers, since the URL contained a code.
pub fn without_caching(mut response: Response) -> Response {
    const HEADERS: [(HeaderName, &str); 3] =
        [(CACHE_CONTROL, "no-store"), (REFERRER_POLICY, "no-referrer"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Redirects to the provider, uncached.
pub fn redirect(url: &str) -> Response {
    let mut response = StatusCode::FOUND.into_response();
    if let Ok(url) = url.parse() {
        response.headers_mut().insert(header::LOCATION, url);
    }
    without_caching(response)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped() {
        assert_eq!(escaped("<a href='x\">&"), "&lt;a href=&#39;x&quot;&gt;&amp;");
    }

    #[test]
    fn browsers_get_html() {
        let of = |accept: &'static str| wants_json(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]));
        assert!(of("application/json") && of("application/problem+json, */*"));
        assert!(!of("text/html,application/xhtml+xml,application/json;q=0.9") && !of("*/*"));
        assert!(!wants_json(&HeaderMap::new()));
    }
}
