//! Per-request context: the tenant it belongs to, that tenant's rate limit status, and the concurrency permit it holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::{PlanTier, TenantId};

use super::concurrency::RequestPermit;
use super::rate_limiter::{RateDecision, RateLimitStatus, RateLimiter};
use crate::problem::Problem;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Context of one request, shared between the middleware and the extractors that authenticate it.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext(Arc<Mutex<ContextState>>);

#[derive(Debug)]
struct ContextState {
    permit: Option<RequestPermit>,
    admitted: Option<TenantId>,
    status: Option<RateLimitStatus>,
}

impl RequestContext {
    pub fn new(permit: RequestPermit) -> Self {
        Self(Arc::new(Mutex::new(ContextState { permit: Some(permit), admitted: None, status: None })))
    }

    /// Returns `None` outside of a request, as when an event stream checks its key again.
    pub fn of(parts: &Parts) -> Option<&Self> {
        parts.extensions.get()
    }

    /// Counts the request against the tenant's rate and concurrency limits, once per request.
    pub async fn admit(&self, rate_limiter: &RateLimiter, tenant: TenantId, plan: PlanTier) -> Result<(), Problem> {
        if self.state().admitted == Some(tenant) {
            return Ok(());
        }
        let (status, wait) = match rate_limiter.take(tenant, plan).await {
            RateDecision::Allowed(status) => (status, None),
            RateDecision::Limited(status, wait) => (status, Some(wait)),
        };
        let mut state = self.state();
        state.status = Some(status);
        if let Some(wait) = wait {
            return Err(Problem::too_many_requests("this tenant has used up the request rate of its plan", wait));
        }
        if !state.permit.as_mut().is_none_or(|permit| permit.try_assign(tenant)) {
            return Err(Problem::overloaded("this tenant has too many requests in flight"));
        }
        state.admitted = Some(tenant);
        tracing::Span::current().record("tenant.id", tracing::field::display(tenant));
        Ok(())
    }

    /// Releases the permit when the response starts, adds the rate limit headers, and returns the tenant.
    pub fn finish(&self, headers: &mut HeaderMap) -> Option<TenantId> {
        let mut state = self.state();
        if let Some(status) = state.status {
            for (name, value) in [(RATE_LIMIT, status.to_string()), (RATE_LIMIT_POLICY, status.policy())] {
                if let Ok(value) = HeaderValue::try_from(value) {
                    headers.insert(name, value);
                }
            }
        }
        state.permit.take().and_then(|permit| permit.tenant())
    }

    fn state(&self) -> MutexGuard<'_, ContextState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
