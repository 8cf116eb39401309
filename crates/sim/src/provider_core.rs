//! The state that all simulated providers share: letters, clock, faults, request log, violations, consent, latency.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;

use crate::consent::Consent;
use crate::faults::{FaultInjector, FaultKind, FaultRule};
use crate::lazy_account::AccountSeed;
use crate::letter_pool::LetterPool;
use crate::mail::rng::Rng;
use crate::request_log::{RequestLog, RequestLogEntry, RequestTotals};
use crate::spec::{Violation, Violations};

/// Where the time of new mail comes from.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The state that does not depend on mailboxes.
pub struct ProviderCore<K: FaultKind> {
    seed: u64,
    pub(crate) letters: Arc<LetterPool>,
    now: Now,
    /// The server's URL, which some responses contain.
    url: RwLock<String>,
    pub(crate) faults: FaultInjector<K>,
    pub(crate) requests: RequestLog<K::Route>,
    pub(crate) violations: Violations,
    consent: Mutex<Consent>,
    latency_ms: AtomicU64,
    rate: Mutex<f64>,
    changes: AtomicU64,
}

impl<K: FaultKind> std::fmt::Debug for ProviderCore<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderCore").finish_non_exhaustive()
    }
}

impl<K: FaultKind> ProviderCore<K>
where
    K::Route: Ord,
{
    pub(crate) fn new(seed: u64, letters: usize, now: Now) -> Self {
        Self {
            seed,
            letters: Arc::new(LetterPool::new(seed, letters)),
            now,
            url: RwLock::new("http://127.0.0.1".to_owned()),
            faults: FaultInjector::new(seed),
            requests: RequestLog::default(),
            violations: Violations::default(),
            consent: Mutex::default(),
            latency_ms: AtomicU64::new(0),
            rate: Mutex::new(0.0),
            changes: AtomicU64::new(0),
        }
    }

    pub fn add_fault(&self, fault: FaultRule<K>) {
        self.faults.add(fault);
    }

    /// Injects a random transient fault that fires once.
    pub fn inject_transient_fault(&self) {
        self.faults.add_transient();
    }

    pub fn clear_faults(&self) {
        self.faults.clear();
    }

    /// Lists the fault rules with their counts.
    pub fn faults(&self) -> Vec<FaultRule<K>> {
        self.faults.list()
    }

    /// Returns how many times faults have fired.
    pub fn faults_fired(&self) -> u64 {
        self.faults.fired_total()
    }

    /// Sets the minimum latency of every response.
    pub fn set_latency_ms(&self, ms: u64) {
        self.latency_ms.store(ms, Ordering::Relaxed);
    }

    /// Waits for the minimum latency.
    pub(crate) async fn wait(&self) {
        let latency = self.latency_ms.load(Ordering::Relaxed);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
    }

    /// Sets the number of random changes per second, over all mailboxes.
    pub fn set_rate(&self, per_second: f64) {
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner) = per_second.clamp(0.0, 100_000.0);
    }

    pub fn rate(&self) -> f64 {
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of random changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Sets the simulated person's behaviour on the consent page.
    pub fn set_consent(&self, consent: Consent) {
        *self.consent.lock().unwrap_or_else(PoisonError::into_inner) = consent;
    }

    pub fn consent(&self) -> Consent {
        self.consent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn requests(&self) -> RequestTotals<K::Route> {
        self.requests.counted()
    }

    /// Returns the latest requests, oldest first.
    pub fn request_log(&self) -> Vec<RequestLogEntry<K::Route>> {
        self.requests.latest()
    }

    pub fn clear_requests(&self) {
        self.requests.clear();
    }

    /// Lists requests and responses that did not match the API description.
    pub fn violations(&self) -> Vec<Violation> {
        self.violations.list()
    }

    pub fn clear_violations(&self) {
        self.violations.clear();
    }

    pub fn url(&self) -> String {
        self.url.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_url(&self, url: String) {
        *self.url.write().unwrap_or_else(PoisonError::into_inner) = url;
    }

    /// Returns the seed of an account. `None`: derived from the world's seed and the address.
    pub(crate) fn account_seed(&self, seed: Option<u64>, address: &str, messages: usize) -> AccountSeed {
        let own = address.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        AccountSeed {
            seed: Rng::new(seed.unwrap_or(own)).next_u64(),
            messages,
            at: self.now(),
            letters: Arc::clone(&self.letters),
        }
    }

    /// Returns the current time in whole milliseconds, as providers have it.
    pub(crate) fn now(&self) -> Timestamp {
        let now = (self.now)();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.now)().as_millisecond()
    }
}
