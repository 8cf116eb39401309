//! What is learned of a request on its way in, for its way out: whose it is, how it stands with that tenant, and its
//! seat among those that are answered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::{PlanTier, TenantId};

use super::flight::Seat;
use super::rates::{Rates, Standing, Taken};
use crate::api::Problem;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

#[derive(Debug, Clone)]
pub(crate) struct Passage(Arc<Mutex<Learned>>);

#[derive(Debug)]
struct Learned {
    seat: Option<Seat>,
    admitted: Option<TenantId>,
    standing: Option<Standing>,
}

impl Passage {
    pub fn new(seat: Seat) -> Self {
        Self(Arc::new(Mutex::new(Learned { seat: Some(seat), admitted: None, standing: None })))
    }

    /// `None` for what is no request of somebody's, but a look on the way.
    pub fn of(parts: &Parts) -> Option<&Self> {
        parts.extensions.get()
    }

    /// Counts the request as one of this tenant, once.
    pub async fn admit(&self, rates: &Rates, tenant: TenantId, plan: PlanTier) -> Result<(), Problem> {
        if self.learned().admitted == Some(tenant) {
            return Ok(());
        }
        let (standing, wait) = match rates.take(tenant, plan).await {
            Taken::Yes(standing) => (standing, None),
            Taken::No(standing, wait) => (standing, Some(wait)),
        };
        let mut learned = self.learned();
        learned.standing = Some(standing);
        if let Some(wait) = wait {
            return Err(Problem::too_many("this tenant sends more requests than its plan allows", wait));
        }
        if !learned.seat.as_mut().is_none_or(|seat| seat.belongs_to(tenant)) {
            return Err(Problem::overloaded("this tenant has too many requests under way"));
        }
        learned.admitted = Some(tenant);
        Ok(())
    }

    /// When the answer begins. Tells whose it is.
    pub fn leave(&self, headers: &mut HeaderMap) -> Option<TenantId> {
        let mut learned = self.learned();
        if let Some(standing) = learned.standing {
            for (name, value) in [(RATE_LIMIT, standing.to_string()), (RATE_LIMIT_POLICY, standing.policy())] {
                if let Ok(value) = HeaderValue::try_from(value) {
                    headers.insert(name, value);
                }
            }
        }
        learned.seat.take().and_then(|seat| seat.tenant())
    }

    fn learned(&self) -> MutexGuard<'_, Learned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
