//! Limits the calls that are in flight at once, so that a server that is slow or dead holds up its own callers only.

use std::collections::HashMap;
use std::sync::Arc;

use domain::{Lane, Provider, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gateway::CallKind;
use crate::target::{Endpoint, Target};

/// Whose calls a limiter counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CallScope {
    Provider(Provider),
    /// One server, for all tenants.
    Endpoint(Endpoint),
    /// One tenant at all servers of a provider.
    Tenant(TenantId, Provider),
    TenantAtEndpoint(TenantId, Endpoint),
}

/// The limiters of this process.
#[derive(Debug)]
pub struct CallLimiters {
    max_per_provider: usize,
    limiters: HashMap<CallScope, CallLimiter>,
}

/// Permits one call, until it is dropped.
#[derive(Debug)]
pub struct CallPermit {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl CallLimiters {
    pub fn new(max_per_provider: usize) -> Self {
        Self { max_per_provider, limiters: HashMap::new() }
    }

    /// Takes a permit of each scope that the call belongs to. Returns `None` if one of them has as many calls in flight as
    /// it may.
    pub fn acquire(&mut self, target: &Target, kind: CallKind) -> Option<CallPermit> {
        let mut permits = Vec::new();
        for (scope, max) in scopes(target, self.max_per_provider) {
            let limiter = self.limiters.entry(scope).or_insert_with(|| CallLimiter::new(max));
            permits.extend(limiter.acquire(kind)?);
        }
        Some(CallPermit { _permits: permits })
    }

    /// Drops limiters without calls in flight, which are as good as absent.
    pub fn evict_idle(&mut self) {
        self.limiters.retain(|_, limiter| limiter.is_in_use());
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.limiters.len()
    }
}

/// The least calls of a share: with fewer, none would be left for polls beside a fetch and a backfill.
const MIN_SHARE: usize = 5;

/// Returns the most calls in flight at one server, of one tenant at all servers, and of one tenant at one server, where
/// mailboxes are at many servers. So a dead server leaves half of the calls to other servers, and its tenant a part of its
/// own; and no tenant takes all calls of a server that many have.
pub fn server_limits(max_per_provider: usize) -> [usize; 3] {
    let server = max_per_provider / 2;
    [server, max_per_provider * 3 / 4, server * 3 / 4].map(|share| share.max(MIN_SHARE).min(max_per_provider))
}

/// Returns the scopes of a call with the calls that each may have in flight, the widest first.
fn scopes(target: &Target, max: usize) -> Vec<(CallScope, usize)> {
    let mut scopes = vec![(CallScope::Provider(target.provider), max)];
    if let Some(endpoint) = &target.endpoint {
        let [server, tenant, tenant_at_server] = server_limits(max);
        scopes.extend([
            (CallScope::Endpoint(endpoint.clone()), server),
            (CallScope::Tenant(target.tenant, target.provider), tenant),
            (CallScope::TenantAtEndpoint(target.tenant, endpoint.clone()), tenant_at_server),
        ]);
    }
    scopes
}

/// The limiter of one scope.
#[derive(Debug)]
struct CallLimiter {
    max: usize,
    all: Arc<Semaphore>,
    /// Fetches take long, also because they wait for memory: one permit in five is reserved for polls and listings.
    fetches: Arc<Semaphore>,
    /// Another one in five is reserved for fetches of new mail.
    backfill: Arc<Semaphore>,
}

impl CallLimiter {
    /// Creates a limiter with at least one permit of each kind.
    fn new(max: usize) -> Self {
        let max = max.max(1);
        Self { max, all: semaphore(max), fetches: semaphore(max * 4 / 5), backfill: semaphore(max * 3 / 5) }
    }

    /// Takes the permits for a call. Returns `None` if as many calls as allowed are in flight.
    fn acquire(&self, kind: CallKind) -> Option<Vec<OwnedSemaphorePermit>> {
        let semaphores = match kind {
            CallKind::Fetch(Lane::Low) => vec![&self.backfill, &self.fetches, &self.all],
            CallKind::Fetch(_) => vec![&self.fetches, &self.all],
            CallKind::Poll | CallKind::Directory => vec![&self.all],
        };
        semaphores.into_iter().map(|semaphore| semaphore.clone().try_acquire_owned().ok()).collect()
    }

    fn is_in_use(&self) -> bool {
        self.all.available_permits() < self.max
    }
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.max(1)))
}
