//! The circuit breakers of this process, each of one tenant at one service or server.

use std::collections::HashMap;
use std::time::Duration;

use domain::metrics as catalogue;
use domain::{ConnectorError, TenantId, redact_for_log};
use tokio::time::Instant;

use crate::breaker::{BreakerPermit, CircuitBreaker};
use crate::target::{Endpoint, Service, Target};

/// The parts of a service, of which one may be unavailable while the other works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServicePart {
    Main,
    Directory,
}

/// What a breaker is for. By tenant, so that no tenant opens the breaker of another; by server where there are many, so
/// that a dead one does not stop calls to the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BreakerKey {
    tenant: TenantId,
    service: Service,
    endpoint: Option<Endpoint>,
    part: ServicePart,
}

#[derive(Debug, Default)]
pub struct BreakerTable(HashMap<BreakerKey, CircuitBreaker>);

impl BreakerTable {
    /// Returns `Ok` if a call may be made now, or the time of the next probe.
    pub fn check(&self, target: &Target, part: ServicePart, now: Instant) -> Result<(), Instant> {
        self.0.get(&key(target, part)).map_or(Ok(()), |breaker| breaker.check(now))
    }

    /// Takes a permit, under the same condition as [`check`](Self::check).
    pub fn take(&mut self, target: &Target, part: ServicePart, now: Instant) -> Result<BreakerPermit, Instant> {
        self.breaker(target, part, now).take(now)
    }

    /// Records the outcome of a call, and logs if that opens or closes the breaker.
    pub fn record(
        &mut self,
        target: &Target,
        part: ServicePart,
        now: Instant,
        permit: BreakerPermit,
        failure: Option<&ConnectorError>,
    ) {
        let breaker = self.breaker(target, part, now);
        let before = breaker.state();
        breaker.record(now, permit, failure.is_some());
        let after = breaker.state();
        if before == after {
            return;
        }
        let (tenant, provider, part) = (target.tenant, target.service.as_str(), part.as_str());
        let server = target.endpoint.as_ref().map(ToString::to_string);
        let error = failure.map(redact_for_log).unwrap_or_default();
        if after == "open" {
            tracing::warn!(tenant.id = %tenant, provider, server, service = part, error, "circuit breaker opened");
        } else {
            tracing::info!(tenant.id = %tenant, provider, server, service = part, state = after, "circuit breaker state changed");
        }
        count_breakers(provider, before, -1.0);
        count_breakers(provider, after, 1.0);
    }

    /// Returns for how long the breaker of calls to a target has been open, if it stops them now.
    pub fn open_for(&self, target: &Target, part: ServicePart, now: Instant) -> Option<Duration> {
        let breaker = self.0.get(&key(target, part)).filter(|breaker| breaker.check(now).is_err())?;
        breaker.open_since().map(|since| now.duration_since(since))
    }

    pub fn evict_idle(&mut self, now: Instant) {
        self.0.retain(|key, breaker| {
            let is_idle = breaker.is_idle(now);
            if is_idle {
                count_breakers(key.service.as_str(), breaker.state(), -1.0);
            }
            !is_idle
        });
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn breaker(&mut self, target: &Target, part: ServicePart, now: Instant) -> &mut CircuitBreaker {
        self.0.entry(key(target, part)).or_insert_with(|| {
            let breaker = CircuitBreaker::new(now);
            count_breakers(target.service.as_str(), breaker.state(), 1.0);
            breaker
        })
    }
}

impl ServicePart {
    fn as_str(self) -> &'static str {
        match self {
            Self::Main => "mail",
            Self::Directory => "directory",
        }
    }
}

fn key(target: &Target, part: ServicePart) -> BreakerKey {
    let Target { service, tenant, ref endpoint, .. } = *target;
    BreakerKey { tenant, service, endpoint: endpoint.clone(), part }
}

fn count_breakers(provider: &'static str, state: &'static str, by: f64) {
    metrics::gauge!(catalogue::BREAKERS, "provider" => provider, "state" => state).increment(by);
}
