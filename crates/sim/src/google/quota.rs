//! How much may be asked in a minute.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::error;
use super::faults::Route;
use crate::answer::Answer;

const MINUTE: i64 = 60_000;

/// Limits and prices, as Google has them for projects made from May 2026 on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub per_user_per_minute: u64,
    pub per_project_per_minute: u64,
    /// Units by route; what is not named costs one.
    pub units: BTreeMap<Route, u64>,
    /// 403 or 429: Google answers with either.
    pub status: u16,
    pub retry_after: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        let units = [
            (Route::Profile, 1),
            (Route::LabelsList, 1),
            (Route::LabelsGet, 1),
            (Route::HistoryList, 2),
            (Route::MessagesList, 5),
            (Route::MessagesGet, 20),
            (Route::AttachmentsGet, 20),
            (Route::Watch, 100),
            (Route::Stop, 50),
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
pub struct Quota(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limits: Option<Limits>,
    minute: i64,
    spent: u64,
    spent_by_user: HashMap<String, u64>,
}

impl Quota {
    /// Nothing: there is no limit.
    pub fn set(&self, limits: Option<Limits>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State { limits, ..State::default() };
    }

    pub fn limits(&self) -> Option<Limits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).limits.clone()
    }

    /// Pays for a call, or says why it cannot be paid.
    pub fn spend(&self, account: &str, route: Route, now_ms: i64) -> Result<(), Box<Answer>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let Some(limits) = &state.limits else { return Ok(()) };
        if state.minute != now_ms.div_euclid(MINUTE) {
            state.minute = now_ms.div_euclid(MINUTE);
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
    fn a_user_and_the_project_may_spend_so_much_in_a_minute() {
        let quota = Quota::default();
        let limits = Limits { per_user_per_minute: 40, per_project_per_minute: 50, ..Limits::default() };
        quota.set(Some(limits));
        let spend = |account, now| quota.spend(account, Route::MessagesGet, now).map_err(|answer| answer.status);

        assert_eq!([spend("a", 0), spend("a", 1), spend("a", 2)], [Ok(()), Ok(()), Err(403)]);
        assert_eq!(spend("b", 59_999), Err(403), "the project has ten units left");
        assert_eq!(spend("b", 60_000), Ok(()));
    }
}
