//! Google's API descriptions, against which every request and response is checked.

use std::sync::LazyLock;

use serde_json::Value;

use crate::spec::{Document, spec_document};

static GMAIL: LazyLock<Document> = spec_document!("gmail.v1.json");
static DIRECTORY: LazyLock<Document> = spec_document!("admin.directory_v1.json");
static OAUTH: LazyLock<Document> = spec_document!("oauth2.v2.json");
static PUBSUB: LazyLock<Document> = spec_document!("pubsub.v1.json");
static UNDOCUMENTED: LazyLock<Document> = spec_document!("undocumented.json");

pub fn gmail() -> &'static Document {
    &GMAIL
}

pub fn directory() -> &'static Document {
    &DIRECTORY
}

pub fn oauth() -> &'static Document {
    &OAUTH
}

/// Checks an error body: its schema, and that it repeats the status.
pub fn check_error(status: u16, body: &Value) -> Result<(), String> {
    UNDOCUMENTED.check("ErrorResponse", body)?;
    let error = &body["error"];
    if error["code"] != status {
        return Err(format!("error.code is {}, the status {status}", error["code"]));
    }
    for field in ["message", "status"] {
        if !error[field].is_string() {
            return Err(format!("error.{field} is missing"));
        }
    }
    if error["errors"][0]["reason"].is_string() { Ok(()) } else { Err("error.errors has no reason".to_owned()) }
}

/// Checks the body of a push.
pub fn check_push(body: &Value) -> Result<(), String> {
    UNDOCUMENTED.check("Push", body)?;
    PUBSUB.check("PubsubMessage", &body["message"])?;
    for field in ["data", "messageId", "publishTime"] {
        if !body["message"][field].is_string() {
            return Err(format!("message.{field} is missing"));
        }
    }
    if body["subscription"].is_string() { Ok(()) } else { Err("subscription is missing".to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_parse_without_dangling_references() {
        for document in [&GMAIL, &DIRECTORY, &OAUTH, &PUBSUB, &UNDOCUMENTED] {
            assert_eq!(document.dangling(), Vec::<String>::new());
        }
        assert_eq!((GMAIL.methods().len(), DIRECTORY.methods().len()), (9, 6));
    }

    #[test]
    fn error_body_has_status_and_reason() {
        let item = json!({"domain": "global", "reason": "notFound", "message": "no"});
        let good = json!({"error": {"code": 404, "message": "no", "status": "NOT_FOUND", "errors": [item]}});

        assert_eq!(check_error(404, &good), Ok(()));
        assert!(check_error(403, &good).is_err());
        let mut doctored = good.clone();
        doctored["error"]["hint"] = json!("?");
        assert!(check_error(404, &doctored).is_err());
        doctored = good;
        doctored["error"]["errors"] = json!([]);
        assert!(check_error(404, &doctored).is_err());
    }

    #[test]
    fn push_with_unknown_field_is_refused() {
        let message = json!({"data": "e30=", "messageId": "1", "publishTime": "2026-02-01T12:00:00Z"});
        let mut push = json!({"message": message, "subscription": "projects/p/subscriptions/s"});

        assert_eq!(check_push(&push), Ok(()));
        push["message"]["publish_time"] = json!("2026-02-01T12:00:00Z");
        assert!(check_push(&push).is_err());
    }
}
