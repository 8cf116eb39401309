//! Per-request context: the tenant it belongs to, that tenant's rate limit status, and the concurrency permit it holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::{PlanTier, TenantId};

use outbound::permits::Permit;
use outbound::rate_limiter::RateDecision;

use super::Edge;
use super::plan_quota::PlanQuota;
use crate::problem::Problem;

/// What a permit of a request or a stream is counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RequestScope {
    Process,
    Tenant(TenantId),
}

pub(crate) type RequestPermit = Permit<RequestScope>;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Context of one request, shared between the middleware and the extractors that authenticate it.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext(Arc<Mutex<ContextState>>);

#[derive(Debug)]
struct ContextState {
    permit: Option<RequestPermit>,
    admitted: Option<TenantId>,
    quota: Option<PlanQuota>,
}

impl RequestContext {
    pub fn new(permit: RequestPermit) -> Self {
        Self(Arc::new(Mutex::new(ContextState { permit: Some(permit), admitted: None, quota: None })))
    }

    /// Returns `None` outside of a request, as when an event stream checks its key again.
    pub fn of(parts: &Parts) -> Option<&Self> {
        parts.extensions.get()
    }

    /// Counts the request against the tenant's rate and concurrency limits, once per request.
    pub async fn admit(&self, edge: &Edge, tenant: TenantId, plan: PlanTier) -> Result<(), Problem> {
        if self.state().admitted == Some(tenant) {
            return Ok(());
        }
        let limits = &edge.settings.limits;
        let rate = limits.per_second.of(plan);
        let (status, wait) = match edge.request_rates.take(tenant, rate).await {
            RateDecision::Allowed(status) => (status, None),
            RateDecision::Limited(status, wait) => (status, Some(wait)),
        };
        let mut state = self.state();
        state.quota = Some(PlanQuota { plan, rate, status });
        if let Some(wait) = wait {
            return Err(Problem::too_many_requests("this tenant has used up the request rate of its plan", wait));
        }
        let (scope, most) = (RequestScope::Tenant(tenant), limits.tenant_in_flight());
        if !state.permit.as_mut().is_none_or(|permit| permit.extend(scope, most)) {
            return Err(Problem::overloaded("this tenant has too many requests in flight"));
        }
        state.admitted = Some(tenant);
        tracing::Span::current().record("tenant.id", tracing::field::display(tenant));
        Ok(())
    }

    /// Releases the permit when the response starts, adds the rate limit headers, and returns the tenant.
    pub fn finish(&self, headers: &mut HeaderMap) -> Option<TenantId> {
        let mut state = self.state();
        if let Some(quota) = state.quota {
            for (name, value) in [(RATE_LIMIT, quota.to_string()), (RATE_LIMIT_POLICY, quota.policy())] {
                if let Ok(value) = HeaderValue::try_from(value) {
                    headers.insert(name, value);
                }
            }
        }
        state.permit.take().and(state.admitted)
    }

    fn state(&self) -> MutexGuard<'_, ContextState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
