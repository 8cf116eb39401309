//! What HTTP statuses and broken connections mean to the engine.

use domain::ConnectorError;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::headers::retry_after;

/// Returns the error that an error status means to the engine.
pub fn error_for_status(status: StatusCode, headers: &HeaderMap) -> ConnectorError {
    match status.as_u16() {
        401 => ConnectorError::Unauthorized("status 401".to_owned()),
        410 => ConnectorError::CursorExpired,
        429 => ConnectorError::Throttled { retry_after: retry_after(headers) },
        // A Retry-After is obeyed whatever the error is.
        500.. if retry_after(headers).is_some() => ConnectorError::Throttled { retry_after: retry_after(headers) },
        408 | 425 | 500.. => ConnectorError::Unavailable(format!("status {}", status.as_u16())),
        other => ConnectorError::Protocol(format!("unexpected status {other}")),
    }
}

pub(super) fn transport_error(e: &reqwest::Error) -> ConnectorError {
    match e {
        e if e.is_timeout() && e.is_connect() => unavailable("connecting timed out"),
        e if e.is_timeout() => unavailable("no response in time"),
        e if e.is_connect() => unavailable("connecting failed"),
        e if e.is_builder() => protocol("the request cannot be built"),
        _ => unavailable("the connection broke off"),
    }
}

pub(super) fn overall_timeout() -> ConnectorError {
    unavailable("the response takes too long")
}

pub fn unavailable(what: &str) -> ConnectorError {
    ConnectorError::Unavailable(what.to_owned())
}

pub fn protocol(what: &str) -> ConnectorError {
    ConnectorError::Protocol(what.to_owned())
}
