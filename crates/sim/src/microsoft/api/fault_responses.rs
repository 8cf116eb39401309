//! Responses that faults give instead of the regular ones.

use std::time::Duration;

use super::super::error::GraphError;
use super::super::faults::MicrosoftFaultKind;
use super::super::identity::IdentityError;
use super::super::world::MicrosoftWorld;
use crate::http::ConnectionCut;
use crate::response::SimResponse;

/// Returns the first fault's response in the format of Graph.
pub async fn replacement(world: &MicrosoftWorld, faults: &[MicrosoftFaultKind]) -> Option<SimResponse> {
    for fault in faults {
        if let Some(answer) = broken(fault).await {
            return Some(answer);
        }
        if let Some(refusal) = refusal(fault) {
            return Some(refusal.answer(world));
        }
    }
    None
}

/// Returns the first fault's response in the format of the identity platform.
pub async fn identity_replacement(world: &MicrosoftWorld, faults: &[MicrosoftFaultKind]) -> Option<SimResponse> {
    for fault in faults {
        if let Some(answer) = broken(fault).await {
            return Some(answer);
        }
        let found = match fault {
            MicrosoftFaultKind::Oauth { error, status, code } => {
                Some((*status, error.as_str(), code.unwrap_or(50_000), None))
            }
            MicrosoftFaultKind::Throttled { retry_after } => {
                Some((429, "temporarily_unavailable", 90_055, *retry_after))
            }
            MicrosoftFaultKind::Unavailable { retry_after } => {
                Some((503, "temporarily_unavailable", 90_033, *retry_after))
            }
            _ => refusal(fault).map(|refusal| (refusal.status, "server_error", 90_024, None)),
        };
        if let Some((status, error, code, retry_after)) = found {
            let wrong = IdentityError { status, ..IdentityError::new(error, code, "Scripted.") };
            return Some(wrong.answer(world).retry_after(retry_after));
        }
    }
    None
}

/// Returns the response of faults that are not error responses.
async fn broken(fault: &MicrosoftFaultKind) -> Option<SimResponse> {
    match fault {
        MicrosoftFaultKind::Hang { ms } => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            None
        }
        MicrosoftFaultKind::Cut => Some(SimResponse::cut(ConnectionCut::Closed)),
        MicrosoftFaultKind::Reset => Some(SimResponse::cut(ConnectionCut::Reset)),
        MicrosoftFaultKind::Garbage => Some(SimResponse::garbage()),
        _ => None,
    }
}

fn refusal(fault: &MicrosoftFaultKind) -> Option<GraphError> {
    let (status, code, message) = match fault {
        MicrosoftFaultKind::Throttled { .. } => {
            (429, "ApplicationThrottled", "Application is over its MailboxConcurrency limit.")
        }
        MicrosoftFaultKind::Internal => {
            (500, "ErrorInternalServerError", "An internal server error occurred. The operation failed.")
        }
        MicrosoftFaultKind::BadGateway => (502, "UnknownError", "Bad gateway."),
        MicrosoftFaultKind::Unavailable { .. } | MicrosoftFaultKind::Hang { .. } => {
            (503, "ErrorServerBusy", "The server cannot service this request right now. Try again later.")
        }
        MicrosoftFaultKind::GatewayTimeout => (504, "UnknownError", "The upstream did not answer in time."),
        MicrosoftFaultKind::BandwidthExceeded => (509, "ErrorExceededMessageLimit", "Bandwidth limit exceeded."),
        MicrosoftFaultKind::Locked => (423, "ErrorMailboxMoveInProgress", "Mailbox move in progress. Try again later."),
        MicrosoftFaultKind::Unauthorized => {
            (401, "InvalidAuthenticationToken", "Access token has expired or is not yet valid.")
        }
        MicrosoftFaultKind::AccessDenied => {
            (403, "ErrorAccessDenied", "Access is denied. Check credentials and try again.")
        }
        MicrosoftFaultKind::NotFound => return Some(GraphError::item_not_found()),
        MicrosoftFaultKind::MailboxNotEnabled => return Some(no_mailbox()),
        MicrosoftFaultKind::DeltaExpired => {
            (410, "syncStateNotFound", "The sync state generation is not found; starting over is required.")
        }
        MicrosoftFaultKind::Resync { code } => {
            (400, code.as_str(), "Resync required. Replace any local items with the server's version.")
        }
        MicrosoftFaultKind::DeltaQuota => {
            (507, "ErrorQuotaExceeded", "The mailbox has no room left for the state of this sync.")
        }
        _ => return None,
    };
    let retry_after = match fault {
        MicrosoftFaultKind::Throttled { retry_after } | MicrosoftFaultKind::Unavailable { retry_after } => *retry_after,
        _ => None,
    };
    Some(GraphError { retry_after, ..GraphError::new(status, code, message) })
}

pub fn no_mailbox() -> GraphError {
    let message = "The mailbox is either inactive, soft-deleted, or is hosted on-premise.";
    GraphError::new(404, "MailboxNotEnabledForRESTAPI", message)
}
