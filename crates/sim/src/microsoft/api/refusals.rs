//! The answers that faults give in place of ours.

use std::time::Duration;

use super::super::error::Refusal;
use super::super::faults::Kind;
use super::super::identity::Wrong;
use super::super::world::World;
use crate::answer::Answer;
use crate::http::Cut;

/// As Graph says it.
pub async fn instead(world: &World, faults: &[Kind]) -> Option<Answer> {
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

/// As the identity platform says it.
pub async fn instead_of_identity(world: &World, faults: &[Kind]) -> Option<Answer> {
    for fault in faults {
        if let Some(answer) = broken(fault).await {
            return Some(answer);
        }
        let told = match fault {
            Kind::Oauth { error, status, code } => Some((*status, error.as_str(), code.unwrap_or(50_000), None)),
            Kind::Throttled { retry_after } => Some((429, "temporarily_unavailable", 90_055, *retry_after)),
            Kind::Unavailable { retry_after } => Some((503, "temporarily_unavailable", 90_033, *retry_after)),
            _ => refusal(fault).map(|refusal| (refusal.status, "server_error", 90_024, None)),
        };
        if let Some((status, error, code, retry_after)) = told {
            let wrong = Wrong { status, ..Wrong::new(error, code, "Scripted.") };
            return Some(wrong.answer(world).retry_after(retry_after));
        }
    }
    None
}

/// What is not even an error.
async fn broken(fault: &Kind) -> Option<Answer> {
    match fault {
        Kind::Hang { ms } => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            None
        }
        Kind::Cut => Some(Answer::cut(Cut::Closed)),
        Kind::Reset => Some(Answer::cut(Cut::Reset)),
        Kind::Garbage => Some(Answer::garbage()),
        _ => None,
    }
}

fn refusal(fault: &Kind) -> Option<Refusal> {
    let (status, code, message) = match fault {
        Kind::Throttled { .. } => (429, "ApplicationThrottled", "Application is over its MailboxConcurrency limit."),
        Kind::Internal => (500, "ErrorInternalServerError", "An internal server error occurred. The operation failed."),
        Kind::BadGateway => (502, "UnknownError", "Bad gateway."),
        Kind::Unavailable { .. } | Kind::Hang { .. } => {
            (503, "ErrorServerBusy", "The server cannot service this request right now. Try again later.")
        }
        Kind::GatewayTimeout => (504, "UnknownError", "The upstream did not answer in time."),
        Kind::BandwidthExceeded => (509, "ErrorExceededMessageLimit", "Bandwidth limit exceeded."),
        Kind::Locked => (423, "ErrorMailboxMoveInProgress", "Mailbox move in progress. Try again later."),
        Kind::Unauthorized => (401, "InvalidAuthenticationToken", "Access token has expired or is not yet valid."),
        Kind::AccessDenied => (403, "ErrorAccessDenied", "Access is denied. Check credentials and try again."),
        Kind::NotFound => return Some(Refusal::item_not_found()),
        Kind::MailboxNotEnabled => return Some(no_mailbox()),
        Kind::DeltaExpired => {
            (410, "syncStateNotFound", "The sync state generation is not found; starting over is required.")
        }
        Kind::Resync { code } => {
            (400, code.as_str(), "Resync required. Replace any local items with the server's version.")
        }
        Kind::DeltaQuota => (507, "ErrorQuotaExceeded", "The mailbox has no room left for the state of this sync."),
        _ => return None,
    };
    let retry_after = match fault {
        Kind::Throttled { retry_after } | Kind::Unavailable { retry_after } => *retry_after,
        _ => None,
    };
    Some(Refusal { retry_after, ..Refusal::new(status, code, message) })
}

pub fn no_mailbox() -> Refusal {
    let message = "The mailbox is either inactive, soft-deleted, or is hosted on-premise.";
    Refusal::new(404, "MailboxNotEnabledForRESTAPI", message)
}
