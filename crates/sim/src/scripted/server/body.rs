//! Answers, whole or spoilt on the way.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::super::faults::Kind;
use crate::http::Cut;
use crate::spoilt::{self, Spoilt};

/// The answer that a fault gives in place of ours.
pub async fn instead(fault: &Kind) -> Option<Response> {
    match fault {
        Kind::Throttled { retry_after } => {
            let mut response = StatusCode::TOO_MANY_REQUESTS.into_response();
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(*seconds));
            }
            Some(response)
        }
        Kind::Unavailable => Some(StatusCode::SERVICE_UNAVAILABLE.into_response()),
        Kind::Unauthorized => Some(StatusCode::UNAUTHORIZED.into_response()),
        Kind::Hang { ms } => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            Some(StatusCode::SERVICE_UNAVAILABLE.into_response())
        }
        Kind::Cut => {
            let mut response = StatusCode::OK.into_response();
            response.extensions_mut().insert(Cut::Closed);
            Some(response)
        }
        Kind::Garbage => Some((StatusCode::OK, "<html><body>It works!</body></html>\n").into_response()),
        _ => None,
    }
}

pub fn json(mut bytes: Vec<u8>, faults: &[Kind]) -> Response {
    if faults.contains(&Kind::TruncatedJson) {
        bytes.truncate(bytes.len() / 2);
    }
    let mut response = respond(vec![Bytes::from(bytes)], faults);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub fn respond(pieces: Vec<Bytes>, faults: &[Kind]) -> Response {
    let slow = faults.iter().find_map(|fault| match fault {
        Kind::Slow { bytes, ms } => Some((*bytes, Duration::from_millis(*ms))),
        _ => None,
    });
    spoilt::respond(pieces, &Spoilt { is_cut: faults.contains(&Kind::CutBody), slow })
}
