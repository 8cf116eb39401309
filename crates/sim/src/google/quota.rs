//! Quota units per minute, of a user and of the project.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::error;
use super::faults::GoogleRoute;
use crate::response::SimResponse;

const MINUTE_MS: i64 = 60_000;

/// Limits and costs in quota units, as for projects created from May 2026 on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GmailLimits {
    pub per_user_per_minute: u64,
    pub per_project_per_minute: u64,
    /// Quota units by route; any other costs one.
    pub units: BTreeMap<GoogleRoute, u64>,
    /// 403 or 429: Google uses both.
    pub status: u16,
    pub retry_after: Option<u64>,
}

impl Default for GmailLimits {
    fn default() -> Self {
        let units = [
            (GoogleRoute::Profile, 1),
            (GoogleRoute::LabelsList, 1),
            (GoogleRoute::LabelsGet, 1),
            (GoogleRoute::HistoryList, 2),
            (GoogleRoute::MessagesList, 5),
            (GoogleRoute::MessagesGet, 20),
            (GoogleRoute::AttachmentsGet, 20),
            (GoogleRoute::Watch, 100),
            (GoogleRoute::Stop, 50),
        ];
        Self {
            per_user_per_minute: 6_000,
            per_project_per_minute: 1_200_000,
            units: units.into(),
            status: 403,
            retry_after: None,
        }
    }
}

#[derive(Debug, Default)]
pub struct Quota(Mutex<QuotaState>);

#[derive(Debug, Default)]
struct QuotaState {
    limits: Option<GmailLimits>,
    minute: i64,
    spent: u64,
    spent_by_user: HashMap<String, u64>,
}

impl Quota {
    /// Sets the limits. `None`: no limit.
    pub fn set(&self, limits: Option<GmailLimits>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = QuotaState { limits, ..QuotaState::default() };
    }

    pub fn limits(&self) -> Option<GmailLimits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).limits.clone()
    }

    /// Spends the quota units of a call, or returns the refusal.
    pub fn spend(&self, account: &str, route: GoogleRoute, now_ms: i64) -> Result<(), Box<SimResponse>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let Some(limits) = &state.limits else { return Ok(()) };
        if state.minute != now_ms.div_euclid(MINUTE_MS) {
            state.minute = now_ms.div_euclid(MINUTE_MS);
            state.spent = 0;
            state.spent_by_user.clear();
        }
        let units = limits.units.get(&route).copied().unwrap_or(1);
        let by_user = state.spent_by_user.entry(account.to_owned()).or_default();
        let (reason, message) = if *by_user + units > limits.per_user_per_minute {
            (
                "userRateLimitExceeded",
                "User Rate Limit Exceeded. Rate of requests for user exceed configured project quota.",
            )
        } else if state.spent + units > limits.per_project_per_minute {
            ("rateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'.")
        } else {
            *by_user += units;
            state.spent += units;
            return Ok(());
        };
        Err(Box::new(error(limits.status, reason, message).retry_after(limits.retry_after)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_limits_user_and_project_per_minute() {
        let quota = Quota::default();
        let limits = GmailLimits { per_user_per_minute: 40, per_project_per_minute: 50, ..GmailLimits::default() };
        quota.set(Some(limits));
        let spend = |account, now| quota.spend(account, GoogleRoute::MessagesGet, now).map_err(|answer| answer.status);

        assert_eq!([spend("a", 0), spend("a", 1), spend("a", 2)], [Ok(()), Ok(()), Err(403)]);
        assert_eq!(spend("b", 59_999), Err(403), "the project has ten units left");
        assert_eq!(spend("b", 60_000), Ok(()));
    }
}
