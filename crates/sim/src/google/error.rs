//! Error responses in the format of Google's APIs.

use axum::http::header::WWW_AUTHENTICATE;
use serde_json::json;

use crate::response::{ResponseBody, SimResponse};

pub fn error(status: u16, reason: &str, message: &str) -> SimResponse {
    let (domain, name) = match (status, reason) {
        (400, "failedPrecondition") => ("global", "FAILED_PRECONDITION"),
        (400, _) => ("global", "INVALID_ARGUMENT"),
        (401, _) => ("global", "UNAUTHENTICATED"),
        (
            403,
            "rateLimitExceeded"
            | "userRateLimitExceeded"
            | "dailyLimitExceeded"
            | "accessNotConfigured"
            | "quotaExceeded",
        ) => ("usageLimits", "PERMISSION_DENIED"),
        (403, _) => ("global", "PERMISSION_DENIED"),
        (404, _) => ("global", "NOT_FOUND"),
        (429, _) => ("usageLimits", "RESOURCE_EXHAUSTED"),
        (503, _) => ("global", "UNAVAILABLE"),
        _ => ("global", "INTERNAL"),
    };
    let mut item = json!({"message": message, "domain": domain, "reason": reason});
    if status == 401 {
        item["location"] = json!("Authorization");
        item["locationType"] = json!("header");
    }
    let mut error = json!({"code": status, "message": message, "status": name, "errors": [item]});
    if reason == "insufficientPermissions" {
        let kind = "type.googleapis.com/google.rpc.ErrorInfo";
        let domain = "googleapis.com";
        error["details"] = json!([{"@type": kind, "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "domain": domain}]);
    }
    let answer = SimResponse::new(status, ResponseBody::Json(json!({"error": error})));
    if status == 401 { answer.with(WWW_AUTHENTICATE, "Bearer realm=\"https://accounts.google.com/\"") } else { answer }
}
