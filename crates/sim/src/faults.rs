//! Fault injection: rules that make a simulated provider misbehave, and when each rule fires.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::mail::rng::Rng;

/// Declares a provider's routes as an enum, each with its public name.
macro_rules! routes {
    ($(#[$doc:meta])* $routes:ident { $($route:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $routes {
            $(#[serde(rename = $name)] $route,)*
        }

        impl $routes {
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$route),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$route => $name,)*
                }
            }
        }
    };
}
pub(crate) use routes;

/// Implements the effects of the faults that all HTTP providers have, inside of `impl FaultKind`.
macro_rules! http_fault_effects {
    () => {
        fn damage(&self) -> Option<crate::faults::ResponseDamage> {
            use crate::faults::ResponseDamage;
            match self {
                Self::CutBody => Some(ResponseDamage::CutBody),
                Self::Slow { bytes, ms } => Some(ResponseDamage::Slow { bytes: *bytes, ms: *ms }),
                Self::TruncatedJson => Some(ResponseDamage::TruncatedJson),
                Self::UnknownFields => Some(ResponseDamage::UnknownFields),
                Self::ChangedType => Some(ResponseDamage::ChangedType),
                _ => None,
            }
        }

        fn push_fault(&self) -> Option<crate::faults::PushFault> {
            use crate::faults::PushFault;
            match self {
                Self::Lost => Some(PushFault::Lost),
                Self::Duplicated { times } => Some(PushFault::Duplicated { times: *times }),
                Self::Delayed { ms } => Some(PushFault::Delayed { ms: *ms }),
                _ => None,
            }
        }
    };
}
pub(crate) use http_fault_effects;

/// The kinds of fault that one provider can be told to commit.
pub trait FaultKind: Clone {
    type Route: std::fmt::Debug + Copy + Ord;

    /// Returns whether the fault replaces the response, so that no further fault can apply to it.
    fn replaces_response(&self) -> bool;

    /// Returns whether the fault can occur on the route.
    fn applies_to(&self, route: Self::Route) -> bool;

    /// Returns the damage to the response's body, if that is all the fault does.
    fn damage(&self) -> Option<ResponseDamage> {
        None
    }

    /// Returns what the fault does to a push, if it concerns pushes.
    fn push_fault(&self) -> Option<PushFault> {
        None
    }

    /// Lists the faults that are over when the request is repeated.
    fn transient() -> Vec<Self> {
        Vec::new()
    }
}

/// The default duration of a fault that hangs.
pub(crate) fn default_hang_ms() -> u64 {
    3_600_000
}

/// The default status of an OAuth error.
pub(crate) fn default_oauth_status() -> u16 {
    400
}

/// How often a duplicated push is repeated by default.
pub(crate) fn default_repeats() -> u32 {
    1
}

/// Returns whether the fault can occur on the route.
pub fn can_happen<K: FaultKind>(kind: &K, route: K::Route) -> bool {
    kind.applies_to(route)
}

/// Damage that any response can take on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseDamage {
    /// The connection closes after half of the body.
    CutBody,
    /// The body is sent in chunks of `bytes`, with a pause of `ms` before each.
    Slow { bytes: usize, ms: u64 },
    /// The response is complete, but holds only half of the JSON.
    TruncatedJson,
    /// Every object has a field that no document names.
    UnknownFields,
    /// One member has a value of another type.
    ChangedType,
}

/// What a fault does to a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushFault {
    Lost,
    /// Sent `times` more.
    Duplicated {
        times: u32,
    },
    Delayed {
        ms: u64,
    },
}

/// A fault and when it fires: on every matching request, unless a probability or a count limits it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "K: Serialize, K::Route: Serialize",
    deserialize = "K: Deserialize<'de>, K::Route: Deserialize<'de>"
))]
pub struct FaultRule<K: FaultKind> {
    #[serde(flatten)]
    pub kind: K,
    /// Between 0 and 1.
    pub probability: Option<f64>,
    /// How many times the fault fires before it is used up.
    pub count: Option<u64>,
    /// The address of the only account concerned. `None`: all accounts.
    pub account: Option<String>,
    pub route: Option<K::Route>,
    /// How many times the fault has fired.
    #[serde(default)]
    pub fired: u64,
}

impl<K: FaultKind> FaultRule<K> {
    pub fn always(kind: K) -> Self {
        Self { kind, probability: None, count: None, account: None, route: None, fired: 0 }
    }

    pub fn once(kind: K) -> Self {
        Self { count: Some(1), ..Self::always(kind) }
    }

    pub fn sometimes(kind: K, probability: f64) -> Self {
        Self { probability: Some(probability), ..Self::always(kind) }
    }

    fn applies_to(&self, account: &str, route: K::Route) -> bool {
        self.kind.applies_to(route)
            && self.route.is_none_or(|only| only == route)
            && self.account.as_deref().is_none_or(|only| only.eq_ignore_ascii_case(account))
            && self.count.is_none_or(|count| self.fired < count)
    }
}

#[derive(Debug)]
pub(crate) struct FaultInjector<K: FaultKind> {
    /// The number of rules, read first: without rules a request takes no lock.
    rule_count: AtomicUsize,
    all: RwLock<Vec<FaultRule<K>>>,
    /// How many times any rule has fired, those that are used up included.
    fired_total: AtomicU64,
    rng: Mutex<Rng>,
}

impl<K: FaultKind> FaultInjector<K> {
    pub fn new(seed: u64) -> Self {
        Self {
            rule_count: AtomicUsize::new(0),
            all: RwLock::new(Vec::new()),
            fired_total: AtomicU64::new(0),
            rng: Mutex::new(Rng::new(seed)),
        }
    }

    pub fn add(&self, fault: FaultRule<K>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.push(fault);
        self.rule_count.store(all.len(), Ordering::Release);
    }

    /// Adds a random transient fault that fires once, and drops rules that are used up.
    pub fn add_transient(&self) {
        let kinds = K::transient();
        if kinds.is_empty() {
            return;
        }
        let kind = self.rng.lock().unwrap_or_else(PoisonError::into_inner).pick(&kinds).clone();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|fault| fault.count.is_none_or(|count| fault.fired < count));
        all.push(FaultRule::once(kind));
        self.rule_count.store(all.len(), Ordering::Release);
    }

    pub fn clear(&self) {
        self.all.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.rule_count.store(0, Ordering::Release);
    }

    pub fn list(&self) -> Vec<FaultRule<K>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn fired_total(&self) -> u64 {
        self.fired_total.load(Ordering::Relaxed)
    }

    /// Returns the faults that fire for this request.
    pub fn draw(&self, account: &str, route: K::Route) -> Vec<K> {
        let mut drawn = Vec::new();
        if self.rule_count.load(Ordering::Acquire) == 0 {
            return drawn;
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        for fault in all.iter_mut().filter(|fault| fault.applies_to(account, route)) {
            if fault.probability.is_some_and(|probability| !self.is_drawn(probability)) {
                continue;
            }
            fault.fired += 1;
            self.fired_total.fetch_add(1, Ordering::Relaxed);
            drawn.push(fault.kind.clone());
            if fault.kind.replaces_response() {
                break;
            }
        }
        drawn
    }

    fn is_drawn(&self, probability: f64) -> bool {
        let drawn = self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(1_000_000);
        (drawn as f64) < probability * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::google::{GoogleFaultKind, GoogleRoute};

    #[test]
    fn transient_fault_fires_once_and_is_dropped() {
        let faults = FaultInjector::<GoogleFaultKind>::new(1);
        let lasting =
            FaultRule { account: Some("bob@x.test".to_owned()), ..FaultRule::always(GoogleFaultKind::DailyLimit) };
        faults.add(lasting.clone());
        let mut fired_total = 0;

        for _ in 0..200 {
            faults.add_transient();
            fired_total += GoogleRoute::ALL.iter().map(|route| faults.draw("ann@x.test", *route).len()).sum::<usize>();
        }

        assert_eq!((fired_total, faults.fired_total()), (200, 200));
        let left = faults.list();
        assert_eq!((left.len(), &left[0]), (2, &lasting), "{left:?}");
    }
}
