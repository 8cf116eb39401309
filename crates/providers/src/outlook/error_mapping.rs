//! Maps Graph's error responses to [`ConnectorError`]: by the error code, then by the status. No text of a response is kept.

use domain::ConnectorError;
use outbound::http::StatusCode;
use outbound::http::header::{HeaderMap, WWW_AUTHENTICATE};
use serde::Deserialize;

use crate::http::{protocol, retry_after};

/// The called resource, where the meaning of an error depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphOperation {
    Message,
    /// The user of the token.
    User,
    /// A folder, by its id.
    Folder,
    /// A delta of a folder.
    Delta,
    Subscription,
    /// Users of a directory, by delta.
    Users,
    Group,
    Other,
}

impl GraphOperation {
    fn is_directory_call(self) -> bool {
        matches!(self, Self::Users | Self::Group)
    }
}

#[derive(Debug, Default, Deserialize)]
struct GraphErrorBody {
    #[serde(default)]
    error: GraphError,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GraphError {
    code: String,
    inner_error: Option<Box<GraphError>>,
}

impl GraphError {
    /// Returns the error codes from the outermost to the innermost, in lower case.
    fn codes(&self) -> Vec<String> {
        let mut codes = Vec::new();
        let mut error = Some(self);
        while let Some(now) = error {
            codes.push(now.code.to_ascii_lowercase());
            error = now.inner_error.as_deref();
        }
        codes
    }
}

/// Graph has lost the sync state of a delta.
const SYNC_STATE_LOST_CODES: [&str; 5] =
    ["syncstatenotfound", "resyncrequired", "syncstateinvalid", "invalidsyncstatedata", "errorinvalidsyncstatedata"];

/// Graph has no such mailbox: it has no licence, is on premises, or was deleted.
const NO_MAILBOX_CODES: [&str; 5] = [
    "mailboxnotenabledforrestapi",
    "errormailboxnotenabledforrestapi",
    "mailboxnotsupportedforrestapi",
    "resourcenotfound",
    "request_resourcenotfound",
];

/// A page token of a directory has expired.
const EXPIRED_PAGE_CODES: [&str; 2] = ["directory_expiredpagetoken", "directory_resyncrequired"];

/// The mailbox is full, so that Graph cannot store the sync state of a delta.
const MAILBOX_FULL_CODES: [&str; 2] = ["errorquotaexceeded", "quotaexceeded"];

const THROTTLED_CODES: [&str; 4] =
    ["toomanyrequests", "applicationthrottled", "errorexceededmessagelimit", "mailboxconcurrency"];

/// Returns whether the response rejects the access token, so that a renewed one may help. With a claims challenge it
/// would not.
pub fn is_token_rejected(status: StatusCode, headers: &HeaderMap) -> bool {
    let has_claims_challenge = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .any(|value| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("claims=")));
    status == StatusCode::UNAUTHORIZED && !has_claims_challenge
}

/// Returns the error that an error response means to the engine.
pub fn connector_error(
    operation: GraphOperation,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> ConnectorError {
    let codes = serde_json::from_slice::<GraphErrorBody>(body).unwrap_or_default().error.codes();
    let throttled = ConnectorError::Throttled { retry_after: retry_after(headers) };
    match status.as_u16() {
        _ if operation == GraphOperation::Delta
            && (status == StatusCode::GONE || has_any(&codes, &SYNC_STATE_LOST_CODES)) =>
        {
            ConnectorError::CursorExpired
        }
        _ if operation.is_directory_call()
            && (status == StatusCode::GONE
                || has_any(&codes, &SYNC_STATE_LOST_CODES)
                || has_any(&codes, &EXPIRED_PAGE_CODES)) =>
        {
            ConnectorError::CursorExpired
        }
        _ if has_any(&codes, &THROTTLED_CODES) => throttled,
        429 => throttled,
        401 if !is_token_rejected(status, headers) => unauthorized("Microsoft requires the owner to sign in again"),
        401 => unauthorized("Microsoft rejects a renewed token"),
        403 if operation == GraphOperation::Group => unauthorized(
            "groups cannot be read; the directory's administrator must allow this app GroupMember.Read.All",
        ),
        403 if operation == GraphOperation::Users => {
            unauthorized("the directory cannot be read; its administrator must allow this app User.Read.All")
        }
        404 if operation == GraphOperation::Group => ConnectorError::Gone,
        403 | 404 if has_any(&codes, &NO_MAILBOX_CODES) => protocol("the account has no mailbox that Graph can open"),
        // Not an outage: the mailbox is full, so that it has no deltas.
        403 | 507
            if operation == GraphOperation::Delta
                && (status == StatusCode::INSUFFICIENT_STORAGE || has_any(&codes, &MAILBOX_FULL_CODES)) =>
        {
            protocol("Graph has no delta of this folder")
        }
        403 if operation == GraphOperation::User => unauthorized("the mailbox's owner cannot be read (User.Read)"),
        403 => unauthorized("the mailbox cannot be read: there is no consent, or a policy forbids it"),
        404 if !matches!(operation, GraphOperation::Other | GraphOperation::User) => ConnectorError::Gone,
        410 if matches!(operation, GraphOperation::Message | GraphOperation::Folder) => ConnectorError::Gone,
        // A Retry-After is obeyed whatever the error is.
        408 | 423 | 425 | 500.. if retry_after(headers).is_some() => throttled,
        408 | 410 | 423 | 425 | 500.. => ConnectorError::Unavailable(format!("status {}", status.as_u16())),
        other => ConnectorError::Protocol(format!("unexpected status {other}")),
    }
}

fn has_any(codes: &[String], known: &[&str]) -> bool {
    codes.iter().any(|code| known.contains(&&**code))
}

fn unauthorized(reason: &str) -> ConnectorError {
    ConnectorError::Unauthorized(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_for(operation: GraphOperation, status: u16, code: &str) -> ConnectorError {
        let body = serde_json::json!({"error": {"code": "x", "message": "y", "innerError": {"code": code}}});
        connector_error(
            operation,
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            body.to_string().as_bytes(),
        )
    }

    #[test]
    fn innermost_code_takes_precedence_over_status() {
        use ConnectorError::{CursorExpired, Gone, Protocol, Throttled, Unauthorized, Unavailable};

        assert_eq!(error_for(GraphOperation::Delta, 410, ""), CursorExpired);
        assert_eq!(error_for(GraphOperation::Users, 410, "syncStateNotFound"), CursorExpired);
        assert_eq!(error_for(GraphOperation::Users, 400, "Directory_ExpiredPageToken"), CursorExpired);
        assert!(matches!(error_for(GraphOperation::Users, 403, "Authorization_RequestDenied"), Unauthorized(_)));
        assert_eq!(error_for(GraphOperation::Group, 404, "Request_ResourceNotFound"), Gone);
        assert_eq!(error_for(GraphOperation::Delta, 400, "SyncStateNotFound"), CursorExpired);
        assert_eq!(error_for(GraphOperation::Other, 429, ""), Throttled { retry_after: None });
        assert_eq!(error_for(GraphOperation::Other, 503, "ApplicationThrottled"), Throttled { retry_after: None });
        assert!(matches!(error_for(GraphOperation::Other, 401, "InvalidAuthenticationToken"), Unauthorized(_)));
        assert!(matches!(error_for(GraphOperation::Other, 403, "ErrorAccessDenied"), Unauthorized(_)));
        assert!(matches!(error_for(GraphOperation::Other, 404, "MailboxNotEnabledForRESTAPI"), Protocol(_)));
        assert!(matches!(error_for(GraphOperation::Delta, 403, "ErrorQuotaExceeded"), Protocol(_)));
        assert!(matches!(error_for(GraphOperation::Delta, 507, ""), Protocol(_)));
        assert!(matches!(error_for(GraphOperation::Delta, 403, "ErrorAccessDenied"), Unauthorized(_)));
        assert_eq!(error_for(GraphOperation::Message, 410, ""), Gone);
        assert!(matches!(error_for(GraphOperation::Other, 410, ""), Unavailable(_)));
        assert!(matches!(error_for(GraphOperation::Other, 504, ""), Unavailable(_)));
        assert!(matches!(error_for(GraphOperation::Other, 423, ""), Unavailable(_)));
        assert!(matches!(error_for(GraphOperation::Other, 400, "InefficientFilter"), Protocol(_)));
        assert_eq!(error_for(GraphOperation::Message, 404, "ErrorItemNotFound"), Gone);
        assert_eq!(error_for(GraphOperation::Delta, 404, "ErrorItemNotFound"), Gone);
    }

    #[test]
    fn claims_challenge_does_not_renew_the_token() {
        for (challenge, expected) in [("Bearer realm=\"\"", true), ("Bearer error=\"x\", claims=\"eyJ9\"", false)] {
            let headers = HeaderMap::from_iter([(WWW_AUTHENTICATE, challenge.parse().unwrap())]);
            assert_eq!(is_token_rejected(StatusCode::UNAUTHORIZED, &headers), expected, "{challenge}");
        }
        assert!(!is_token_rejected(StatusCode::FORBIDDEN, &HeaderMap::new()));
    }
}
