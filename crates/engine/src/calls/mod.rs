//! The gateway for all calls to providers. It applies their Retry-After, the budgets of calls, bytes and units, the
//! limit of calls in flight, the circuit breaker and a deadline.

pub mod breaker;
pub mod budget;
mod call_limiter;
mod daily_quota;
mod retry_after;
pub mod sliding_window;
pub mod usage_meter;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::connector::ConnectorFuture;
use domain::metrics as catalogue;
use domain::{ConnectorError, Lane, Provider, Sha256, TenantId, redact_for_log};
use jobs::{RandomSource, SystemRandom};
use store::sql::mailboxes::Mailbox;
use store::{Store, StoreError};
use tokio::time::{Instant, sleep, timeout};

use breaker::{BreakerPermit, CircuitBreaker, PROBE_INTERVAL};
use budget::{Budget, BudgetOwner, BudgetWait, Charge, Measure, TokenBuckets};
use call_limiter::{CallLimiter, CallPermit};
pub use daily_quota::bytes_per_day;
use retry_after::RetryAfterTable;
use usage_meter::UsageMeter;

use crate::coordination::Redis;

/// The longest debt of bytes that is booked: any, since the bytes have come.
const MAX_BYTE_DEBT: Duration = Duration::from_secs(365 * 86_400);

/// How often idle breakers and full buckets are dropped.
const EVICT_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct CallSettings {
    /// The budgets of providers without an entry in `provider_budgets`.
    pub default_budgets: CallBudgets,
    pub provider_budgets: HashMap<Provider, CallBudgets>,
    /// The quota of each IMAP mailbox without one of its own; 0: unlimited.
    pub imap_bytes_per_day: Option<u64>,
    /// Calls to one provider that are in flight at the same time: a slow or dead provider must not occupy the workers
    /// that could call another. Fetches are at most four fifths of them, backfill three.
    pub max_in_flight: Option<usize>,
    /// A job that would wait longer for a budget is rescheduled instead, so that others can run.
    pub max_wait: Duration,
    /// The deadline of a call. Connectors have timeouts of their own; this ends a call that they overlooked.
    pub deadline: Duration,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            default_budgets: CallBudgets::calls_per_second(150.0),
            provider_budgets: HashMap::new(),
            imap_bytes_per_day: None,
            max_in_flight: None,
            max_wait: Duration::from_secs(5),
            deadline: Duration::from_secs(600),
        }
    }
}

impl CallSettings {
    pub fn budgets_of_provider(&self, provider: Provider) -> CallBudgets {
        *self.provider_budgets.get(&provider).unwrap_or(&self.default_budgets)
    }

    /// Returns the budgets of a mailbox, with its own byte quota.
    pub fn budgets_of_mailbox(&self, mailbox: &Mailbox) -> CallBudgets {
        let mut budgets = self.budgets_of_provider(mailbox.provider);
        if let Some(bytes) = bytes_per_day(mailbox, self.imap_bytes_per_day) {
            budgets.mailbox.bytes = (bytes > 0).then(|| Budget::per_day(bytes as f64));
        }
        budgets
    }
}

/// The budgets of calls to a provider: of our app as a whole, of each tenant, of each credential and of each mailbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallBudgets {
    pub app: Allowance,
    pub tenant: Allowance,
    pub credential: Allowance,
    pub mailbox: Allowance,
}

/// The budgets of one owner; `None`: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Allowance {
    pub calls: Option<Budget>,
    pub bytes: Option<Budget>,
    pub units: Option<Budget>,
}

impl CallBudgets {
    pub fn calls_per_second(app: f64) -> Self {
        let app = Allowance { calls: Some(Budget::per_second(app)), ..Allowance::default() };
        Self { app, ..Self::default() }
    }

    /// Adds budgets of units, for our app as a whole and for each mailbox.
    pub fn with_units(mut self, app: Option<Budget>, mailbox: Option<Budget>) -> Self {
        self.app.units = app;
        self.mailbox.units = mailbox;
        self
    }

    /// Returns what a request takes that costs units.
    fn unit_charges(&self, mailbox: &Mailbox, amount: f64) -> Vec<Charge> {
        // A provider does not know how many tenants have an account.
        let account = Sha256::of(format!("{} {}", mailbox.provider.as_str(), mailbox.account()).as_bytes());
        let owners = [(BudgetOwner::App(mailbox.provider), self.app), (BudgetOwner::Account(account), self.mailbox)];
        let charges = owners.into_iter().filter_map(|(owner, allowance)| {
            let budget = allowance.units?;
            Some(Charge { owner, measure: Measure::Units, budget, amount })
        });
        charges.collect()
    }

    /// Returns what a call takes from each budget there is.
    fn charges(&self, mailbox: &Mailbox, calls: f64, bytes: f64) -> Vec<Charge> {
        let owners = [
            (BudgetOwner::App(mailbox.provider), self.app),
            (BudgetOwner::Tenant(mailbox.tenant_id, mailbox.provider), self.tenant),
            (credential(mailbox), self.credential),
            (BudgetOwner::Mailbox(mailbox.id), self.mailbox),
        ];
        let mut charges = Vec::new();
        for (owner, allowance) in owners {
            let budgets = [(Measure::Calls, allowance.calls, calls), (Measure::Bytes, allowance.bytes, bytes)];
            charges.extend(budgets.into_iter().filter_map(|(measure, budget, amount)| {
                budget.map(|budget| Charge { owner, measure, budget, amount })
            }));
        }
        charges
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
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
pub struct Calls {
    inner: Arc<CallsInner>,
}

#[derive(Debug)]
struct CallsInner {
    settings: CallSettings,
    random: Arc<dyn RandomSource>,
    /// Shares the budgets with other processes.
    redis: Option<Redis>,
    /// The processes that share the budgets while Redis is unavailable or absent.
    instances: AtomicUsize,
    state: Mutex<CallsState>,
    meter: UsageMeter,
}

#[derive(Debug)]
struct CallsState {
    breakers: HashMap<(TenantId, Provider, ProviderService), CircuitBreaker>,
    retry_after: RetryAfterTable,
    buckets: TokenBuckets,
    limiters: HashMap<Provider, CallLimiter>,
    evicted_at: Instant,
}

impl Default for Calls {
    fn default() -> Self {
        Self::new(CallSettings::default(), Arc::new(SystemRandom), None)
    }
}

impl Calls {
    pub fn new(settings: CallSettings, random: Arc<dyn RandomSource>, redis: Option<Redis>) -> Self {
        let state = CallsState {
            breakers: HashMap::new(),
            retry_after: RetryAfterTable::default(),
            buckets: TokenBuckets::default(),
            limiters: HashMap::new(),
            evicted_at: Instant::now(),
        };
        let (instances, state, meter) = (AtomicUsize::new(1), Mutex::new(state), UsageMeter::default());
        let inner = CallsInner { settings, random, redis, instances, state, meter };
        Self { inner: Arc::new(inner) }
    }

    /// Sets how many processes make calls, as far as is known.
    pub fn set_instances(&self, count: usize) {
        self.inner.instances.store(count.max(1), Ordering::Relaxed);
    }

    /// Makes a call when the budgets allow it, or returns at once for how long they do not.
    pub async fn make<T>(&self, mailbox: &Mailbox, call: ConnectorFuture<'_, T>) -> Result<T, ConnectorError> {
        self.make_kind(CallKind::Poll, mailbox, call).await
    }

    /// Makes a call that brings messages: it also waits while a byte budget is in debt. The low lane is backfill.
    pub async fn make_fetch<T>(
        &self,
        mailbox: &Mailbox,
        lane: Lane,
        call: ConnectorFuture<'_, T>,
    ) -> Result<T, ConnectorError> {
        self.make_kind(CallKind::Fetch(lane), mailbox, call).await
    }

    /// Makes a call to a tenant's directory.
    pub async fn make_directory_call<T>(
        &self,
        counted_as: &Mailbox,
        call: ConnectorFuture<'_, T>,
    ) -> Result<T, ConnectorError> {
        self.make_kind(CallKind::Directory, counted_as, call).await
    }

    async fn make_kind<T>(
        &self,
        kind: CallKind,
        mailbox: &Mailbox,
        call: ConnectorFuture<'_, T>,
    ) -> Result<T, ConnectorError> {
        self.inner.check(kind, mailbox)?;
        self.inner.wait_for_budget(kind, mailbox).await?;
        let (_permit, breaker_permit) = self.inner.start_call(kind, mailbox)?;
        self.inner.meter.count(usage_key(mailbox), 1, 0);
        let deadline = self.inner.settings.deadline;
        let outcome = match timeout(deadline, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ConnectorError::Unavailable(format!("no answer within {} s", deadline.as_secs()))),
        };
        self.inner.end_call(kind, mailbox, breaker_permit, outcome.as_ref().err());
        outcome
    }

    /// Waits until so many units of the provider's quota may be used, within a call that was admitted already.
    pub async fn spend_units(&self, mailbox: &Mailbox, units: u32) -> Result<(), ConnectorError> {
        let charges = self.inner.budgets(mailbox).unit_charges(mailbox, f64::from(units));
        self.inner.wait_for(&charges).await
    }

    /// Charges the bytes that a call has brought. They may exceed the budget, since they came already; the next fetches
    /// wait.
    pub async fn spend_bytes(&self, mailbox: &Mailbox, bytes: u64) {
        self.inner.meter.count(usage_key(mailbox), 0, bytes);
        let mut charges = self.inner.budgets(mailbox).charges(mailbox, 0.0, bytes as f64);
        charges.retain(|charge| charge.amount > 0.0);
        self.inner.take(&charges, MAX_BYTE_DEBT).await;
    }

    /// Returns whether fetches wait because a byte budget is in debt.
    pub async fn owes_bytes(&self, mailbox: &Mailbox) -> bool {
        let mut charges = self.inner.budgets(mailbox).charges(mailbox, 0.0, 0.0);
        charges.retain(|charge| charge.measure == Measure::Bytes);
        matches!(self.inner.take(&charges, Duration::ZERO).await, BudgetWait::TooLong(_))
    }

    /// Writes the usage since the last time, for people.
    pub async fn write_usage(&self, store: &Store) -> Result<(), StoreError> {
        self.inner.meter.write(store).await
    }

    /// Returns why calls for a mailbox have to wait, in words for people.
    pub fn wait_reason(&self, mailbox: &Mailbox) -> &'static str {
        if self.inner.state().retry_after.check(mailbox.id, Instant::now()).is_err() {
            return "the provider asked to wait";
        }
        let charges = self.inner.budgets(mailbox).charges(mailbox, 1.0, 0.0);
        if charges.iter().any(|charge| charge.measure == Measure::Bytes) {
            // A debt: budgets of calls never have one.
            "the mailbox's daily byte quota is used up"
        } else {
            "the call budget is used up"
        }
    }
}

impl CallsInner {
    fn budgets(&self, mailbox: &Mailbox) -> CallBudgets {
        self.settings.budgets_of_mailbox(mailbox)
    }

    /// Checks whether it is of use to wait for the budgets. Takes nothing: neither a probe nor a budget must be spent
    /// on a call that is not made, and a permit that is held while a tenant waits for its own budget would be kept from
    /// other tenants.
    fn check(&self, kind: CallKind, mailbox: &Mailbox) -> Result<(), ConnectorError> {
        let now = Instant::now();
        let mut state = self.state();
        state.evict_idle(now);
        if let Some(breaker) = state.breakers.get(&breaker_key(kind, mailbox)) {
            breaker.check(now).map_err(|until| self.breaker_open(until, now))?;
        }
        state.retry_after.check(mailbox.id, now)?;
        match state.limiter(mailbox.provider, &self.settings) {
            Some(limiter) if limiter.acquire(kind).is_none() => Err(self.at_capacity()),
            _ => Ok(()),
        }
    }

    async fn wait_for_budget(&self, kind: CallKind, mailbox: &Mailbox) -> Result<(), ConnectorError> {
        let mut charges = self.budgets(mailbox).charges(mailbox, 1.0, 0.0);
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
        mailbox: &Mailbox,
    ) -> Result<(Option<CallPermit>, BreakerPermit), ConnectorError> {
        let now = Instant::now();
        let mut state = self.state();
        // The provider may have asked others to wait meanwhile.
        state.retry_after.check(mailbox.id, now)?;
        let limiter = state.limiter(mailbox.provider, &self.settings);
        let permit = limiter.map(|limiter| limiter.acquire(kind).ok_or_else(|| self.at_capacity())).transpose()?;
        let taken = state.breaker(kind, mailbox, now).take(now);
        Ok((permit, taken.map_err(|until| self.breaker_open(until, now))?))
    }

    fn end_call(
        &self,
        kind: CallKind,
        mailbox: &Mailbox,
        breaker_permit: BreakerPermit,
        error: Option<&ConnectorError>,
    ) {
        let now = Instant::now();
        let provider = mailbox.provider.as_str();
        let (word, is_failure) = outcome_label(error);
        metrics::counter!(catalogue::PROVIDER_REQUESTS, "provider" => provider, "outcome" => word).increment(1);
        let mut state = self.state();
        if let Some(ConnectorError::Throttled { retry_after: Some(wait) }) = error {
            state.retry_after.record(mailbox.id, *wait, now);
        }
        let Some(is_failure) = is_failure else { return };
        let breaker = state.breaker(kind, mailbox, now);
        let before = breaker.state();
        breaker.record(now, breaker_permit, is_failure);
        let after = breaker.state();
        if before != after {
            let service = kind.service().as_str();
            let error = error.map(redact_for_log).unwrap_or_default();
            if after == "open" {
                tracing::warn!(tenant.id = %mailbox.tenant_id, provider, service, error, "circuit breaker opened");
            } else {
                tracing::info!(tenant.id = %mailbox.tenant_id, provider, service, state = after, "circuit breaker state changed");
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

    fn state(&self) -> std::sync::MutexGuard<'_, CallsState> {
        // No statement leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallsState {
    fn breaker(&mut self, kind: CallKind, mailbox: &Mailbox, now: Instant) -> &mut CircuitBreaker {
        self.breakers.entry(breaker_key(kind, mailbox)).or_insert_with(|| {
            let breaker = CircuitBreaker::new(now);
            count_breakers(mailbox.provider.as_str(), breaker.state(), 1.0);
            breaker
        })
    }

    /// Returns the limiter of a provider, or `None` if calls in flight are not limited.
    fn limiter(&mut self, provider: Provider, settings: &CallSettings) -> Option<&CallLimiter> {
        let max = settings.max_in_flight?;
        Some(self.limiters.entry(provider).or_insert_with(|| CallLimiter::new(max)))
    }

    fn evict_idle(&mut self, now: Instant) {
        if now.duration_since(self.evicted_at) < EVICT_INTERVAL {
            return;
        }
        self.evicted_at = now;
        self.retry_after.evict_past(now);
        self.buckets.evict_full(now);
        self.breakers.retain(|(_, provider, _), breaker| {
            let is_idle = breaker.is_idle(now);
            if is_idle {
                count_breakers(provider.as_str(), breaker.state(), -1.0);
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

fn usage_key(mailbox: &Mailbox) -> (TenantId, Provider) {
    (mailbox.tenant_id, mailbox.provider)
}

fn breaker_key(kind: CallKind, mailbox: &Mailbox) -> (TenantId, Provider, ProviderService) {
    (mailbox.tenant_id, mailbox.provider, kind.service())
}

fn credential(mailbox: &Mailbox) -> BudgetOwner {
    let own = mailbox.secret_ref.as_ref().and_then(|secret| secret.parse().ok());
    BudgetOwner::Credential(mailbox.tenant_id, mailbox.provider, own)
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
mod tests;
