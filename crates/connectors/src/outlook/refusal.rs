//! What Graph's refusals mean to the engine. The code decides, then the status; no text of the answer is kept.

use domain::ConnectorError;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use serde::Deserialize;

use crate::http::{protocol, retry_after};

/// What was called, where that decides what a refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Message,
    /// Whose token it is.
    User,
    /// A folder, by its id.
    Folder,
    /// What has changed in a folder.
    Delta,
    Subscription,
    Other,
}

#[derive(Debug, Default, Deserialize)]
struct Body {
    #[serde(default)]
    error: Error,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Error {
    code: String,
    inner_error: Option<Box<Error>>,
}

impl Error {
    /// From the outermost to the innermost.
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

/// The place from which changes were told is forgotten.
const FORGOTTEN: [&str; 5] =
    ["syncstatenotfound", "resyncrequired", "syncstateinvalid", "invalidsyncstatedata", "errorinvalidsyncstatedata"];

/// There is no such mailbox to be had by Graph: no licence, on premises, or deleted.
const NO_MAILBOX: [&str; 5] = [
    "mailboxnotenabledforrestapi",
    "errormailboxnotenabledforrestapi",
    "mailboxnotsupportedforrestapi",
    "resourcenotfound",
    "request_resourcenotfound",
];

/// There is no room in the mailbox even for what is kept to tell its changes.
const FULL: [&str; 2] = ["errorquotaexceeded", "quotaexceeded"];

const THROTTLED: [&str; 4] =
    ["toomanyrequests", "applicationthrottled", "errorexceededmessagelimit", "mailboxconcurrency"];

/// A token that is not good any more. With claims in it, another one of the same kind would be refused as well.
pub fn is_about_the_token(status: StatusCode, headers: &HeaderMap) -> bool {
    let wants_more = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .any(|value| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("claims=")));
    status == StatusCode::UNAUTHORIZED && !wants_more
}

pub fn refusal(what: What, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ConnectorError {
    let codes = serde_json::from_slice::<Body>(body).unwrap_or_default().error.codes();
    let has = |wanted: &[&str]| codes.iter().any(|code| wanted.contains(&&**code));
    let throttled = || ConnectorError::Throttled { retry_after: retry_after(headers) };
    let unauthorized = |why: &str| ConnectorError::Unauthorized(why.to_owned());
    match status.as_u16() {
        _ if what == What::Delta && (status == StatusCode::GONE || has(&FORGOTTEN)) => ConnectorError::CursorExpired,
        _ if has(&THROTTLED) => throttled(),
        429 => throttled(),
        401 if !is_about_the_token(status, headers) => unauthorized("Microsoft wants its owner to sign in once more"),
        401 => unauthorized("Microsoft refuses a new token"),
        403 | 404 if has(&NO_MAILBOX) => protocol("Microsoft has no mailbox of this account that Graph could open"),
        // Not the server's trouble, but that of telling changes of a mailbox that is full.
        403 | 507 if what == What::Delta && (status == StatusCode::INSUFFICIENT_STORAGE || has(&FULL)) => {
            protocol("Graph does not tell what has changed in this folder")
        }
        403 if what == What::User => unauthorized("it may not be seen whose mailbox it is (User.Read)"),
        403 => unauthorized("reading this mailbox is not allowed: nobody consented to it, or a policy forbids it"),
        404 if !matches!(what, What::Other | What::User) => ConnectorError::Gone,
        410 if matches!(what, What::Message | What::Folder) => ConnectorError::Gone,
        // Whoever says when to come back is obeyed, whatever is wrong there.
        408 | 423 | 425 | 500.. if retry_after(headers).is_some() => throttled(),
        408 | 410 | 423 | 425 | 500.. => ConnectorError::Unavailable(format!("status {}", status.as_u16())),
        other => ConnectorError::Protocol(format!("unexpected status {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(what: What, status: u16, code: &str) -> ConnectorError {
        let body = serde_json::json!({"error": {"code": "x", "message": "y", "innerError": {"code": code}}});
        refusal(what, StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.to_string().as_bytes())
    }

    #[test]
    fn the_innermost_code_decides_then_the_status() {
        use ConnectorError::{CursorExpired, Gone, Protocol, Throttled, Unauthorized, Unavailable};
        let other = |status, code| refused(What::Other, status, code);
        assert_eq!(refused(What::Delta, 410, ""), CursorExpired);
        assert_eq!(refused(What::Delta, 400, "SyncStateNotFound"), CursorExpired);
        assert_eq!(other(429, ""), Throttled { retry_after: None });
        assert_eq!(other(503, "ApplicationThrottled"), Throttled { retry_after: None });
        assert!(matches!(other(401, "InvalidAuthenticationToken"), Unauthorized(_)));
        assert!(matches!(other(403, "ErrorAccessDenied"), Unauthorized(_)));
        assert!(matches!(other(404, "MailboxNotEnabledForRESTAPI"), Protocol(_)));
        assert!(matches!(refused(What::Delta, 403, "ErrorQuotaExceeded"), Protocol(_)));
        assert!(matches!(refused(What::Delta, 507, ""), Protocol(_)));
        assert!(matches!(refused(What::Delta, 403, "ErrorAccessDenied"), Unauthorized(_)));
        assert_eq!(refused(What::Message, 410, ""), Gone);
        assert!(matches!(other(410, ""), Unavailable(_)));
        assert!(matches!(other(504, ""), Unavailable(_)));
        assert!(matches!(other(423, ""), Unavailable(_)));
        assert!(matches!(other(400, "InefficientFilter"), Protocol(_)));
        assert_eq!(refused(What::Message, 404, "ErrorItemNotFound"), Gone);
        assert_eq!(refused(What::Delta, 404, "ErrorItemNotFound"), Gone);
    }

    #[test]
    fn a_token_that_lacks_claims_is_not_renewed() {
        let headers = |text: &'static str| HeaderMap::from_iter([(WWW_AUTHENTICATE, text.parse().unwrap())]);
        assert!(is_about_the_token(StatusCode::UNAUTHORIZED, &headers("Bearer realm=\"\"")));
        assert!(!is_about_the_token(StatusCode::UNAUTHORIZED, &headers("Bearer error=\"x\", claims=\"eyJ9\"")));
        assert!(!is_about_the_token(StatusCode::FORBIDDEN, &HeaderMap::new()));
    }
}
