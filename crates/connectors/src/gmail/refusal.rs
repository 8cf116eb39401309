//! What Google's refusals mean to the engine. The reason decides, then the status; no text of the answer is kept.

use std::time::Duration;

use domain::ConnectorError;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::http::{protocol, retry_after};

/// A day's quota is used up: nothing is to be had soon, which shows at the mailbox.
const DAILY: Duration = Duration::from_secs(3600);

/// What was called, where that decides what a refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Message,
    History,
    List,
    Watch,
    /// Of a directory.
    People,
    Group,
    Other,
}

impl What {
    fn is_of_directory(self) -> bool {
        matches!(self, Self::People | Self::Group)
    }
}

#[derive(Debug, Default, Deserialize)]
struct Body {
    #[serde(default)]
    error: Error,
}

#[derive(Debug, Default, Deserialize)]
struct Error {
    #[serde(default)]
    status: String,
    #[serde(default)]
    errors: Vec<Reason>,
    #[serde(default)]
    details: Vec<Reason>,
}

#[derive(Debug, Default, Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
}

/// Nothing but a token that is not good any more.
pub fn is_about_the_token(status: StatusCode) -> bool {
    status == StatusCode::UNAUTHORIZED
}

pub fn refusal(what: What, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ConnectorError {
    let error = serde_json::from_slice::<Body>(body).unwrap_or_default().error;
    let reasons: Vec<&str> = error.errors.iter().chain(&error.details).map(|reason| &*reason.reason).collect();
    let has = |wanted: &[&str]| reasons.iter().any(|reason| wanted.contains(reason));
    let throttled = || ConnectorError::Throttled { retry_after: retry_after(headers) };
    match status.as_u16() {
        _ if has(&["rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"]) => throttled(),
        _ if has(&["dailyLimitExceeded"]) => {
            ConnectorError::Throttled { retry_after: Some(retry_after(headers).unwrap_or(DAILY)) }
        }
        429 => throttled(),
        401 => ConnectorError::Unauthorized("Google refuses a new token".to_owned()),
        403 if error.status == "RESOURCE_EXHAUSTED" => throttled(),
        403 if has(&["accessNotConfigured", "SERVICE_DISABLED"]) => {
            let api = if what.is_of_directory() { "Admin SDK API" } else { "Gmail API" };
            ConnectorError::Operator(format!("the {api} is not switched on in its project"))
        }
        403 if what.is_of_directory() => ConnectorError::Unauthorized(
            "the directory may not be read: its administrator has not delegated that, or the address that is acted for is no administrator's".to_owned(),
        ),
        404 if what == What::Group => ConnectorError::Gone,
        // A page that was too long ago.
        400 if what.is_of_directory() => ConnectorError::CursorExpired,
        403 if has(&["insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"]) => {
            ConnectorError::Unauthorized("reading mail was not consented to".to_owned())
        }
        403 if has(&["domainPolicy"]) => {
            ConnectorError::Unauthorized("the domain's administrator does not allow this app".to_owned())
        }
        403 if what == What::Watch => {
            ConnectorError::Operator("Gmail may not publish to the topic, or the topic is another project's".to_owned())
        }
        400 if has(&["failedPrecondition"]) => protocol("Gmail is not switched on for this account"),
        404 if what == What::Message => ConnectorError::Gone,
        404 if what == What::History => ConnectorError::CursorExpired,
        // A page, or a label, that is no more.
        400 | 404 if what == What::List => ConnectorError::CursorExpired,
        // Whoever says when to come back is obeyed, whatever is wrong there.
        500.. if retry_after(headers).is_some() => throttled(),
        408 | 425 | 500.. => ConnectorError::Unavailable(format!("status {}", status.as_u16())),
        other => ConnectorError::Protocol(format!("unexpected status {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(what: What, status: u16, reason: &str) -> ConnectorError {
        let body = serde_json::json!({"error": {"code": status, "message": "x", "errors": [{"reason": reason}]}});
        refusal(what, StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.to_string().as_bytes())
    }

    #[test]
    fn the_reason_decides() {
        use ConnectorError::{CursorExpired, Gone, Operator, Protocol, Throttled, Unauthorized, Unavailable};
        let other = |status, reason| refused(What::Other, status, reason);
        assert_eq!(other(403, "userRateLimitExceeded"), Throttled { retry_after: None });
        assert_eq!(other(429, ""), Throttled { retry_after: None });
        assert_eq!(other(403, "dailyLimitExceeded"), Throttled { retry_after: Some(DAILY) });
        assert!(matches!(other(403, "domainPolicy"), Unauthorized(_)));
        assert!(matches!(other(403, "insufficientPermissions"), Unauthorized(_)));
        assert!(matches!(other(403, "accessNotConfigured"), Operator(_)));
        assert!(matches!(other(403, "forbidden"), Protocol(_)));
        assert!(matches!(refused(What::Watch, 403, "forbidden"), Operator(_)));
        assert!(matches!(other(400, "failedPrecondition"), Protocol(_)));
        assert!(matches!(other(503, "backendError"), Unavailable(_)));
        assert_eq!(refused(What::Message, 404, "notFound"), Gone);
        assert_eq!(refused(What::History, 404, "notFound"), CursorExpired);
        assert_eq!(refused(What::People, 403, "quotaExceeded"), Throttled { retry_after: None });
        assert!(matches!(refused(What::People, 403, "forbidden"), Unauthorized(_)));
        assert_eq!(refused(What::People, 400, "invalid"), CursorExpired);
        assert_eq!(refused(What::Group, 404, "notFound"), Gone);
    }

    #[test]
    fn what_is_no_json_is_judged_by_its_status() {
        let refused = |status| refusal(What::Other, status, &HeaderMap::new(), b"<html>");
        assert!(matches!(refused(StatusCode::BAD_GATEWAY), ConnectorError::Unavailable(_)));
        assert!(matches!(refused(StatusCode::FORBIDDEN), ConnectorError::Protocol(_)));
    }
}
