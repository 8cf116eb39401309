//! Whose permits a call or connection takes, so that a server that is slow or dead holds up its own callers only.

use domain::{Lane, TenantId};

use crate::gateway::CallKind;
use crate::permits::Permit;
use crate::target::{Endpoint, Service, Target};

/// Whose calls are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CallOwner {
    Service(Service),
    /// One server, for all tenants.
    Endpoint(Service, Endpoint),
    /// One tenant at all servers of a service.
    Tenant(TenantId, Service),
    TenantAtEndpoint(TenantId, Service, Endpoint),
}

/// Fetches take long, also because they wait for memory: one permit in five is reserved for polls and listings, and
/// another one in five for fetches of new mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CallClass {
    Any,
    Fetch,
    Backfill,
}

/// What a permit of a call is counted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallScope(CallOwner, CallClass);

/// Permits one call, or one connection, until it is dropped.
pub type CallPermit = Permit<CallScope>;

/// The least calls of a share: with fewer, none would be left for polls beside a fetch and a backfill.
const MIN_SHARE: usize = 5;

/// Returns the most calls in flight at one server, of one tenant at all servers, and of one tenant at one server, where
/// there are many servers. So a dead server leaves half of the calls to other servers, and its tenant a part of its
/// own; and no tenant takes all calls of a server that many have.
pub fn server_limits(max_per_service: usize) -> [usize; 3] {
    let server = max_per_service / 2;
    [server, max_per_service * 3 / 4, server * 3 / 4].map(|share| share.max(MIN_SHARE).min(max_per_service))
}

/// Returns the scopes of a call with the calls that each may have in flight, the widest first, where a service has at most
/// `max`.
pub fn call_scopes(target: &Target, kind: CallKind, max: usize) -> Vec<(CallScope, usize)> {
    let mut scopes = Vec::new();
    for (owner, max) in owners(target, max) {
        for class in classes(kind) {
            let share = match class {
                CallClass::Any => max,
                CallClass::Fetch => max * 4 / 5,
                CallClass::Backfill => max * 3 / 5,
            };
            // At least one of each class: otherwise there would be no such calls at all.
            scopes.push((CallScope(owner.clone(), *class), share.max(1)));
        }
    }
    scopes
}

fn owners(target: &Target, max: usize) -> Vec<(CallOwner, usize)> {
    let mut owners = vec![(CallOwner::Service(target.service), max)];
    if let Some(endpoint) = &target.endpoint {
        let [server, tenant, tenant_at_server] = server_limits(max);
        owners.extend([
            (CallOwner::Endpoint(target.service, endpoint.clone()), server),
            (CallOwner::Tenant(target.tenant, target.service), tenant),
            (CallOwner::TenantAtEndpoint(target.tenant, target.service, endpoint.clone()), tenant_at_server),
        ]);
    }
    owners
}

/// Returns the classes that a call counts in.
fn classes(kind: CallKind) -> &'static [CallClass] {
    match kind {
        CallKind::Fetch(Lane::Low) => &[CallClass::Any, CallClass::Fetch, CallClass::Backfill],
        CallKind::Fetch(_) => &[CallClass::Any, CallClass::Fetch],
        CallKind::Poll | CallKind::Directory => &[CallClass::Any],
    }
}
