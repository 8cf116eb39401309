//! All mailboxes of one simulated IMAP server, who may read them, and what goes wrong.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::account::{Account, Refused};
use super::faults::Kind;
use super::operation::{Applied, Operation};
use super::truth::Truth;
use crate::lazily::Lazily;
use crate::mail::rng::Rng;
use crate::mailboxes::{Mailboxes, Owned};
use crate::stage::Stage;
use crate::steer::Changing;

pub use crate::scripted::Now;

/// Everybody's, unless they were given another one.
pub const PASSWORD: &str = "sim-password";

/// What is offered unless it is said.
pub const CAPABILITIES: &str = "IMAP4rev1 SASL-IR AUTH=PLAIN ID ENABLE IDLE LITERAL+ NAMESPACE UNSELECT UIDPLUS MOVE \
                                SPECIAL-USE LIST-EXTENDED LIST-STATUS ESEARCH CONDSTORE QRESYNC OBJECTID";

pub struct World {
    seed: u64,
    stage: Stage<Kind>,
    mailboxes: Mailboxes<Mailbox>,
    capabilities: RwLock<Vec<String>>,
    rng: Mutex<Rng>,
}

pub(super) struct Mailbox {
    pub address: String,
    account: Lazily<Account>,
    password: RwLock<String>,
    has_mail_service: AtomicBool,
    /// Grows with each change, for whoever listens.
    pub changes: watch::Sender<u64>,
    /// Grows when all connections are to end.
    pub ends: watch::Sender<u64>,
}

/// An account to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    pub address: String,
    #[serde(default)]
    pub messages: usize,
    /// Nothing: from the world's seed and the address.
    #[serde(default)]
    pub seed: Option<u64>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl Deref for World {
    type Target = Stage<Kind>;

    fn deref(&self) -> &Self::Target {
        &self.stage
    }
}

impl Changing for World {
    type Kind = Kind;

    fn has(&self, address: &str) -> bool {
        self.find(address).is_some()
    }

    fn step(&self, address: &str, count: usize) -> bool {
        Self::step(self, address, count)
    }

    fn step_any(&self, count: usize) {
        Self::step_any(self, count);
    }

    fn set_mail_service(&self, address: &str, is_enabled: bool) -> bool {
        let found = self.find(address);
        found.map(|mailbox| mailbox.has_mail_service.store(is_enabled, Ordering::Relaxed)).is_some()
    }
}

impl World {
    /// `letters`: how many different letters its mail is made of.
    pub fn new(seed: u64, letters: usize, now: Now) -> Self {
        Self {
            seed,
            stage: Stage::new(seed, letters, now),
            mailboxes: Mailboxes::default(),
            capabilities: RwLock::new(words(CAPABILITIES)),
            rng: Mutex::new(Rng::new(seed)),
        }
    }

    /// Whether there was none of this address yet.
    pub fn create(&self, new: &NewAccount) -> bool {
        let address = new.address.to_lowercase();
        self.mailboxes.add(Mailbox {
            account: Lazily::new(self.beginning(new.seed, &address, new.messages), |beginning| {
                let mut account = Account::new(beginning.seed);
                account.fill(beginning.messages, &beginning.letters, beginning.at);
                account
            }),
            address,
            password: RwLock::new(PASSWORD.to_owned()),
            has_mail_service: AtomicBool::new(true),
            changes: watch::Sender::new(0),
            ends: watch::Sender::new(0),
        })
    }

    /// `user1@imap.example` and so on. Those that are there stay as they are.
    pub fn create_many(&self, count: usize, messages: usize) -> usize {
        let new = |number| NewAccount { address: format!("user{number}@imap.example"), messages, seed: None };
        (1..=count).filter(|number| self.create(&new(*number))).count()
    }

    pub fn apply(&self, address: &str, operation: Operation) -> Result<Applied, Refused> {
        let mailbox = self.find(address).ok_or(Refused::NoAccount)?;
        let now = self.now();
        mailbox.change(|account| account.apply(operation, &self.letters, now))
    }

    /// Random changes to one mailbox.
    pub fn step(&self, address: &str, count: usize) -> bool {
        let Some(mailbox) = self.find(address) else { return false };
        let now = self.now();
        (0..count).for_each(|_| mailbox.change(|account| account.step(&self.letters, now)));
        true
    }

    /// Random changes to mailboxes by chance.
    pub fn step_any(&self, count: usize) {
        let now = self.now();
        for _ in 0..count {
            let any = self.mailboxes.any(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner));
            let Some(mailbox) = any else { return };
            mailbox.change(|account| account.step(&self.letters, now));
            self.count_change();
        }
    }

    pub fn truth(&self, address: &str) -> Option<Truth> {
        Some(self.find(address)?.account().truth(&self.letters))
    }

    pub fn addresses(&self) -> Vec<String> {
        self.mailboxes.first(usize::MAX, |_| true)
    }

    /// Whoever logs in from now on needs it; those who are in stay in.
    pub fn set_password(&self, address: &str, password: &str) -> bool {
        let Some(mailbox) = self.find(address) else { return false };
        password.clone_into(&mut mailbox.password.write().unwrap_or_else(PoisonError::into_inner));
        true
    }

    /// How many connections wait for what happens in the mailbox.
    pub fn listeners(&self, address: &str) -> usize {
        self.find(address).map_or(0, |mailbox| mailbox.changes.receiver_count())
    }

    /// Ends all connections of one mailbox.
    pub fn disconnect(&self, address: &str) -> bool {
        let found = self.find(address);
        found.map(|mailbox| mailbox.ends.send_modify(|ends| *ends += 1)).is_some()
    }

    /// What is offered from now on; a command of an extension that is not is BAD.
    pub fn set_capabilities(&self, capabilities: &str) {
        *self.capabilities.write().unwrap_or_else(PoisonError::into_inner) = words(capabilities);
    }

    pub fn capabilities(&self) -> String {
        self.capabilities.read().unwrap_or_else(PoisonError::into_inner).join(" ")
    }

    pub(super) fn offers(&self, name: &str) -> bool {
        self.capabilities.read().unwrap_or_else(PoisonError::into_inner).iter().any(|word| word == name)
    }

    /// Why somebody is not let in.
    pub(super) fn log_in(&self, user: &str, password: &str) -> Result<Arc<Mailbox>, &'static str> {
        let known = self
            .find(user)
            .filter(|mailbox| *mailbox.password.read().unwrap_or_else(PoisonError::into_inner) == password);
        let mailbox = known.ok_or("[AUTHENTICATIONFAILED] Authentication failed.")?;
        match mailbox.has_mail_service.load(Ordering::Relaxed) {
            true => Ok(mailbox),
            false => Err("[AUTHORIZATIONFAILED] IMAP is not enabled for this account."),
        }
    }

    pub(super) fn find(&self, address: &str) -> Option<Arc<Mailbox>> {
        self.mailboxes.find(address)
    }

    pub(super) fn all(&self) -> Vec<Arc<Mailbox>> {
        self.mailboxes.all()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Owned for Mailbox {
    fn address(&self) -> &str {
        &self.address
    }

    fn id(&self) -> &str {
        &self.address
    }
}

impl Mailbox {
    pub fn account(&self) -> MutexGuard<'_, Account> {
        self.account.get()
    }

    pub fn message_count(&self) -> usize {
        self.account.look(|beginning| beginning.messages, Account::message_count)
    }

    /// Whoever listens is told.
    pub fn change<T>(&self, change: impl FnOnce(&mut Account) -> T) -> T {
        let changed = change(&mut self.account());
        self.changes.send_modify(|changes| *changes += 1);
        changed
    }
}
