//! The answers that faults give in place of ours.

use std::time::Duration;

use super::super::error::error;
use super::super::faults::Kind;
use crate::answer::{Answer, Body};
use crate::http::Cut;

/// As the APIs say it.
pub async fn instead(faults: &[Kind]) -> Option<Answer> {
    for fault in faults {
        if let Some(answer) = one(fault).await {
            return Some(answer);
        }
    }
    None
}

/// As the sign-in says it.
pub async fn instead_of_oauth(faults: &[Kind]) -> Option<Answer> {
    for fault in faults {
        let told = match fault {
            Kind::Oauth { error, status } => Some((*status, error.as_str())),
            Kind::Throttled { .. } => Some((429, "rate_limit_exceeded")),
            Kind::Internal => Some((500, "internal_failure")),
            Kind::Unavailable { .. } => Some((503, "backend_error")),
            _ => None,
        };
        if let Some((status, error)) = told {
            let body = serde_json::json!({"error": error, "error_description": "Scripted"});
            return Some(Answer::new(status, Body::Json(body)).retry_after(retry_after(fault)));
        }
        if let Some(answer) = one(fault).await {
            return Some(answer);
        }
    }
    None
}

fn retry_after(fault: &Kind) -> Option<u64> {
    match fault {
        Kind::Throttled { retry_after }
        | Kind::UserRateLimited { retry_after }
        | Kind::RateLimited { retry_after }
        | Kind::Unavailable { retry_after } => *retry_after,
        _ => None,
    }
}

async fn one(fault: &Kind) -> Option<Answer> {
    let (status, reason, message) = match fault {
        Kind::Throttled { .. } => (429, "rateLimitExceeded", "Too many concurrent requests for user."),
        Kind::UserRateLimited { .. } => (403, "userRateLimitExceeded", "User Rate Limit Exceeded"),
        Kind::RateLimited { .. } => (403, "rateLimitExceeded", "Rate Limit Exceeded"),
        Kind::QuotaExceeded => (403, "quotaExceeded", "Request rate higher than configured."),
        Kind::DailyLimit => (403, "dailyLimitExceeded", "Daily Limit Exceeded"),
        Kind::DomainPolicy => (403, "domainPolicy", "The domain administrators have disabled Gmail apps."),
        Kind::InsufficientPermissions => {
            (403, "insufficientPermissions", "Request had insufficient authentication scopes.")
        }
        Kind::AccessNotConfigured => {
            (403, "accessNotConfigured", "Gmail API has not been used in project before or it is disabled.")
        }
        Kind::FailedPrecondition => (400, "failedPrecondition", "Precondition check failed."),
        Kind::Unauthorized => (401, "authError", "Invalid Credentials"),
        Kind::NotFound | Kind::HistoryExpired => (404, "notFound", "Requested entity was not found."),
        Kind::Internal => (500, "backendError", "Internal error encountered."),
        Kind::Unavailable { .. } => (503, "backendError", "The service is currently unavailable."),
        Kind::Hang { ms } => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            (503, "backendError", "The service is currently unavailable.")
        }
        Kind::Cut => return Some(Answer::cut(Cut::Closed)),
        Kind::Reset => return Some(Answer::cut(Cut::Reset)),
        Kind::Garbage => return Some(Answer::garbage()),
        _ => return None,
    };
    Some(error(status, reason, message).retry_after(retry_after(fault)))
}
