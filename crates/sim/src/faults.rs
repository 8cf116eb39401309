//! What a provider does wrong when it is told to: when a fault comes, whatever it is.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::mail::rng::Rng;

/// A provider's routes, each with its name.
macro_rules! routes {
    ($($route:ident = $name:literal,)*) => {
        /// What is asked, by the name that faults and the log of requests have for it.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum Route {
            $(#[serde(rename = $name)] $route,)*
        }

        impl Route {
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

/// What can go wrong at one provider.
pub trait Failing: Clone {
    type Route: std::fmt::Debug + Copy + Ord;

    /// Whether it comes in place of an answer, so that nothing else can go wrong with it.
    fn is_answer(&self) -> bool;

    /// Whether this can happen there at all.
    fn concerns(&self, route: Self::Route) -> bool;

    /// What it does to an answer on its way, if that is all it does.
    fn damage(&self) -> Option<Damage> {
        None
    }

    /// Those that pass by themselves: whoever tries again is none the worse for having met one.
    fn passing() -> Vec<Self> {
        Vec::new()
    }
}

/// What can happen to any answer on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The connection ends in the middle.
    CutBody,
    /// So many bytes, then so many milliseconds of nothing, and so on.
    Slow { bytes: usize, ms: u64 },
    /// A whole answer with half the JSON in it.
    TruncatedJson,
}

/// A fault and when it comes: always, unless a probability or a count says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "K: Serialize, K::Route: Serialize",
    deserialize = "K: Deserialize<'de>, K::Route: Deserialize<'de>"
))]
pub struct Fault<K: Failing> {
    #[serde(flatten)]
    pub kind: K,
    /// Between 0 and 1.
    pub probability: Option<f64>,
    /// So many times, then no more.
    pub count: Option<u64>,
    /// An address; nothing: all of them.
    pub account: Option<String>,
    pub route: Option<K::Route>,
    /// How often it came.
    #[serde(default)]
    pub fired: u64,
}

impl<K: Failing> Fault<K> {
    pub fn always(kind: K) -> Self {
        Self { kind, probability: None, count: None, account: None, route: None, fired: 0 }
    }

    pub fn once(kind: K) -> Self {
        Self { count: Some(1), ..Self::always(kind) }
    }

    pub fn sometimes(kind: K, probability: f64) -> Self {
        Self { probability: Some(probability), ..Self::always(kind) }
    }

    fn concerns(&self, account: &str, route: K::Route) -> bool {
        self.kind.concerns(route)
            && self.route.is_none_or(|only| only == route)
            && self.account.as_deref().is_none_or(|only| only.eq_ignore_ascii_case(account))
            && self.count.is_none_or(|count| self.fired < count)
    }
}

#[derive(Debug)]
pub(crate) struct Faults<K: Failing> {
    /// Read before anything else: without faults a request takes no lock here.
    how_many: AtomicUsize,
    all: RwLock<Vec<Fault<K>>>,
    /// How often one came, of those that are over as well.
    met: AtomicU64,
    dice: Mutex<Rng>,
}

impl<K: Failing> Faults<K> {
    pub fn new(seed: u64) -> Self {
        Self {
            how_many: AtomicUsize::new(0),
            all: RwLock::new(Vec::new()),
            met: AtomicU64::new(0),
            dice: Mutex::new(Rng::new(seed)),
        }
    }

    pub fn add(&self, fault: Fault<K>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.push(fault);
        self.how_many.store(all.len(), Ordering::Release);
    }

    /// One that passes by itself, by chance. Those like it that have come are over.
    pub fn add_passing(&self) {
        let kinds = K::passing();
        if kinds.is_empty() {
            return;
        }
        let kind = self.dice.lock().unwrap_or_else(PoisonError::into_inner).pick(&kinds).clone();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|fault| fault.count.is_none_or(|count| fault.fired < count));
        all.push(Fault::once(kind));
        self.how_many.store(all.len(), Ordering::Release);
    }

    pub fn clear(&self) {
        self.all.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.how_many.store(0, Ordering::Release);
    }

    pub fn list(&self) -> Vec<Fault<K>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// What goes wrong this time.
    pub fn draw(&self, account: &str, route: K::Route) -> Vec<K> {
        let mut drawn = Vec::new();
        if self.how_many.load(Ordering::Acquire) == 0 {
            return drawn;
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        for fault in all.iter_mut().filter(|fault| fault.concerns(account, route)) {
            if fault.probability.is_some_and(|probability| !self.comes(probability)) {
                continue;
            }
            fault.fired += 1;
            self.met.fetch_add(1, Ordering::Relaxed);
            drawn.push(fault.kind.clone());
            if fault.kind.is_answer() {
                break;
            }
        }
        drawn
    }

    fn comes(&self, probability: f64) -> bool {
        let drawn = self.dice.lock().unwrap_or_else(PoisonError::into_inner).below(1_000_000);
        (drawn as f64) < probability * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::google::{Kind, Route};

    #[test]
    fn what_passes_by_itself_comes_once_and_leaves_nothing_behind() {
        let faults = Faults::<Kind>::new(1);
        let lasting = Fault { account: Some("bob@x.test".to_owned()), ..Fault::always(Kind::DailyLimit) };
        faults.add(lasting.clone());
        let mut met = 0;

        for _ in 0..200 {
            faults.add_passing();
            met += Route::ALL.iter().map(|route| faults.draw("ann@x.test", *route).len()).sum::<usize>();
        }

        assert_eq!((met, faults.met()), (200, 200));
        let left = faults.list();
        assert_eq!((left.len(), &left[0]), (2, &lasting), "{left:?}");
    }
}
