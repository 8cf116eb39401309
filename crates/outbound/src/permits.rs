//! Permits: so many at once, of each scope that something belongs to. A limiter is a table of counts; nothing waits in it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{Limit, count_in_use, count_refusal};

/// The permits in use, by scope. Scopes without any are absent, so idle ones take no memory. Cheap to clone; clones share
/// the counts.
#[derive(Debug)]
pub struct PermitTable<S> {
    limit: Limit,
    in_use: Arc<Mutex<HashMap<S, usize>>>,
}

impl<S> Clone for PermitTable<S> {
    fn clone(&self) -> Self {
        Self { limit: self.limit, in_use: self.in_use.clone() }
    }
}

/// A permit of one or several scopes, until it is dropped.
#[derive(Debug)]
pub struct Permit<S: Eq + Hash> {
    table: PermitTable<S>,
    scopes: Vec<S>,
}

impl<S: Clone + Eq + Hash> PermitTable<S> {
    pub fn new(limit: Limit) -> Self {
        Self { limit, in_use: Arc::default() }
    }

    /// Takes a permit of each scope, given with the most that it may have. Returns `None` if one of them has that many.
    pub fn acquire(&self, scopes: &[(S, usize)]) -> Option<Permit<S>> {
        let mut in_use = self.in_use();
        if !scopes.iter().all(|(scope, max)| count(&in_use, scope) < *max) {
            count_refusal(self.limit);
            return None;
        }
        for (scope, _) in scopes {
            *in_use.entry(scope.clone()).or_default() += 1;
        }
        count_in_use(self.limit, 1.0);
        Some(Permit { table: self.clone(), scopes: scopes.iter().map(|(scope, _)| scope.clone()).collect() })
    }

    /// Returns whether there is a permit of each scope.
    pub fn has_free(&self, scopes: &[(S, usize)]) -> bool {
        let in_use = self.in_use();
        scopes.iter().all(|(scope, max)| count(&in_use, scope) < *max)
    }

    /// Returns the number of scopes with permits in use.
    pub fn scopes_in_use(&self) -> usize {
        self.in_use().len()
    }
}

impl<S: Clone + Eq + Hash> Permit<S> {
    /// Adds a scope that was not known before. Returns `false` if it has as many permits as it may; the permit is then as
    /// it was.
    pub fn extend(&mut self, scope: S, max: usize) -> bool {
        let mut in_use = self.table.in_use();
        if count(&in_use, &scope) >= max {
            count_refusal(self.table.limit);
            return false;
        }
        *in_use.entry(scope.clone()).or_default() += 1;
        drop(in_use);
        self.scopes.push(scope);
        true
    }
}

impl<S: Eq + Hash> Drop for Permit<S> {
    fn drop(&mut self) {
        count_in_use(self.table.limit, -1.0);
        let mut in_use = self.table.in_use();
        for scope in &self.scopes {
            if let Some(count) = in_use.get_mut(scope) {
                *count -= 1;
                if *count == 0 {
                    in_use.remove(scope);
                }
            }
        }
    }
}

impl<S> PermitTable<S> {
    fn in_use(&self) -> MutexGuard<'_, HashMap<S, usize>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count<S: Eq + Hash>(in_use: &HashMap<S, usize>, scope: &S) -> usize {
    in_use.get(scope).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
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

        assert!(!table.has_free(&acme) && table.acquire(&acme).is_none());
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
}
