//! The gateway for all calls to providers. It applies their Retry-After, the budgets of calls, bytes and units, the
//! limit of calls in flight, the circuit breaker and a deadline.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::connector::ConnectorFuture;
use domain::metrics as catalogue;
use domain::{ConnectorError, Lane, Provider, RandomSource, SystemRandom, TenantId, redact_for_log};
use tokio::time::{Instant, sleep, timeout};

use crate::breaker::{BreakerPermit, CircuitBreaker, PROBE_INTERVAL};
use crate::budget::{BudgetWait, Charge, Measure, TokenBuckets};
use crate::call_limiter::{CallLimiters, CallPermit};
use crate::coordination::Redis;
use crate::limits::{CallBudgets, CallSettings};
use crate::retry_after::RetryAfterTable;
use crate::target::{Endpoint, Target};
use crate::usage_meter::{CallCount, UsageMeter};

/// The longest debt of bytes that is booked: any, since the bytes have come.
const MAX_BYTE_DEBT: Duration = Duration::from_secs(365 * 86_400);

/// How often idle breakers and full buckets are dropped.
const EVICT_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A poll or listing: it brings few bytes, which are not counted.
    Poll,
    Fetch(Lane),
    /// The same as a poll, at the provider's directory service.
    Directory,
}

/// The services of a provider, of which one may be unavailable while the other works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ProviderService {
    Mail,
    Directory,
}

impl CallKind {
    fn service(self) -> ProviderService {
        match self {
            Self::Poll | Self::Fetch(_) => ProviderService::Mail,
            Self::Directory => ProviderService::Directory,
        }
    }
}

impl ProviderService {
    fn as_str(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Directory => "directory",
        }
    }
}

/// The gateway for calls. Cheap to clone; clones share their state.
#[derive(Debug, Clone)]
pub struct Gateway {
    inner: Arc<GatewayInner>,
}

#[derive(Debug)]
struct GatewayInner {
    settings: CallSettings,
    random: Arc<dyn RandomSource>,
    /// Shares the budgets with other processes.
    redis: Option<Redis>,
    /// The processes that share the budgets while Redis is unavailable or absent.
    instances: AtomicUsize,
    state: Mutex<GatewayState>,
    meter: UsageMeter,
}

#[derive(Debug)]
struct GatewayState {
    breakers: HashMap<BreakerKey, CircuitBreaker>,
    retry_after: RetryAfterTable,
    buckets: TokenBuckets,
    /// `None`: calls in flight are not limited.
    limiters: Option<CallLimiters>,
    evicted_at: Instant,
}

impl Default for Gateway {
    fn default() -> Self {
        Self::new(CallSettings::default(), Arc::new(SystemRandom), None)
    }
}

impl Gateway {
    pub fn new(settings: CallSettings, random: Arc<dyn RandomSource>, redis: Option<Redis>) -> Self {
        let state = GatewayState {
            breakers: HashMap::new(),
            retry_after: RetryAfterTable::default(),
            buckets: TokenBuckets::default(),
            limiters: settings.max_in_flight.map(CallLimiters::new),
            evicted_at: Instant::now(),
        };
        let (instances, state, meter) = (AtomicUsize::new(1), Mutex::new(state), UsageMeter::default());
        let inner = GatewayInner { settings, random, redis, instances, state, meter };
        Self { inner: Arc::new(inner) }
    }

    pub fn settings(&self) -> &CallSettings {
        &self.inner.settings
    }

    /// Sets how many processes make calls, as far as is known.
    pub fn set_instances(&self, count: usize) {
        self.inner.instances.store(count.max(1), Ordering::Relaxed);
    }

    /// Makes a call when the budgets allow it, or returns at once for how long they do not.
    pub async fn make<T>(&self, target: &Target, call: ConnectorFuture<'_, T>) -> Result<T, ConnectorError> {
        self.make_kind(CallKind::Poll, target, call).await
    }

    /// Makes a call that brings messages: it also waits while a byte budget is in debt. The low lane is backfill.
    pub async fn make_fetch<T>(
        &self,
        target: &Target,
        lane: Lane,
        call: ConnectorFuture<'_, T>,
    ) -> Result<T, ConnectorError> {
        self.make_kind(CallKind::Fetch(lane), target, call).await
    }

    /// Makes a call to a tenant's directory.
    pub async fn make_directory_call<T>(
        &self,
        target: &Target,
        call: ConnectorFuture<'_, T>,
    ) -> Result<T, ConnectorError> {
        self.make_kind(CallKind::Directory, target, call).await
    }

    async fn make_kind<T>(
        &self,
        kind: CallKind,
        target: &Target,
        call: ConnectorFuture<'_, T>,
    ) -> Result<T, ConnectorError> {
        self.inner.check(kind, target)?;
        self.inner.wait_for_budget(kind, target).await?;
        let (_permit, breaker_permit) = self.inner.start_call(kind, target)?;
        self.inner.meter.count(usage_key(target), CallCount { calls: 1, bytes: 0 });
        let deadline = self.inner.settings.deadline;
        let outcome = match timeout(deadline, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ConnectorError::Unavailable(format!("no answer within {} s", deadline.as_secs()))),
        };
        self.inner.end_call(kind, target, breaker_permit, outcome.as_ref().err());
        outcome
    }

    /// Waits until so many units of the provider's quota may be used, within a call that was admitted already.
    pub async fn spend_units(&self, target: &Target, units: u32) -> Result<(), ConnectorError> {
        let charges = self.inner.budgets(target).unit_charges(target, f64::from(units));
        self.inner.wait_for(&charges).await
    }

    /// Charges the bytes that a call has brought. They may exceed the budget, since they came already; the next fetches
    /// wait.
    pub async fn spend_bytes(&self, target: &Target, bytes: u64) {
        self.inner.meter.count(usage_key(target), CallCount { calls: 0, bytes });
        let mut charges = self.inner.budgets(target).charges(target, 0.0, bytes as f64);
        charges.retain(|charge| charge.amount > 0.0);
        self.inner.take(&charges, MAX_BYTE_DEBT).await;
    }

    /// Returns whether fetches wait because a byte budget is in debt.
    pub async fn owes_bytes(&self, target: &Target) -> bool {
        let mut charges = self.inner.budgets(target).charges(target, 0.0, 0.0);
        charges.retain(|charge| charge.measure == Measure::Bytes);
        matches!(self.inner.take(&charges, Duration::ZERO).await, BudgetWait::TooLong(_))
    }

    /// Takes the usage since the last time, to be written.
    pub fn take_usage(&self) -> HashMap<(TenantId, Provider), CallCount> {
        self.inner.meter.take()
    }

    /// Returns usage that could not be written, to be taken again.
    pub fn return_usage(&self, usage: HashMap<(TenantId, Provider), CallCount>) {
        for (owner, count) in usage {
            self.inner.meter.count(owner, count);
        }
    }

    /// Returns why calls to a target have to wait.
    pub fn wait_reason(&self, target: &Target) -> LimitReason {
        let now = Instant::now();
        let state = self.inner.state();
        let breaker = state.breakers.get(&breaker_key(CallKind::Poll, target));
        if breaker.is_some_and(|breaker| breaker.check(now).is_err()) {
            return LimitReason::BreakerOpen(target.endpoint.clone());
        }
        if state.retry_after.check(target.mailbox, now).is_err() {
            return LimitReason::RetryAfter;
        }
        let charges = self.inner.budgets(target).charges(target, 1.0, 0.0);
        if charges.iter().any(|charge| charge.measure == Measure::Bytes) {
            // A debt: budgets of calls never have one.
            LimitReason::ByteQuota
        } else {
            LimitReason::CallBudget
        }
    }
}

/// Why calls to a target have to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitReason {
    /// The circuit breaker of the server, or of the provider where there is one server, is open.
    BreakerOpen(Option<Endpoint>),
    /// The provider asked to wait.
    RetryAfter,
    /// The mailbox has used up its bytes of the day.
    ByteQuota,
    CallBudget,
}

impl fmt::Display for LimitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BreakerOpen(Some(endpoint)) => write!(f, "the circuit breaker of {endpoint} is open"),
            Self::BreakerOpen(None) => f.write_str("the circuit breaker of the provider is open"),
            Self::RetryAfter => f.write_str("the provider asked to wait"),
            Self::ByteQuota => f.write_str("the mailbox's daily byte quota is used up"),
            Self::CallBudget => f.write_str("the call budget is used up"),
        }
    }
}

impl GatewayInner {
    fn budgets(&self, target: &Target) -> CallBudgets {
        self.settings.budgets_of(target)
    }

    /// Checks whether it is of use to wait for the budgets. Takes nothing: neither a probe nor a budget must be spent
    /// on a call that is not made, and a permit that is held while a tenant waits for its own budget would be kept from
    /// other tenants.
    fn check(&self, kind: CallKind, target: &Target) -> Result<(), ConnectorError> {
        let now = Instant::now();
        let mut state = self.state();
        state.evict_idle(now);
        if let Some(breaker) = state.breakers.get(&breaker_key(kind, target)) {
            breaker.check(now).map_err(|until| self.breaker_open(until, now))?;
        }
        state.retry_after.check(target.mailbox, now)?;
        let is_full = state.limiters.as_mut().is_some_and(|limiters| limiters.acquire(target, kind).is_none());
        if is_full { Err(self.at_capacity()) } else { Ok(()) }
    }

    async fn wait_for_budget(&self, kind: CallKind, target: &Target) -> Result<(), ConnectorError> {
        let mut charges = self.budgets(target).charges(target, 1.0, 0.0);
        if !matches!(kind, CallKind::Fetch(_)) {
            charges.retain(|charge| charge.measure == Measure::Calls);
        }
        self.wait_for(&charges).await
    }

    async fn wait_for(&self, charges: &[Charge]) -> Result<(), ConnectorError> {
        match self.take(charges, self.settings.max_wait).await {
            BudgetWait::After(wait) => {
                sleep(wait).await;
                Ok(())
            }
            BudgetWait::TooLong(wait) => {
                Err(ConnectorError::RateLimited(self.with_jitter(wait, self.settings.max_wait)))
            }
        }
    }

    async fn take(&self, charges: &[Charge], max_wait: Duration) -> BudgetWait {
        if charges.is_empty() {
            return BudgetWait::After(Duration::ZERO);
        }
        if let Some(redis) = &self.redis {
            let charges: Vec<Charge> = charges.iter().map(|charge| charge.smoothed()).collect();
            if let Some(wait) = redis.take(&charges, max_wait_for(&charges, max_wait)).await {
                return wait;
            }
        }
        let instances = self.instances.load(Ordering::Relaxed);
        let charges: Vec<Charge> = charges
            .iter()
            .map(|charge| Charge { budget: charge.budget.share(instances), ..*charge }.smoothed())
            .collect();
        self.state().buckets.take(&charges, Instant::now(), max_wait_for(&charges, max_wait))
    }

    /// Takes the permits for a call; the first is released when it is dropped.
    fn start_call(
        &self,
        kind: CallKind,
        target: &Target,
    ) -> Result<(Option<CallPermit>, BreakerPermit), ConnectorError> {
        let now = Instant::now();
        let mut state = self.state();
        // The provider may have asked others to wait meanwhile.
        state.retry_after.check(target.mailbox, now)?;
        let limiters = state.limiters.as_mut();
        let permit = limiters.map(|limiters| limiters.acquire(target, kind).ok_or_else(|| self.at_capacity()));
        let permit = permit.transpose()?;
        let taken = state.breaker(kind, target, now).take(now);
        Ok((permit, taken.map_err(|until| self.breaker_open(until, now))?))
    }

    fn end_call(&self, kind: CallKind, target: &Target, breaker_permit: BreakerPermit, error: Option<&ConnectorError>) {
        let now = Instant::now();
        let provider = target.provider.as_str();
        let (word, is_failure) = outcome_label(error);
        metrics::counter!(catalogue::PROVIDER_REQUESTS, "provider" => provider, "outcome" => word).increment(1);
        let mut state = self.state();
        if let Some(ConnectorError::Throttled { retry_after: Some(wait) }) = error {
            state.retry_after.record(target.mailbox, *wait, now);
        }
        let Some(is_failure) = is_failure else { return };
        let breaker = state.breaker(kind, target, now);
        let before = breaker.state();
        breaker.record(now, breaker_permit, is_failure);
        let after = breaker.state();
        if before != after {
            let service = kind.service().as_str();
            let server = target.endpoint.as_ref().map(ToString::to_string);
            let error = error.map(redact_for_log).unwrap_or_default();
            if after == "open" {
                tracing::warn!(tenant.id = %target.tenant, provider, server, service, error, "circuit breaker opened");
            } else {
                tracing::info!(tenant.id = %target.tenant, provider, server, service, state = after, "circuit breaker state changed");
            }
            count_breakers(provider, before, -1.0);
            count_breakers(provider, after, 1.0);
        }
    }

    /// Returns the error for an open breaker, with jitter: calls that are refused together do not come back together.
    fn breaker_open(&self, until: Instant, now: Instant) -> ConnectorError {
        ConnectorError::RateLimited(self.with_jitter(until - now, PROBE_INTERVAL / 10))
    }

    /// Returns the error for as many calls in flight as are allowed.
    fn at_capacity(&self) -> ConnectorError {
        let wait = self.settings.max_wait;
        ConnectorError::RateLimited(self.with_jitter(wait, wait))
    }

    fn with_jitter(&self, wait: Duration, over: Duration) -> Duration {
        wait + over.mul_f64(self.random.next_fraction())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, GatewayState> {
        // No statement leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GatewayState {
    fn breaker(&mut self, kind: CallKind, target: &Target, now: Instant) -> &mut CircuitBreaker {
        self.breakers.entry(breaker_key(kind, target)).or_insert_with(|| {
            let breaker = CircuitBreaker::new(now);
            count_breakers(target.provider.as_str(), breaker.state(), 1.0);
            breaker
        })
    }

    fn evict_idle(&mut self, now: Instant) {
        if now.duration_since(self.evicted_at) < EVICT_INTERVAL {
            return;
        }
        self.evicted_at = now;
        self.retry_after.evict_past(now);
        self.buckets.evict_full(now);
        if let Some(limiters) = &mut self.limiters {
            limiters.evict_idle();
        }
        self.breakers.retain(|key, breaker| {
            let is_idle = breaker.is_idle(now);
            if is_idle {
                count_breakers(key.provider.as_str(), breaker.state(), -1.0);
            }
            !is_idle
        });
    }
}

/// Returns `max_wait`, extended for charges above the burst: they could never be taken otherwise.
fn max_wait_for(charges: &[Charge], max_wait: Duration) -> Duration {
    let least = charges.iter().map(|charge| charge.budget.least_wait(charge.amount)).max();
    max_wait.saturating_add(least.unwrap_or_default())
}

fn usage_key(target: &Target) -> (TenantId, Provider) {
    (target.tenant, target.provider)
}

/// What a breaker is for. By tenant, so that no tenant opens the breaker of another; by server where mailboxes are at many,
/// so that a dead one does not stop calls to the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BreakerKey {
    tenant: TenantId,
    provider: Provider,
    endpoint: Option<Endpoint>,
    service: ProviderService,
}

fn breaker_key(kind: CallKind, target: &Target) -> BreakerKey {
    let Target { provider, tenant, ref endpoint, .. } = *target;
    BreakerKey { tenant, provider, endpoint: endpoint.clone(), service: kind.service() }
}

fn count_breakers(provider: &'static str, state: &'static str, by: f64) {
    metrics::gauge!(catalogue::BREAKERS, "provider" => provider, "state" => state).increment(by);
}

/// Returns the metric label of an outcome, and whether it is a failure for the breaker: a refusal is an answer, so the
/// provider works. Being asked to wait says neither.
fn outcome_label(error: Option<&ConnectorError>) -> (&'static str, Option<bool>) {
    match error {
        None => ("ok", Some(false)),
        Some(ConnectorError::Throttled { .. }) => ("throttled", None),
        Some(ConnectorError::RateLimited(_)) => ("put_off", None),
        Some(ConnectorError::Unavailable(_)) => ("unavailable", Some(true)),
        Some(ConnectorError::Unauthorized(_)) => ("unauthorized", Some(false)),
        Some(ConnectorError::AppRejected(_)) => ("operator", Some(false)),
        Some(ConnectorError::CursorExpired) => ("cursor_expired", Some(false)),
        Some(ConnectorError::Gone) => ("gone", Some(false)),
        Some(ConnectorError::FolderUnavailable(_)) => ("shut", Some(false)),
        Some(ConnectorError::Protocol(_)) => ("protocol", Some(false)),
    }
}

#[cfg(test)]
#[path = "gateway_tests.rs"]
mod tests;
