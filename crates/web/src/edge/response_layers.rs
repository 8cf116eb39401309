//! Response layers: CORS, compression, and answers to `OPTIONS`.

use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::Predicate;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::problem::Problem;

/// Smaller responses fit into a packet or two uncompressed.
const MIN_COMPRESSED_BYTES: u64 = 1024;

/// How long a browser may cache a preflight response.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(3600);

/// Returns `None` if no other origin is allowed. Never with credentials: keys are sent by scripts, not by the browser.
pub(crate) fn cors(origins: &[String]) -> Option<CorsLayer> {
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
        HeaderName::from_static("idempotency-key"),
        HeaderName::from_static("last-event-id"),
        HeaderName::from_static("x-request-id"),
        HeaderName::from_static("x-tenant-id"),
    ];
    let exposed = [
        header::CONTENT_DISPOSITION,
        header::CONTENT_RANGE,
        header::ETAG,
        header::LINK,
        header::LOCATION,
        header::RETRY_AFTER,
        HeaderName::from_static("ratelimit"),
        HeaderName::from_static("ratelimit-policy"),
        HeaderName::from_static("x-request-id"),
    ];
    let cors =
        CorsLayer::new().allow_origin(origins).allow_methods(methods).allow_headers(sent).expose_headers(exposed);
    Some(cors.max_age(PREFLIGHT_MAX_AGE))
}

pub(crate) fn compression() -> CompressionLayer<Compressible> {
    CompressionLayer::new().compress_when(Compressible)
}

/// Compresses JSON and text that we generate. Not event streams, which must not be buffered; not stored bytes, whose
/// ranges and tags refer to the bytes themselves; not problems, which are short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compressible;

impl Predicate for Compressible {
    fn should_compress<B: http_body::Body>(&self, response: &axum::http::Response<B>) -> bool {
        let headers = response.headers();
        let size = response.body().size_hint().exact();
        is_text(headers)
            && size.is_none_or(|size| size >= MIN_COMPRESSED_BYTES)
            && response.status() != StatusCode::PARTIAL_CONTENT
            // An `ETag` names the uncompressed bytes.
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

/// Answers `OPTIONS` with 204; the router adds `Allow`. Preflight requests of browsers are answered by the CORS layer.
pub(crate) async fn answer_options(request: Request, next: Next) -> Response {
    let is_preflight = request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if request.method() != Method::OPTIONS || is_preflight {
        return next.run(request).await;
    }
    match request.extensions().get::<MatchedPath>() {
        Some(_) => StatusCode::NO_CONTENT.into_response(),
        None => Problem::no_such_route().into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn is_compressed(status: u16, headers: &[(&str, &str)], bytes: usize) -> bool {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Compressible.should_compress(&response.body(Body::from(vec![b'x'; bytes])).unwrap())
    }

    #[test]
    fn only_generated_text_is_compressed() {
        let json = ("content-type", "application/json; charset=utf-8");
        assert!(is_compressed(200, &[json], 2000) && is_compressed(200, &[("content-type", "text/javascript")], 2000));
        assert!(!is_compressed(200, &[json], 1000), "short");
        for other in ["text/event-stream", "application/problem+json", "application/octet-stream", "image/png"] {
            assert!(!is_compressed(200, &[("content-type", other)], 2000), "{other}");
        }
        for header in [("etag", "\"x\""), ("content-disposition", "attachment"), ("content-encoding", "br")] {
            assert!(!is_compressed(200, &[json, header], 2000), "{header:?}");
        }
        assert!(!is_compressed(206, &[json], 2000));
    }
}
