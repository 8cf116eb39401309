//! Concurrency limiter: so many requests at once, and a share of them per tenant. Without a free permit a request is
//! refused at once, since queueing would only slow down all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::TenantId;

/// Hands out permits up to a total and to a share per tenant.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimiter {
    max_permits: usize,
    /// Permits that one tenant may hold.
    tenant_share: usize,
    counts: Mutex<PermitCounts>,
}

#[derive(Debug, Default)]
struct PermitCounts {
    all: usize,
    /// Permits per tenant; tenants without one are absent.
    tenants: HashMap<TenantId, usize>,
}

/// Permit that is released when dropped.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    limiter: Arc<ConcurrencyLimiter>,
    tenant: Option<TenantId>,
}

impl ConcurrencyLimiter {
    /// Creates a limiter of which one tenant may hold one of `parts` equal parts.
    pub fn new(max_permits: usize, parts: usize) -> Arc<Self> {
        Arc::new(Self { max_permits, tenant_share: max_permits.div_ceil(parts), counts: Mutex::default() })
    }

    /// Returns `None` if all permits are in use.
    pub fn try_acquire(self: &Arc<Self>) -> Option<RequestPermit> {
        let mut counts = self.counts();
        if counts.all >= self.max_permits {
            return None;
        }
        counts.all += 1;
        Some(RequestPermit { limiter: self.clone(), tenant: None })
    }

    fn counts(&self) -> MutexGuard<'_, PermitCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestPermit {
    /// Charges the permit to a tenant, once it is known. Returns `false` if that tenant has used up its share.
    pub fn try_assign(&mut self, tenant: TenantId) -> bool {
        if self.tenant == Some(tenant) {
            return true;
        }
        self.release_tenant();
        let mut counts = self.limiter.counts();
        let held = counts.tenants.entry(tenant).or_default();
        if *held >= self.limiter.tenant_share {
            return false;
        }
        *held += 1;
        self.tenant = Some(tenant);
        true
    }

    pub fn tenant(&self) -> Option<TenantId> {
        self.tenant
    }

    fn release_tenant(&mut self) {
        let Some(tenant) = self.tenant.take() else { return };
        let mut counts = self.limiter.counts();
        if let Some(held) = counts.tenants.get_mut(&tenant) {
            *held -= 1;
            if *held == 0 {
                counts.tenants.remove(&tenant);
            }
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.release_tenant();
        self.limiter.counts().all -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SystemClock;

    #[test]
    fn tenant_gets_its_share_and_no_more() {
        let (acme, beta) = (TenantId::new(&SystemClock), TenantId::new(&SystemClock));
        let limiter = ConcurrencyLimiter::new(8, 4);
        let permit = |tenant| {
            let mut permit = limiter.try_acquire().unwrap();
            permit.try_assign(tenant).then_some(permit)
        };

        let held = [permit(acme), permit(acme)];
        assert!(held.iter().all(Option::is_some));
        assert!(permit(acme).is_none());
        let other = permit(beta);
        assert!(other.is_some());
        drop(held);
        let mut again = permit(acme).unwrap();
        assert!(again.try_assign(acme) && again.tenant() == Some(acme));
        drop((again, other));

        let counts = limiter.counts();
        assert_eq!((counts.all, counts.tenants.len()), (0, 0));
    }

    #[test]
    fn total_is_limited() {
        let limiter = ConcurrencyLimiter::new(2, 1);
        let held = [limiter.try_acquire(), limiter.try_acquire()];
        assert!(held.iter().all(Option::is_some) && limiter.try_acquire().is_none());
        drop(held);
        assert!(limiter.try_acquire().is_some());
    }
}
