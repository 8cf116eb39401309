//! What the refusals of a server mean to the engine. None of their text goes into an error.

use domain::ConnectorError;
use outbound::http::StatusCode;
use outbound::http::header::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{ErrorResponse, error_for_status, protocol, retry_after, unavailable};

/// Why a server refuses a whole request (RFC 8620, section 3.6.1).
#[derive(Debug, Deserialize)]
struct RequestProblem {
    #[serde(rename = "type")]
    kind: String,
}

/// Why a server refuses one method call of a request, in its own words (RFC 8620, section 3.6.2).
#[derive(Debug, Deserialize)]
pub struct MethodRefusal {
    #[serde(rename = "type")]
    kind: String,
    /// Names of the arguments that are not valid, where a server says which.
    #[serde(default)]
    arguments: Value,
}

/// Why a server refuses one method call of a request, or what is wrong with its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MethodError {
    CannotCalculateChanges,
    AnchorNotFound,
    RequestTooLarge,
    Other(ConnectorError),
}

impl MethodError {
    /// Returns what a refusal means. A state that a server cannot read, such as one of the server that was there before it,
    /// is to Cyrus an argument that is not valid.
    pub fn of_refusal(refusal: &MethodRefusal) -> Self {
        let is_unknown_state = refusal.kind == "invalidArguments" && refusal.arguments == json!(["sinceState"]);
        if is_unknown_state { Self::CannotCalculateChanges } else { Self::of_type(&refusal.kind) }
    }

    fn of_type(kind: &str) -> Self {
        Self::Other(match kind {
            "cannotCalculateChanges" => return Self::CannotCalculateChanges,
            "anchorNotFound" => return Self::AnchorNotFound,
            "requestTooLarge" => return Self::RequestTooLarge,
            "serverUnavailable" | "serverFail" | "serverPartialFail" => unavailable("the server cannot do it now"),
            "rateLimit" | "limit" => ConnectorError::Throttled { retry_after: None },
            "accountNotFound" | "accountNotSupportedByMethod" => {
                ConnectorError::Unauthorized("the login no longer opens the mail account".to_owned())
            }
            "forbidden" => ConnectorError::Unauthorized("the login may not read the mail account".to_owned()),
            "unknownMethod" => protocol("the server does not know a method"),
            "invalidArguments" => protocol("the server refuses the arguments of a method"),
            _ => protocol("the server refuses a method"),
        })
    }
}

impl From<MethodError> for ConnectorError {
    fn from(error: MethodError) -> Self {
        match error {
            MethodError::CannotCalculateChanges => Self::CursorExpired,
            MethodError::AnchorNotFound => protocol("the server has lost its place in a list"),
            MethodError::RequestTooLarge => protocol("the server finds a request too large"),
            MethodError::Other(error) => error,
        }
    }
}

/// Returns what an error response to a request means.
pub fn error_of_request(response: &ErrorResponse) -> ConnectorError {
    match response.json::<RequestProblem>() {
        Some(problem) if problem.kind == "urn:ietf:params:jmap:error:limit" => {
            ConnectorError::Throttled { retry_after: retry_after(&response.headers) }
        }
        _ => error_of_status(response.status, &response.headers),
    }
}

/// Returns what an error status means, where no message was requested: there is no cursor in a URL.
pub fn error_of_status(status: StatusCode, headers: &HeaderMap) -> ConnectorError {
    match status {
        StatusCode::GONE => protocol("unexpected status 410"),
        status => error_for_status(status, headers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(refusal: Value) -> ConnectorError {
        MethodError::of_refusal(&serde_json::from_value(refusal).unwrap()).into()
    }

    #[test]
    fn unknown_state_expires_the_cursor() {
        let unknown = refused(json!({"type": "invalidArguments", "arguments": ["sinceState"]}));

        assert_eq!(unknown, ConnectorError::CursorExpired);
        for others in [json!(["maxChanges"]), json!({"sinceState": 1}), Value::Null] {
            let other = refused(json!({"type": "invalidArguments", "arguments": others}));
            assert!(matches!(other, ConnectorError::Protocol(_)), "{other:?}");
        }
        assert!(matches!(refused(json!({"type": "invalidArguments"})), ConnectorError::Protocol(_)));
    }

    #[test]
    fn method_errors_have_their_meaning() {
        let of = |kind: &str| ConnectorError::from(MethodError::of_type(kind));

        assert_eq!(of("cannotCalculateChanges"), ConnectorError::CursorExpired);
        assert!(matches!(of("serverUnavailable"), ConnectorError::Unavailable(_)));
        assert!(matches!(of("accountNotFound"), ConnectorError::Unauthorized(_)));
        assert!(matches!(of("unknownMethod"), ConnectorError::Protocol(_)));
        assert_eq!(of("rateLimit"), ConnectorError::Throttled { retry_after: None });
        let unknown = of("ann@acme.test");
        assert!(!format!("{unknown:?}").contains("acme"), "{unknown:?}");
    }
}
