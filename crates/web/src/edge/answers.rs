//! Answers for browsers and for slow lines: other origins, compression, and which methods there are.

use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::Predicate;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::api::Problem;

/// Smaller ones fit into a packet or two as they are.
const WORTH_IT: u64 = 1024;

const HOUR: Duration = Duration::from_secs(3600);

/// `None` when no other origin may ask. Never with credentials: a key is sent by the program, not by the browser.
pub(crate) fn cors(origins: &[String]) -> Option<CorsLayer> {
    let named = |name| HeaderName::from_static(name);
    let origins = match origins {
        [] => return None,
        all if all.iter().any(|origin| origin == "*") => AllowOrigin::any(),
        some => AllowOrigin::list(some.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())),
    };
    let methods = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let sent = [
        header::AUTHORIZATION,
        header::CONTENT_TYPE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::RANGE,
        named("idempotency-key"),
        named("last-event-id"),
        named("x-request-id"),
        named("x-tenant-id"),
    ];
    let told = [
        header::CONTENT_DISPOSITION,
        header::CONTENT_RANGE,
        header::ETAG,
        header::LINK,
        header::LOCATION,
        header::RETRY_AFTER,
        named("ratelimit"),
        named("ratelimit-policy"),
        named("x-request-id"),
    ];
    let cors = CorsLayer::new().allow_origin(origins).allow_methods(methods).allow_headers(sent).expose_headers(told);
    Some(cors.max_age(HOUR))
}

pub(crate) fn compression() -> CompressionLayer<Compressible> {
    CompressionLayer::new().compress_when(Compressible)
}

/// Text that we made. Not events, which are to be there at once; not stored bytes, whose ranges and tags are of the bytes
/// as they are; not problems, which are short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compressible;

impl Predicate for Compressible {
    fn should_compress<B: http_body::Body>(&self, response: &axum::http::Response<B>) -> bool {
        let headers = response.headers();
        let size = response.body().size_hint().exact();
        is_text(headers)
            && size.is_none_or(|size| size >= WORTH_IT)
            && response.status() != StatusCode::PARTIAL_CONTENT
            // A tag that names these very bytes would name others.
            && [header::ETAG, header::CONTENT_RANGE, header::CONTENT_DISPOSITION, header::CONTENT_ENCODING]
                .iter()
                .all(|name| !headers.contains_key(name))
    }
}

fn is_text(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    match content_type {
        "text/event-stream" => false,
        "application/json" => true,
        other => other.starts_with("text/"),
    }
}

/// `OPTIONS` says which methods an address takes: the router adds `Allow` to whatever we answer. That of a browser, which
/// asks for its page, is answered elsewhere.
pub(crate) async fn options(request: Request, next: Next) -> Response {
    let is_for_a_page = request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if request.method() != Method::OPTIONS || is_for_a_page {
        return next.run(request).await;
    }
    match request.extensions().get::<MatchedPath>() {
        Some(_) => StatusCode::NO_CONTENT.into_response(),
        None => Problem::nowhere().into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn only_text_of_our_own_is_compressed() {
        let of = |status: u16, headers: &[(&str, &str)], bytes: usize| {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            Compressible.should_compress(&response.body(Body::from(vec![b'x'; bytes])).unwrap())
        };
        let json = ("content-type", "application/json; charset=utf-8");
        assert!(of(200, &[json], 2000) && of(200, &[("content-type", "text/javascript")], 2000));
        assert!(!of(200, &[json], 1000), "short");
        for other in ["text/event-stream", "application/problem+json", "application/octet-stream", "image/png"] {
            assert!(!of(200, &[("content-type", other)], 2000), "{other}");
        }
        for header in [("etag", "\"x\""), ("content-disposition", "attachment"), ("content-encoding", "br")] {
            assert!(!of(200, &[json, header], 2000), "{header:?}");
        }
        assert!(!of(206, &[json], 2000));
    }
}
