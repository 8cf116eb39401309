//! `/docs`: a page that shows `/openapi.json` and tries it out. All of it is in the binary, and it loads nothing from
//! anywhere else.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::routing::get;

/// Only what came from here runs, and it asks only here.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

type Headers = [(HeaderName, &'static str); 4];

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let asset = |content_type, text: &'static str| get(async move || (headers(content_type), text));
    Router::new()
        .route("/docs", asset("text/html; charset=utf-8", include_str!("docs.html")))
        .route("/docs/docs.js", asset("text/javascript; charset=utf-8", include_str!("docs.js")))
        .route("/docs/docs.css", asset("text/css; charset=utf-8", include_str!("docs.css")))
}

fn headers(content_type: &'static str) -> Headers {
    [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ]
}
