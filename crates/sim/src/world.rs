//! The frame of every simulated provider: its accounts, and what can be done to them whatever the provider.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::faults::FaultKind;
use crate::lazy_account::LazyAccount;
use crate::letter_pool::LetterPool;
use crate::mail::rng::Rng;
use crate::mailbox_registry::{MailboxRegistry, ProviderMailbox};
use crate::provider_core::{Now, ProviderCore};

/// How many random mailboxes are tried to find one that is active.
const MAX_MAILBOX_DRAWS: usize = 20;

/// The state of one mailbox, determined by its seed and the changes applied to it. No I/O and no clock.
pub trait SimAccount: Send + Sized + 'static {
    type Operation: DeserializeOwned + Send + 'static;
    type Outcome: Serialize;
    type Error: fmt::Display + PartialEq;
    type Truth: Serialize;

    /// The error of an operation on an account that does not exist.
    const NO_ACCOUNT: Self::Error;

    fn new(seed: u64) -> Self;

    /// Adds the initial mail.
    fn fill(&mut self, count: usize, letters: &LetterPool, now: Timestamp);

    /// Applies one random change.
    fn step(&mut self, letters: &LetterPool, now: Timestamp);

    fn apply(
        &mut self,
        operation: Self::Operation,
        letters: &LetterPool,
        now: Timestamp,
    ) -> Result<Self::Outcome, Self::Error>;

    fn truth(&self, letters: &LetterPool) -> Self::Truth;

    fn message_count(&self) -> usize;
}

/// Implements [`SimAccount`] by an account's own methods of the same names.
macro_rules! sim_account {
    ($account:ty { $operation:ty => Result<$outcome:ty, $error:ty>, $truth:ty }) => {
        impl crate::world::SimAccount for $account {
            type Operation = $operation;
            type Outcome = $outcome;
            type Error = $error;
            type Truth = $truth;

            const NO_ACCOUNT: $error = <$error>::NoAccount;

            fn new(seed: u64) -> Self {
                Self::new(seed)
            }

            fn fill(&mut self, count: usize, letters: &crate::letter_pool::LetterPool, now: jiff::Timestamp) {
                self.fill(count, letters, now);
            }

            fn step(&mut self, letters: &crate::letter_pool::LetterPool, now: jiff::Timestamp) {
                self.step(letters, now);
            }

            fn apply(
                &mut self,
                operation: $operation,
                letters: &crate::letter_pool::LetterPool,
                now: jiff::Timestamp,
            ) -> Result<$outcome, $error> {
                self.apply(operation, letters, now)
            }

            fn truth(&self, letters: &crate::letter_pool::LetterPool) -> $truth {
                self.truth(letters)
            }

            fn message_count(&self) -> usize {
                self.message_count()
            }
        }
    };
}
pub(crate) use sim_account;

/// What one provider has of its own: the state beside its mailboxes, and how mailboxes are created and changed.
pub trait Provider: Send + Sync + Sized + 'static {
    type FaultKind: FaultKind<Route: Ord + Serialize + DeserializeOwned + Send + Sync>
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    type Account: SimAccount;
    /// What a mailbox has beside its account.
    type MailboxState: Send + Sync + 'static;

    /// The domain of the accounts that [`ProviderWorld::create_many`] creates.
    const DOMAIN: &'static str;

    fn new(seed: u64, letters: usize) -> Self;

    /// Creates an account. Returns `false` if the address is in use.
    fn create(world: &ProviderWorld<Self>, spec: &AccountSpec) -> bool;

    /// Changes a mailbox and notifies the provider's clients of it.
    fn change<T>(
        world: &ProviderWorld<Self>,
        mailbox: &ProviderMailbox<Self>,
        change: impl FnOnce(&mut Self::Account) -> T,
    ) -> T;

    /// Finds the key of a mailbox by another name of its owner.
    fn find_key(&self, _name: &str) -> Option<String> {
        None
    }

    /// Returns whether the mailbox gets random changes.
    fn is_active(_world: &ProviderWorld<Self>, _mailbox: &ProviderMailbox<Self>) -> bool {
        true
    }

    /// Renders a mailbox for the control API's list of accounts.
    fn describe(mailbox: &ProviderMailbox<Self>) -> Value;

    /// Renders the request counters for the control API.
    fn request_report(world: &ProviderWorld<Self>) -> Response {
        Json(world.requests()).into_response()
    }

    /// Clears the request log and counters by the control API.
    fn clear_request_report(world: &ProviderWorld<Self>) {
        world.clear_requests();
    }
}

/// The state of one simulated provider. Dereferences to what does not depend on the mailboxes.
pub struct ProviderWorld<P: Provider> {
    seed: u64,
    core: ProviderCore<P::FaultKind>,
    pub(crate) mailboxes: MailboxRegistry<P>,
    rng: Mutex<Rng>,
    pub(crate) provider: P,
}

/// An account to create.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountSpec {
    pub address: String,
    #[serde(default)]
    pub messages: usize,
    /// `None`: derived from the world's seed and the address.
    #[serde(default)]
    pub seed: Option<u64>,
}

impl<P: Provider> Deref for ProviderWorld<P> {
    type Target = ProviderCore<P::FaultKind>;

    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl<P: Provider> fmt::Debug for ProviderWorld<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderWorld").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl<P: Provider> ProviderWorld<P> {
    /// Creates an empty world. `letters` is the number of different letters that mail is made of.
    pub fn new(seed: u64, letters: usize, now: Now) -> Self {
        Self {
            seed,
            core: ProviderCore::new(seed, letters, now),
            mailboxes: MailboxRegistry::default(),
            rng: Mutex::new(Rng::new(seed)),
            provider: P::new(seed, letters),
        }
    }

    /// Creates an account. Returns `false` if the address is in use.
    pub fn create(&self, spec: &AccountSpec) -> bool {
        P::create(self, spec)
    }

    /// Creates `user1` and so on at the provider's domain, skips existing ones, and returns how many are new.
    pub fn create_many(&self, count: usize, messages: usize) -> usize {
        let specs =
            (1..=count).map(|n| AccountSpec { address: format!("user{n}@{}", P::DOMAIN), messages, seed: None });
        specs.filter(|spec| self.create(spec)).count()
    }

    /// Creates a mailbox. Returns `false` if its owner has one.
    pub(crate) fn open_mailbox(
        &self,
        address: &str,
        id: String,
        messages: usize,
        seed: Option<u64>,
        state: P::MailboxState,
    ) -> bool {
        let account = LazyAccount::new(self.account_seed(seed, address, messages));
        self.mailboxes.add(ProviderMailbox::new(address.to_owned(), id, account, state))
    }

    pub fn apply(
        &self,
        address: &str,
        operation: <P::Account as SimAccount>::Operation,
    ) -> Result<<P::Account as SimAccount>::Outcome, <P::Account as SimAccount>::Error> {
        let mailbox = self.find(address).ok_or(P::Account::NO_ACCOUNT)?;
        let now = self.now();
        P::change(self, &mailbox, |account| account.apply(operation, &self.letters, now))
    }

    /// Applies random changes to one mailbox. Returns `false` if there is none.
    pub fn step(&self, address: &str, count: usize) -> bool {
        let Some(mailbox) = self.find(address) else { return false };
        let now = self.now();
        (0..count).for_each(|_| P::change(self, &mailbox, |account| account.step(&self.letters, now)));
        true
    }

    /// Applies random changes to random mailboxes.
    pub fn step_any(&self, count: usize) {
        let now = self.now();
        for _ in 0..count {
            let Some(mailbox) = self.any_mailbox() else { return };
            P::change(self, &mailbox, |account| account.step(&self.letters, now));
            self.count_change();
        }
    }

    /// Picks a random active mailbox, or `None` after too many misses.
    fn any_mailbox(&self) -> Option<Arc<ProviderMailbox<P>>> {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let mut drawn = (0..MAX_MAILBOX_DRAWS).map_while(|_| self.mailboxes.any(&mut rng));
        drawn.find(|mailbox| P::is_active(self, mailbox))
    }

    pub fn truth(&self, address: &str) -> Option<<P::Account as SimAccount>::Truth> {
        Some(self.find(address)?.account().truth(&self.letters))
    }

    pub fn addresses(&self) -> Vec<String> {
        self.mailboxes.first(usize::MAX, |_| true)
    }

    /// Enables or disables mail for an account. Returns `false` if there is none.
    pub fn set_mail_service(&self, address: &str, is_enabled: bool) -> bool {
        let found = self.find(address);
        found.map(|mailbox| mailbox.has_mail_service.store(is_enabled, Ordering::Relaxed)).is_some()
    }

    /// Finds a mailbox by its key, or by another name of its owner.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<ProviderMailbox<P>>> {
        self.mailboxes.find(name).or_else(|| self.mailboxes.find(&self.provider.find_key(name)?))
    }

    pub(crate) fn all(&self) -> Vec<Arc<ProviderMailbox<P>>> {
        self.mailboxes.all()
    }
}
