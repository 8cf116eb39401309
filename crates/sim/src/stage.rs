//! What every simulated provider has, whatever it speaks: letters, a clock, faults, a log of who asked what, and people who
//! click.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;

use crate::consent::Consent;
use crate::faults::{Failing, Fault, Faults};
use crate::lazily::Beginning;
use crate::letters::Letters;
use crate::mail::rng::Rng;
use crate::requests::{Counted, Entry, Requests};
use crate::scripted::Now;
use crate::spec::{Violation, Violations};

pub struct Stage<K: Failing> {
    seed: u64,
    pub(crate) letters: Arc<Letters>,
    now: Now,
    /// Where it is served, which some answers tell.
    url: RwLock<String>,
    pub(crate) faults: Faults<K>,
    pub(crate) requests: Requests<K::Route>,
    pub(crate) violations: Violations,
    consent: Mutex<Consent>,
    latency_ms: AtomicU64,
    rate: Mutex<f64>,
    changes: AtomicU64,
}

impl<K: Failing> std::fmt::Debug for Stage<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").finish_non_exhaustive()
    }
}

impl<K: Failing> Stage<K>
where
    K::Route: Ord,
{
    /// `letters`: how many different letters its mail is made of.
    pub(crate) fn new(seed: u64, letters: usize, now: Now) -> Self {
        Self {
            seed,
            letters: Arc::new(Letters::new(seed, letters)),
            now,
            url: RwLock::new("http://127.0.0.1".to_owned()),
            faults: Faults::new(seed),
            requests: Requests::default(),
            violations: Violations::default(),
            consent: Mutex::default(),
            latency_ms: AtomicU64::new(0),
            rate: Mutex::new(0.0),
            changes: AtomicU64::new(0),
        }
    }

    pub fn add_fault(&self, fault: Fault<K>) {
        self.faults.add(fault);
    }

    /// Something goes wrong once that passes by itself, by chance and soon.
    pub fn fail_once(&self) {
        self.faults.add_passing();
    }

    pub fn clear_faults(&self) {
        self.faults.clear();
    }

    /// With how often each came.
    pub fn faults(&self) -> Vec<Fault<K>> {
        self.faults.list()
    }

    /// How often something went wrong, so far.
    pub fn faults_met(&self) -> u64 {
        self.faults.met()
    }

    /// How long every answer takes at least.
    pub fn set_latency_ms(&self, ms: u64) {
        self.latency_ms.store(ms, Ordering::Relaxed);
    }

    /// As long as every answer takes at least.
    pub(crate) async fn wait(&self) {
        let latency = self.latency_ms.load(Ordering::Relaxed);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
    }

    /// Random changes each second, over all mailboxes, from now on.
    pub fn set_rate(&self, per_second: f64) {
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner) = per_second.clamp(0.0, 100_000.0);
    }

    pub fn rate(&self) -> f64 {
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Random changes so far, to mailboxes by chance.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// What people do on the page that asks for their consent.
    pub fn set_consent(&self, consent: Consent) {
        *self.consent.lock().unwrap_or_else(PoisonError::into_inner) = consent;
    }

    pub fn consent(&self) -> Consent {
        self.consent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn requests(&self) -> Counted<K::Route> {
        self.requests.counted()
    }

    /// The latest, oldest first.
    pub fn request_log(&self) -> Vec<Entry<K::Route>> {
        self.requests.latest()
    }

    pub fn forget_requests(&self) {
        self.requests.clear();
    }

    /// What did not agree with the provider's documents.
    pub fn violations(&self) -> Vec<Violation> {
        self.violations.list()
    }

    pub fn forget_violations(&self) {
        self.violations.clear();
    }

    pub fn url(&self) -> String {
        self.url.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_url(&self, url: String) {
        *self.url.write().unwrap_or_else(PoisonError::into_inner) = url;
    }

    /// What a mailbox begins with. `seed`: nothing is from the world's and the address.
    pub(crate) fn beginning(&self, seed: Option<u64>, address: &str, messages: usize) -> Beginning {
        let own = address.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Beginning {
            seed: Rng::new(seed.unwrap_or(own)).next_u64(),
            messages,
            at: self.now(),
            letters: Arc::clone(&self.letters),
        }
    }

    /// To the millisecond, as providers tell it.
    pub(crate) fn now(&self) -> Timestamp {
        let now = (self.now)();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.now)().as_millisecond()
    }
}
