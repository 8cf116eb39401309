//! The mailboxes of one provider, found by their first address or by their owner's id.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::mail::rng::Rng;

/// A mailbox of some provider.
pub trait Owned {
    /// The first address that its owner had: what everything else knows it by.
    fn address(&self) -> &str;

    /// What the provider knows the owner by, whatever the address.
    fn id(&self) -> &str;
}

#[derive(Debug)]
pub struct Mailboxes<M>(RwLock<Inner<M>>);

#[derive(Debug)]
struct Inner<M> {
    by_address: HashMap<String, Arc<M>>,
    by_id: HashMap<String, Arc<M>>,
    in_order: Vec<Arc<M>>,
}

impl<M> Default for Mailboxes<M> {
    fn default() -> Self {
        Self(RwLock::new(Inner { by_address: HashMap::new(), by_id: HashMap::new(), in_order: Vec::new() }))
    }
}

impl<M: Owned> Mailboxes<M> {
    /// Whether the owner had none. Whoever had the address before is gone with the mailbox.
    pub fn add(&self, mailbox: M) -> bool {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (mailbox, inner) = (Arc::new(mailbox), &mut *inner);
        if let Some(old) = inner.by_address.get(mailbox.address()).cloned() {
            if old.id() == mailbox.id() {
                return false;
            }
            inner.by_id.remove(old.id());
            inner.in_order.retain(|other| !Arc::ptr_eq(other, &old));
        }
        inner.in_order.push(Arc::clone(&mailbox));
        inner.by_id.insert(mailbox.id().to_owned(), Arc::clone(&mailbox));
        inner.by_address.insert(mailbox.address().to_owned(), mailbox);
        true
    }

    /// By its first address or by the owner's id.
    pub fn find(&self, name: &str) -> Option<Arc<M>> {
        let inner = self.read();
        let found = inner.by_address.get(name).or_else(|| inner.by_id.get(name));
        found.or_else(|| inner.by_address.get(&name.to_lowercase())).cloned()
    }

    pub fn all(&self) -> Vec<Arc<M>> {
        self.read().in_order.clone()
    }

    /// One by chance.
    pub fn any(&self, rng: &mut Rng) -> Option<Arc<M>> {
        let inner = self.read();
        (!inner.in_order.is_empty()).then(|| Arc::clone(rng.pick(&inner.in_order)))
    }

    /// The first addresses of those that are wanted.
    pub fn first(&self, count: usize, is_wanted: impl Fn(&M) -> bool) -> Vec<String> {
        let inner = self.read();
        let wanted = inner.in_order.iter().filter(|mailbox| is_wanted(mailbox));
        wanted.take(count).map(|mailbox| mailbox.address().to_owned()).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner<M>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
