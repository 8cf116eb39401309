//! The gateway for all calls to other people's servers. It applies their Retry-After, the budgets of calls, bytes and
//! units, the limit of calls in flight, the circuit breaker and a deadline.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::connector::ConnectorFuture;
use domain::metrics as catalogue;
use domain::{ConnectorError, Lane, Provider, RandomSource, SystemRandom, TenantId};
use tokio::time::{Instant, sleep, timeout};

use crate::breaker::{BreakerPermit, BreakerTable, PROBE_INTERVAL, ServicePart};
use crate::budget::{BudgetWait, Charge, Measure, TokenBuckets};
use crate::call_scopes::{CallPermit, CallScope, call_scopes};
use crate::call_settings::CallSettings;
use crate::coordination::Redis;
use crate::limit_reason::{LimitReason, RefusedBudgets};
use crate::limits::{Limit, MAX_IDLE_CONNECTIONS, count_refusal};
use crate::permits::PermitTable;
use crate::retry_after::RetryAfterTable;
use crate::target::{Service, Target};
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

impl CallKind {
    fn part(self) -> ServicePart {
        match self {
            Self::Poll | Self::Fetch(_) => ServicePart::Main,
            Self::Directory => ServicePart::Directory,
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
    calls_in_flight: PermitTable<CallScope>,
    idle_connections: PermitTable<CallScope>,
    meter: UsageMeter,
}

#[derive(Debug)]
struct GatewayState {
    breakers: BreakerTable,
    retry_after: RetryAfterTable,
    buckets: TokenBuckets,
    refused_budgets: RefusedBudgets,
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
            breakers: BreakerTable::default(),
            retry_after: RetryAfterTable::default(),
            buckets: TokenBuckets::default(),
            refused_budgets: RefusedBudgets::default(),
            evicted_at: Instant::now(),
        };
        let inner = GatewayInner {
            settings,
            random,
            redis,
            instances: AtomicUsize::new(1),
            state: Mutex::new(state),
            calls_in_flight: PermitTable::new(Limit::CallsInFlight),
            idle_connections: PermitTable::new(Limit::IdleConnections),
            meter: UsageMeter::default(),
        };
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
        self.inner.count_usage(target, CallCount { calls: 1, bytes: 0 });
        let deadline = self.inner.settings.deadline;
        let outcome = match timeout(deadline, call).await {
            Ok(outcome) => outcome,
            Err(_) => {
                count_refusal(Limit::Deadline);
                Err(ConnectorError::Unavailable(format!("no answer within {} s", deadline.as_secs())))
            }
        };
        self.inner.end_call(kind, target, breaker_permit, outcome.as_ref().err());
        outcome
    }

    /// Admits a connection that waits for news until its permit is dropped. It is no call, which would have a deadline, and
    /// takes no permit of calls; while calls to the same server are not made, it is refused like them.
    pub fn admit_listener(&self, target: &Target) -> Result<CallPermit, ConnectorError> {
        let kind = CallKind::Poll;
        self.inner.check_server(kind, target)?;
        let permit = self.inner.idle_connections.acquire(&call_scopes(target, kind, MAX_IDLE_CONNECTIONS));
        permit.ok_or_else(|| self.inner.at_capacity())
    }

    /// Waits until so many units of the provider's quota may be used, within a call that was admitted already.
    pub async fn spend_units(&self, target: &Target, units: u32) -> Result<(), ConnectorError> {
        let charges = self.inner.settings.budgets_of(target).unit_charges(target, f64::from(units));
        self.inner.wait_for(&charges, target, LimitReason::UnitQuota(target.service)).await
    }

    /// Charges the bytes that a call has brought. They may exceed the budget, since they came already; the next fetches
    /// wait.
    pub async fn spend_bytes(&self, target: &Target, bytes: u64) {
        self.inner.count_usage(target, CallCount { calls: 0, bytes });
        let mut charges = self.inner.settings.budgets_of(target).charges(target, 0.0, bytes as f64);
        charges.retain(|charge| charge.amount > 0.0);
        self.inner.take(&charges, MAX_BYTE_DEBT).await;
    }

    /// Returns whether fetches wait because a byte budget is in debt.
    pub async fn owes_bytes(&self, target: &Target) -> bool {
        self.inner.owes_bytes(target).await
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
        let (now, kind) = (Instant::now(), CallKind::Poll);
        let state = self.inner.state();
        if let Some(since) = state.breakers.open_for(target, kind.part(), now) {
            return LimitReason::BreakerOpen { service: target.service, endpoint: target.endpoint.clone(), since };
        }
        if state.retry_after.wait(target.mailbox(), now).is_some() {
            return LimitReason::RetryAfter;
        }
        let refused = target.mailbox().and_then(|mailbox| state.refused_budgets.find(mailbox, now));
        refused.unwrap_or(if self.inner.is_full(kind, target) {
            LimitReason::CallsInFlight
        } else {
            LimitReason::CallBudget
        })
    }
}

impl GatewayInner {
    /// Checks whether it is of use to wait for the budgets. Takes nothing: neither a probe nor a budget must be spent
    /// on a call that is not made, and a permit that is held while a tenant waits for its own budget would be kept from
    /// other tenants.
    fn check(&self, kind: CallKind, target: &Target) -> Result<(), ConnectorError> {
        self.check_server(kind, target)?;
        if self.is_full(kind, target) {
            count_refusal(Limit::CallsInFlight);
            return Err(self.at_capacity());
        }
        Ok(())
    }

    /// Checks whether the server is to be called at all.
    fn check_server(&self, kind: CallKind, target: &Target) -> Result<(), ConnectorError> {
        let now = Instant::now();
        let mut state = self.state();
        state.evict_idle(now);
        state.breakers.check(target, kind.part(), now).map_err(|until| self.breaker_open(until, now))?;
        self.check_retry_after(&state, target, now)
    }

    fn check_retry_after(&self, state: &GatewayState, target: &Target, now: Instant) -> Result<(), ConnectorError> {
        let Some(wait) = state.retry_after.wait(target.mailbox(), now) else { return Ok(()) };
        count_refusal(Limit::RetryAfter);
        Err(ConnectorError::Throttled { retry_after: Some(wait) })
    }

    async fn wait_for_budget(&self, kind: CallKind, target: &Target) -> Result<(), ConnectorError> {
        let mut charges = self.settings.budgets_of(target).charges(target, 1.0, 0.0);
        if !matches!(kind, CallKind::Fetch(_)) {
            charges.retain(|charge| charge.measure == Measure::Calls);
        }
        let has_quota = charges.iter().any(|charge| charge.measure == Measure::Bytes);
        let reason = if has_quota { LimitReason::ByteQuota } else { LimitReason::CallBudget };
        self.wait_for(&charges, target, reason).await
    }

    async fn wait_for(&self, charges: &[Charge], target: &Target, reason: LimitReason) -> Result<(), ConnectorError> {
        match self.take(charges, self.settings.max_wait).await {
            BudgetWait::After(wait) => {
                sleep(wait).await;
                Ok(())
            }
            BudgetWait::TooLong(wait) => {
                // The queue of a budget of calls can be this long, too.
                let is_debt = reason != LimitReason::ByteQuota || self.owes_bytes(target).await;
                let reason = if is_debt { reason } else { LimitReason::CallBudget };
                count_refusal(match reason {
                    LimitReason::UnitQuota(_) => Limit::QuotaUnits,
                    LimitReason::ByteQuota => Limit::Bytes,
                    _ => Limit::Calls,
                });
                let wait = self.with_jitter(wait, self.settings.max_wait);
                if let Some(mailbox) = target.mailbox() {
                    self.state().refused_budgets.record(mailbox, reason, Instant::now() + wait);
                }
                Err(ConnectorError::RateLimited(wait))
            }
        }
    }

    async fn owes_bytes(&self, target: &Target) -> bool {
        let mut charges = self.settings.budgets_of(target).charges(target, 0.0, 0.0);
        charges.retain(|charge| charge.measure == Measure::Bytes);
        matches!(self.take(&charges, Duration::ZERO).await, BudgetWait::TooLong(_))
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
        self.check_retry_after(&state, target, now)?;
        let permit = match self.settings.most_in_flight(target.service) {
            Some(max) => {
                let permit = self.calls_in_flight.acquire(&call_scopes(target, kind, max));
                Some(permit.ok_or_else(|| self.at_capacity())?)
            }
            None => None,
        };
        let taken = state.breakers.take(target, kind.part(), now);
        Ok((permit, taken.map_err(|until| self.breaker_open(until, now))?))
    }

    fn end_call(&self, kind: CallKind, target: &Target, breaker_permit: BreakerPermit, error: Option<&ConnectorError>) {
        let now = Instant::now();
        let (word, is_failure) = outcome_label(error);
        if let Service::Provider(provider) = target.service {
            let provider = provider.as_str();
            metrics::counter!(catalogue::PROVIDER_REQUESTS, "provider" => provider, "outcome" => word).increment(1);
        }
        let mut state = self.state();
        if let (Some(ConnectorError::Throttled { retry_after: Some(wait) }), Some(mailbox)) = (error, target.mailbox())
        {
            state.retry_after.record(mailbox, *wait, now);
        }
        let Some(is_failure) = is_failure else { return };
        state.breakers.record(target, kind.part(), now, breaker_permit, error.filter(|_| is_failure));
    }

    /// Returns the error for an open breaker, with jitter: calls that are refused together do not come back together.
    fn breaker_open(&self, until: Instant, now: Instant) -> ConnectorError {
        count_refusal(Limit::CircuitBreaker);
        ConnectorError::RateLimited(self.with_jitter(until - now, PROBE_INTERVAL / 10))
    }

    /// Returns the error for as many calls in flight as are allowed.
    fn at_capacity(&self) -> ConnectorError {
        let wait = self.settings.max_wait;
        ConnectorError::RateLimited(self.with_jitter(wait, wait))
    }

    fn is_full(&self, kind: CallKind, target: &Target) -> bool {
        let max = self.settings.most_in_flight(target.service);
        max.is_some_and(|max| !self.calls_in_flight.has_free(&call_scopes(target, kind, max), 1))
    }

    fn count_usage(&self, target: &Target, count: CallCount) {
        if let Service::Provider(provider) = target.service {
            self.meter.count((target.tenant, provider), count);
        }
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
    fn evict_idle(&mut self, now: Instant) {
        if now.duration_since(self.evicted_at) < EVICT_INTERVAL {
            return;
        }
        self.evicted_at = now;
        self.retry_after.evict_past(now);
        self.refused_budgets.evict_past(now);
        self.buckets.evict_full(now);
        self.breakers.evict_idle(now);
    }
}

/// Returns `max_wait`, extended for charges above the burst: they could never be taken otherwise.
fn max_wait_for(charges: &[Charge], max_wait: Duration) -> Duration {
    let least = charges.iter().map(|charge| charge.budget.least_wait(charge.amount)).max();
    max_wait.saturating_add(least.unwrap_or_default())
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
