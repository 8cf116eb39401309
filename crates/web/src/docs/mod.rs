//! `/docs`: a page that shows `/openapi.json` and can send requests. It is embedded in the binary and loads nothing from
//! other hosts.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::routing::{MethodRouter, get};

/// Scripts, styles and requests from this server only.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

type AssetHeaders = [(HeaderName, &'static str); 4];

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/docs", asset("text/html; charset=utf-8", include_str!("docs.html")))
        .route("/docs/docs.js", asset("text/javascript; charset=utf-8", include_str!("docs.js")))
        .route("/docs/docs.css", asset("text/css; charset=utf-8", include_str!("docs.css")))
}

fn asset<S: Clone + Send + Sync + 'static>(content_type: &'static str, text: &'static str) -> MethodRouter<S> {
    get(async move || (headers(content_type), text))
}

fn headers(content_type: &'static str) -> AssetHeaders {
    [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ]
}
