//! Maps Google's error responses to [`ConnectorError`]: by the reason, then by the status. No text of a response is kept.

use std::time::Duration;

use domain::ConnectorError;
use outbound::http::StatusCode;
use outbound::http::header::HeaderMap;
use serde::Deserialize;

use crate::http::{protocol, retry_after};

/// Wait after a daily quota is used up; it is long enough to show in the mailbox's status.
const DAILY_QUOTA_RETRY_DELAY: Duration = Duration::from_secs(3600);

/// The called method, where the meaning of an error depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GmailOperation {
    Message,
    History,
    /// A further page of the history, by its token.
    HistoryPage,
    List,
    Watch,
    /// Users of the Directory API.
    Users,
    Group,
    Other,
}

impl GmailOperation {
    fn is_directory_call(self) -> bool {
        matches!(self, Self::Users | Self::Group)
    }
}

#[derive(Debug, Default, Deserialize)]
struct GoogleErrorBody {
    #[serde(default)]
    error: GoogleError,
}

#[derive(Debug, Default, Deserialize)]
struct GoogleError {
    #[serde(default)]
    status: String,
    #[serde(default)]
    errors: Vec<ErrorReason>,
    #[serde(default)]
    details: Vec<ErrorReason>,
}

impl GoogleError {
    fn has_reason(&self, reasons: &[&str]) -> bool {
        self.errors.iter().chain(&self.details).any(|reason| reasons.contains(&&*reason.reason))
    }
}

#[derive(Debug, Default, Deserialize)]
struct ErrorReason {
    #[serde(default)]
    reason: String,
}

/// Returns whether the response rejects the access token, so that a renewed one may help.
pub fn is_token_rejected(status: StatusCode) -> bool {
    status == StatusCode::UNAUTHORIZED
}

/// Returns the error that an error response means to the engine.
pub fn connector_error(
    operation: GmailOperation,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> ConnectorError {
    let error = serde_json::from_slice::<GoogleErrorBody>(body).unwrap_or_default().error;
    let throttled = ConnectorError::Throttled { retry_after: retry_after(headers) };
    match status.as_u16() {
        _ if error.has_reason(&["rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"]) => throttled,
        _ if error.has_reason(&["dailyLimitExceeded"]) => {
            ConnectorError::Throttled { retry_after: Some(retry_after(headers).unwrap_or(DAILY_QUOTA_RETRY_DELAY)) }
        }
        429 => throttled,
        401 => ConnectorError::Unauthorized("Google rejects a renewed token".to_owned()),
        403 if error.status == "RESOURCE_EXHAUSTED" => throttled,
        403 if error.has_reason(&["accessNotConfigured", "SERVICE_DISABLED"]) => {
            let api = if operation.is_directory_call() { "Admin SDK API" } else { "Gmail API" };
            ConnectorError::AppRejected(format!("the {api} is not enabled in its Google Cloud project"))
        }
        403 if operation.is_directory_call() => ConnectorError::Unauthorized(
            "the directory cannot be read: its administrator has not delegated it, or the impersonated address is not an administrator's".to_owned(),
        ),
        404 if operation == GmailOperation::Group => ConnectorError::Gone,
        // The page token has expired.
        400 if operation.is_directory_call() => ConnectorError::CursorExpired,
        403 if error.has_reason(&["insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"]) => {
            ConnectorError::Unauthorized("reading mail was not consented to".to_owned())
        }
        403 if error.has_reason(&["domainPolicy"]) => {
            ConnectorError::Unauthorized("the domain's administrator does not allow this app".to_owned())
        }
        403 if operation == GmailOperation::Watch => {
            ConnectorError::AppRejected("Gmail cannot publish to the topic, or the topic belongs to another project".to_owned())
        }
        400 if error.has_reason(&["failedPrecondition"]) => protocol("Gmail is not enabled for this account"),
        404 if operation == GmailOperation::Message => ConnectorError::Gone,
        404 if operation == GmailOperation::History => ConnectorError::CursorExpired,
        // The page token has expired, or the history id or the label of the list is gone.
        400 | 404 if matches!(operation, GmailOperation::HistoryPage | GmailOperation::List) => {
            ConnectorError::CursorExpired
        }
        // A Retry-After is obeyed whatever the error is.
        500.. if retry_after(headers).is_some() => throttled,
        408 | 425 | 500.. => ConnectorError::Unavailable(format!("status {}", status.as_u16())),
        other => ConnectorError::Protocol(format!("unexpected status {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_for(operation: GmailOperation, status: u16, reason: &str) -> ConnectorError {
        let body = serde_json::json!({"error": {"code": status, "message": "x", "errors": [{"reason": reason}]}});
        connector_error(
            operation,
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            body.to_string().as_bytes(),
        )
    }

    #[test]
    fn reason_takes_precedence_over_status() {
        use ConnectorError::{AppRejected, CursorExpired, Gone, Protocol, Throttled, Unauthorized, Unavailable};

        assert_eq!(error_for(GmailOperation::Other, 403, "userRateLimitExceeded"), Throttled { retry_after: None });
        assert_eq!(error_for(GmailOperation::Other, 429, ""), Throttled { retry_after: None });
        assert_eq!(
            error_for(GmailOperation::Other, 403, "dailyLimitExceeded"),
            Throttled { retry_after: Some(DAILY_QUOTA_RETRY_DELAY) }
        );
        assert!(matches!(error_for(GmailOperation::Other, 403, "domainPolicy"), Unauthorized(_)));
        assert!(matches!(error_for(GmailOperation::Other, 403, "insufficientPermissions"), Unauthorized(_)));
        assert!(matches!(error_for(GmailOperation::Other, 403, "accessNotConfigured"), AppRejected(_)));
        assert!(matches!(error_for(GmailOperation::Other, 403, "forbidden"), Protocol(_)));
        assert!(matches!(error_for(GmailOperation::Watch, 403, "forbidden"), AppRejected(_)));
        assert!(matches!(error_for(GmailOperation::Other, 400, "failedPrecondition"), Protocol(_)));
        assert!(matches!(error_for(GmailOperation::Other, 503, "backendError"), Unavailable(_)));
        assert_eq!(error_for(GmailOperation::Message, 404, "notFound"), Gone);
        assert_eq!(error_for(GmailOperation::History, 404, "notFound"), CursorExpired);
        assert_eq!(error_for(GmailOperation::Users, 403, "quotaExceeded"), Throttled { retry_after: None });
        assert!(matches!(error_for(GmailOperation::Users, 403, "forbidden"), Unauthorized(_)));
        assert_eq!(error_for(GmailOperation::Users, 400, "invalid"), CursorExpired);
        assert_eq!(error_for(GmailOperation::Group, 404, "notFound"), Gone);
    }

    #[test]
    fn body_that_is_not_json_is_judged_by_status() {
        let errors = [StatusCode::BAD_GATEWAY, StatusCode::FORBIDDEN]
            .map(|status| connector_error(GmailOperation::Other, status, &HeaderMap::new(), b"<html>"));
        assert!(matches!(errors, [ConnectorError::Unavailable(_), ConnectorError::Protocol(_)]));
    }
}
