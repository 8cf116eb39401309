//! Responses that faults give instead of the regular ones.

use std::time::Duration;

use super::super::error::error;
use super::super::faults::GoogleFaultKind;
use crate::http::ConnectionCut;
use crate::response::{ResponseBody, SimResponse};

/// Returns the first fault's response in the format of the APIs.
pub async fn replacement(faults: &[GoogleFaultKind]) -> Option<SimResponse> {
    for fault in faults {
        if let Some(answer) = fault_response(fault).await {
            return Some(answer);
        }
    }
    None
}

/// Returns the first fault's response in the format of the OAuth endpoints.
pub async fn oauth_replacement(faults: &[GoogleFaultKind]) -> Option<SimResponse> {
    for fault in faults {
        let found = match fault {
            GoogleFaultKind::Oauth { error, status } => Some((*status, error.as_str())),
            GoogleFaultKind::Throttled { .. } => Some((429, "rate_limit_exceeded")),
            GoogleFaultKind::Internal => Some((500, "internal_failure")),
            GoogleFaultKind::Unavailable { .. } => Some((503, "backend_error")),
            _ => None,
        };
        if let Some((status, error)) = found {
            let body = serde_json::json!({"error": error, "error_description": "Scripted"});
            return Some(SimResponse::new(status, ResponseBody::Json(body)).retry_after(retry_after(fault)));
        }
        if let Some(answer) = fault_response(fault).await {
            return Some(answer);
        }
    }
    None
}

fn retry_after(fault: &GoogleFaultKind) -> Option<u64> {
    match fault {
        GoogleFaultKind::Throttled { retry_after }
        | GoogleFaultKind::UserRateLimited { retry_after }
        | GoogleFaultKind::RateLimited { retry_after }
        | GoogleFaultKind::Unavailable { retry_after } => *retry_after,
        _ => None,
    }
}

async fn fault_response(fault: &GoogleFaultKind) -> Option<SimResponse> {
    let (status, reason, message) = match fault {
        GoogleFaultKind::Throttled { .. } => (429, "rateLimitExceeded", "Too many concurrent requests for user."),
        GoogleFaultKind::UserRateLimited { .. } => (403, "userRateLimitExceeded", "User Rate Limit Exceeded"),
        GoogleFaultKind::RateLimited { .. } => (403, "rateLimitExceeded", "Rate Limit Exceeded"),
        GoogleFaultKind::QuotaExceeded => (403, "quotaExceeded", "Request rate higher than configured."),
        GoogleFaultKind::DailyLimit => (403, "dailyLimitExceeded", "Daily Limit Exceeded"),
        GoogleFaultKind::DomainPolicy => (403, "domainPolicy", "The domain administrators have disabled Gmail apps."),
        GoogleFaultKind::InsufficientPermissions => {
            (403, "insufficientPermissions", "Request had insufficient authentication scopes.")
        }
        GoogleFaultKind::AccessNotConfigured => {
            (403, "accessNotConfigured", "Gmail API has not been used in project before or it is disabled.")
        }
        GoogleFaultKind::FailedPrecondition => (400, "failedPrecondition", "Precondition check failed."),
        GoogleFaultKind::Unauthorized => (401, "authError", "Invalid Credentials"),
        GoogleFaultKind::NotFound | GoogleFaultKind::HistoryExpired => {
            (404, "notFound", "Requested entity was not found.")
        }
        GoogleFaultKind::Internal => (500, "backendError", "Internal error encountered."),
        GoogleFaultKind::Unavailable { .. } => (503, "backendError", "The service is currently unavailable."),
        GoogleFaultKind::Hang { ms } => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            (503, "backendError", "The service is currently unavailable.")
        }
        GoogleFaultKind::Cut => return Some(SimResponse::cut(ConnectionCut::Closed)),
        GoogleFaultKind::Reset => return Some(SimResponse::cut(ConnectionCut::Reset)),
        GoogleFaultKind::Garbage => return Some(SimResponse::garbage()),
        _ => return None,
    };
    Some(error(status, reason, message).retry_after(retry_after(fault)))
}
