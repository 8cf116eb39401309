//! Permits: so many at once, of each scope that something belongs to. A limiter is a table of counts, with a queue for
//! whatever waits for a permit.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::{Limit, count_in_use, count_refusal};

/// The permits in use, by scope. Scopes without any are absent, so idle ones take no memory. Cheap to clone; clones share
/// the counts.
#[derive(Debug)]
pub struct PermitTable<S: Clone + Eq + Hash> {
    limit: Limit,
    usage: Arc<Mutex<HashMap<S, ScopeUsage<S>>>>,
}

/// The permits of one scope in use, and those who wait for one, the first to come first.
#[derive(Debug)]
struct ScopeUsage<S: Clone + Eq + Hash> {
    in_use: usize,
    waiting: VecDeque<PermitWaiter<S>>,
}

#[derive(Debug)]
struct PermitWaiter<S: Clone + Eq + Hash> {
    scopes: Vec<(S, usize)>,
    sender: oneshot::Sender<Permit<S>>,
}

/// One permit or several, each of one scope or several, until it is dropped.
#[derive(Debug)]
pub struct Permit<S: Clone + Eq + Hash> {
    table: PermitTable<S>,
    scopes: Vec<S>,
    count: usize,
}

impl<S: Clone + Eq + Hash> Clone for PermitTable<S> {
    fn clone(&self) -> Self {
        Self { limit: self.limit, usage: self.usage.clone() }
    }
}

impl<S: Clone + Eq + Hash> Default for ScopeUsage<S> {
    fn default() -> Self {
        Self { in_use: 0, waiting: VecDeque::new() }
    }
}

impl<S: Clone + Eq + Hash> PermitTable<S> {
    pub fn new(limit: Limit) -> Self {
        Self { limit, usage: Arc::default() }
    }

    /// Takes a permit of each scope, given with the most that it may have. Returns `None` if one of them has that many.
    pub fn acquire(&self, scopes: &[(S, usize)]) -> Option<Permit<S>> {
        self.acquire_many(scopes, 1)
    }

    /// Takes `count` permits of each scope, or none.
    pub fn acquire_many(&self, scopes: &[(S, usize)], count: usize) -> Option<Permit<S>> {
        let permit = self.try_acquire(scopes, count);
        if permit.is_none() {
            count_refusal(self.limit);
        }
        permit
    }

    /// Waits for a permit of each scope. What waits for the same first scope is served in the order in which it came,
    /// but passes what waits for another of its scopes; so scopes that are shared come first, the widest of them first.
    pub async fn wait(&self, scopes: &[(S, usize)]) -> Permit<S> {
        let granted = {
            let mut usage = self.usage();
            if has_free(&usage, scopes, 1) {
                return self.take(&mut usage, scopes, 1);
            }
            let (sender, granted) = oneshot::channel();
            let waiting = &mut usage.entry(scopes[0].0.clone()).or_default().waiting;
            waiting.retain(|waiter| !waiter.sender.is_closed());
            waiting.push_back(PermitWaiter { scopes: scopes.to_vec(), sender });
            granted
        };
        granted.await.expect("only a waiter that is gone is dropped without a permit")
    }

    /// Waits like [`PermitTable::wait`], but no longer than `max_wait`; then it returns `None`.
    pub async fn wait_at_most(&self, max_wait: Duration, scopes: &[(S, usize)]) -> Option<Permit<S>> {
        let permit = timeout(max_wait, self.wait(scopes)).await.ok();
        if permit.is_none() {
            count_refusal(self.limit);
        }
        permit
    }

    /// Returns whether there are `count` permits of each scope.
    pub fn has_free(&self, scopes: &[(S, usize)], count: usize) -> bool {
        has_free(&self.usage(), scopes, count)
    }

    /// Returns the number of scopes with permits in use.
    pub fn scopes_in_use(&self) -> usize {
        self.usage().len()
    }

    /// Takes permits like [`PermitTable::acquire_many`], for something that waits elsewhere if there are none.
    pub(crate) fn try_acquire(&self, scopes: &[(S, usize)], count: usize) -> Option<Permit<S>> {
        let mut usage = self.usage();
        has_free(&usage, scopes, count).then(|| self.take(&mut usage, scopes, count))
    }

    fn take(&self, usage: &mut HashMap<S, ScopeUsage<S>>, scopes: &[(S, usize)], count: usize) -> Permit<S> {
        for (scope, _) in scopes {
            usage.entry(scope.clone()).or_default().in_use += count;
        }
        count_in_use(self.limit, count as f64);
        Permit { table: self.clone(), scopes: scopes.iter().map(|(scope, _)| scope.clone()).collect(), count }
    }

    /// Releases permits, and grants them to those who are next.
    fn release(&self, scopes: &[S], count: usize) {
        count_in_use(self.limit, -(count as f64));
        let mut usage = self.usage();
        for scope in scopes {
            if let Some(usage) = usage.get_mut(scope) {
                usage.in_use -= count;
            }
        }
        let granted = scopes.first().map(|first| self.grant(&mut usage, first)).unwrap_or_default();
        for scope in scopes {
            if usage.get(scope).is_some_and(|usage| usage.in_use == 0 && usage.waiting.is_empty()) {
                usage.remove(scope);
            }
        }
        drop(usage);
        for (sender, permit) in granted {
            // A waiter that has just gone drops its permit here, which needs the lock.
            let _ = sender.send(permit);
        }
    }

    /// Takes permits for those who wait for a scope, as far as there are some.
    fn grant(&self, usage: &mut HashMap<S, ScopeUsage<S>>, first: &S) -> Vec<(oneshot::Sender<Permit<S>>, Permit<S>)> {
        let mut waiting = usage.get_mut(first).map(|usage| std::mem::take(&mut usage.waiting)).unwrap_or_default();
        let (mut granted, mut at) = (Vec::new(), 0);
        while let Some(waiter) = waiting.get(at) {
            if waiter.sender.is_closed() {
                waiting.remove(at);
            } else if has_free(usage, &waiter.scopes, 1) {
                let permit = self.take(usage, &waiter.scopes, 1);
                granted.extend(waiting.remove(at).map(|waiter| (waiter.sender, permit)));
            } else if has_free(usage, &waiter.scopes[..1], 1) {
                at += 1;
            } else {
                break; // for all of them
            }
        }
        if let Some(usage) = usage.get_mut(first) {
            usage.waiting = waiting;
        }
        granted
    }

    fn usage(&self) -> MutexGuard<'_, HashMap<S, ScopeUsage<S>>> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Clone + Eq + Hash> Permit<S> {
    /// Returns how many permits it is.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a scope that was not known before. Returns `false` if it has as many permits as it may; the permit is then as
    /// it was.
    pub fn extend(&mut self, scope: S, max: usize) -> bool {
        let mut usage = self.table.usage();
        if !has_free(&usage, &[(scope.clone(), max)], self.count) {
            count_refusal(self.table.limit);
            return false;
        }
        usage.entry(scope.clone()).or_default().in_use += self.count;
        drop(usage);
        self.scopes.push(scope);
        true
    }

    /// Keeps `left` permits and releases the others.
    pub fn shrink_to(&mut self, left: usize) {
        let released = self.count.saturating_sub(left);
        if released > 0 {
            self.count -= released;
            self.table.release(&self.scopes, released);
        }
    }
}

impl<S: Clone + Eq + Hash> Drop for Permit<S> {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

fn has_free<S: Clone + Eq + Hash>(usage: &HashMap<S, ScopeUsage<S>>, scopes: &[(S, usize)], count: usize) -> bool {
    scopes.iter().all(|(scope, max)| usage.get(scope).map_or(0, |usage| usage.in_use) + count <= *max)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::{FutureExt, poll};

    use super::*;

    fn table() -> PermitTable<&'static str> {
        PermitTable::new(Limit::RequestsInFlight)
    }

    #[test]
    fn each_scope_has_its_own_maximum() {
        let table = table();
        let acme = [("all", 3), ("acme", 2)];
        let held = [table.acquire(&acme), table.acquire(&acme)];
        assert!(held.iter().all(Option::is_some));

        assert!(!table.has_free(&acme, 1) && table.acquire(&acme).is_none());
        let other = table.acquire(&[("all", 3), ("beta", 2)]);
        assert!(other.is_some());
        assert!(table.acquire(&[("all", 3), ("gamma", 2)]).is_none());

        drop(held);
        assert!(table.acquire(&acme).is_some());
        drop(other);
        assert_eq!(table.scopes_in_use(), 0, "idle scopes are dropped");
    }

    #[test]
    fn scope_is_added_when_it_is_known() {
        let table = table();
        let mut first = table.acquire(&[("all", 3)]).unwrap();
        let mut second = table.acquire(&[("all", 3)]).unwrap();
        assert!(first.extend("acme", 1));

        assert!(!second.extend("acme", 1));
        drop(second);
        assert_eq!(table.scopes_in_use(), 2, "what was refused holds nothing");
        drop(first);
        assert_eq!(table.scopes_in_use(), 0);
    }

    #[tokio::test]
    async fn waiters_are_served_in_order_of_arrival() {
        let table = table();
        let held = table.acquire(&[("all", 1)]);
        let all = [("all", 1)];
        let mut first = pin!(table.wait(&all));
        let mut gone = Box::pin(table.wait(&all));
        let mut last = pin!(table.wait(&all));
        assert!(poll!(&mut first).is_pending() && poll!(&mut gone).is_pending() && poll!(&mut last).is_pending());
        assert!(table.wait(&[("other", 1)]).now_or_never().is_some(), "another scope does not wait");

        drop(held);
        assert!(poll!(&mut last).is_pending() && poll!(&mut gone).is_pending());
        let first = first.now_or_never().expect("it came first");
        drop(gone);
        drop(first);
        assert!(last.now_or_never().is_some(), "what has gone holds up nothing");
        assert_eq!(table.scopes_in_use(), 0);
    }

    #[tokio::test]
    async fn narrow_scope_holds_up_only_its_own() {
        let table = table();
        let backfill = [("all", 2), ("backfill", 1)];
        let held = table.acquire(&backfill);
        let mut waiting = pin!(table.wait(&backfill));
        assert!(poll!(&mut waiting).is_pending());

        let new = table.wait(&[("all", 2)]).now_or_never();
        assert!(new.is_some(), "it passes what waits for a narrower scope");
        let mut next = pin!(table.wait(&[("all", 2)]));
        assert!(poll!(&mut next).is_pending());
        drop(held);

        assert!(waiting.now_or_never().is_some() && poll!(&mut next).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn waiter_gives_up_after_its_time() {
        let table = table();
        let held = table.acquire(&[("all", 1)]);
        let wait = Duration::from_secs(5);

        assert!(table.wait_at_most(wait, &[("all", 1)]).await.is_none());
        drop(held);
        assert!(table.wait_at_most(wait, &[("all", 1)]).await.is_some());
        assert_eq!(table.scopes_in_use(), 0);
    }

    #[test]
    fn several_permits_are_released_one_by_one() {
        let table = table();
        let mut held = table.try_acquire(&[("all", 5)], 4).unwrap();
        assert!(table.try_acquire(&[("all", 5)], 2).is_none());

        held.shrink_to(3);
        assert_eq!(held.count(), 3);
        assert!(table.try_acquire(&[("all", 5)], 2).is_some());
        drop(held);
        assert_eq!(table.scopes_in_use(), 0);
    }
}
