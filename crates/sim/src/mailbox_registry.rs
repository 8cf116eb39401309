//! The mailboxes of one provider, by first address and by owner's id.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::lazy_account::LazyAccount;
use crate::mail::rng::Rng;
use crate::world::Provider;

/// A mailbox of a simulated provider.
pub struct ProviderMailbox<P: Provider> {
    /// The owner's first address, which is the mailbox's key.
    pub address: String,
    /// The provider's id of the owner, which stays when the address changes.
    pub id: String,
    /// Whether mail is enabled for the account.
    pub has_mail_service: AtomicBool,
    account: LazyAccount<P::Account>,
    pub state: P::MailboxState,
}

impl<P: Provider> fmt::Debug for ProviderMailbox<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderMailbox").field("address", &self.address).finish_non_exhaustive()
    }
}

impl<P: Provider> ProviderMailbox<P> {
    pub fn new(address: String, id: String, account: LazyAccount<P::Account>, state: P::MailboxState) -> Self {
        Self { address, id, has_mail_service: AtomicBool::new(true), account, state }
    }

    pub fn account(&self) -> MutexGuard<'_, P::Account> {
        self.account.get()
    }

    pub fn message_count(&self) -> usize {
        self.account.message_count()
    }
}

pub struct MailboxRegistry<P: Provider>(RwLock<RegistryIndexes<P>>);

struct RegistryIndexes<P: Provider> {
    by_address: HashMap<String, Arc<ProviderMailbox<P>>>,
    by_id: HashMap<String, Arc<ProviderMailbox<P>>>,
    in_order: Vec<Arc<ProviderMailbox<P>>>,
}

impl<P: Provider> Default for MailboxRegistry<P> {
    fn default() -> Self {
        Self(RwLock::new(RegistryIndexes { by_address: HashMap::new(), by_id: HashMap::new(), in_order: Vec::new() }))
    }
}

impl<P: Provider> MailboxRegistry<P> {
    /// Adds a mailbox. Returns `false` if its owner has one. A mailbox of another owner at the same address is
    /// replaced.
    pub fn add(&self, mailbox: ProviderMailbox<P>) -> bool {
        let mut indexes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (mailbox, indexes) = (Arc::new(mailbox), &mut *indexes);
        if let Some(old) = indexes.by_address.get(&mailbox.address).cloned() {
            if old.id == mailbox.id {
                return false;
            }
            indexes.by_id.remove(&old.id);
            indexes.in_order.retain(|other| !Arc::ptr_eq(other, &old));
        }
        indexes.in_order.push(Arc::clone(&mailbox));
        indexes.by_id.insert(mailbox.id.clone(), Arc::clone(&mailbox));
        indexes.by_address.insert(mailbox.address.clone(), mailbox);
        true
    }

    /// Finds a mailbox by its first address or its owner's id.
    pub fn find(&self, name: &str) -> Option<Arc<ProviderMailbox<P>>> {
        let indexes = self.read();
        let found = indexes.by_address.get(name).or_else(|| indexes.by_id.get(name));
        found.or_else(|| indexes.by_address.get(&name.to_lowercase())).cloned()
    }

    pub fn all(&self) -> Vec<Arc<ProviderMailbox<P>>> {
        self.read().in_order.clone()
    }

    /// Picks a random mailbox.
    pub fn any(&self, rng: &mut Rng) -> Option<Arc<ProviderMailbox<P>>> {
        let indexes = self.read();
        (!indexes.in_order.is_empty()).then(|| Arc::clone(rng.pick(&indexes.in_order)))
    }

    /// Returns the addresses of the first `count` mailboxes that `is_wanted` accepts.
    pub fn first(&self, count: usize, is_wanted: impl Fn(&ProviderMailbox<P>) -> bool) -> Vec<String> {
        let indexes = self.read();
        let wanted = indexes.in_order.iter().filter(|mailbox| is_wanted(mailbox));
        wanted.take(count).map(|mailbox| mailbox.address.clone()).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, RegistryIndexes<P>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
