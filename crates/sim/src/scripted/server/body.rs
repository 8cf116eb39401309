//! Answers, whole or spoilt on the way.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;

use super::super::faults::Kind;
use super::Cut;

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
            response.extensions_mut().insert(Cut);
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

/// The pieces one after the other, unless a fault cuts them short or slows them down.
pub fn respond(mut pieces: Vec<Bytes>, faults: &[Kind]) -> Response {
    if faults.contains(&Kind::CutBody) {
        let half = pieces.iter().map(Bytes::len).sum::<usize>() / 2;
        let mut halves = Vec::new();
        let mut left = half;
        for piece in pieces {
            let taken = piece.len().min(left);
            left -= taken;
            halves.push(Ok(piece.slice(..taken)));
        }
        halves.push(Err(Cut));
        return Response::new(Body::from_stream(stream::iter(halves)));
    }
    if let Some(Kind::Slow { bytes, ms }) = faults.iter().find(|fault| matches!(fault, Kind::Slow { .. })) {
        return slow(Bytes::from(pieces.concat()), (*bytes).max(1), Duration::from_millis(*ms));
    }
    match pieces.len() {
        1 => Response::new(Body::from(pieces.swap_remove(0))),
        _ => Response::new(Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)))),
    }
}

fn slow(whole: Bytes, bytes: usize, pause: Duration) -> Response {
    let drops = stream::unfold(whole, move |mut left| async move {
        if left.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let next = left.split_to(bytes.min(left.len()));
        Some((Ok::<_, Infallible>(next), left))
    });
    Response::new(Body::from_stream(drops))
}
