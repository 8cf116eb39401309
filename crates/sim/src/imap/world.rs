//! The state of one simulated IMAP server: mailboxes, passwords, capabilities and faults.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::account::ImapAccount;
use super::faults::ImapFaultKind;
use crate::mailbox_registry::ProviderMailbox;
use crate::world::{AccountSpec, Provider, ProviderWorld};

/// The default password of every account.
pub const PASSWORD: &str = "sim-password";

/// The default capabilities.
pub const CAPABILITIES: &str = "IMAP4rev1 SASL-IR AUTH=PLAIN ID ENABLE IDLE LITERAL+ NAMESPACE UNSELECT UIDPLUS MOVE \
                                SPECIAL-USE LIST-EXTENDED LIST-STATUS ESEARCH CONDSTORE QRESYNC OBJECTID";

/// What the IMAP server has of its own.
#[derive(Debug)]
pub struct Imap {
    capabilities: RwLock<Vec<String>>,
}

/// The state of a mailbox beside its account.
#[derive(Debug)]
pub struct MailboxAccess {
    password: RwLock<String>,
    /// Incremented by each change, for idle connections.
    pub changes: watch::Sender<u64>,
    /// Incremented to end all connections.
    pub ends: watch::Sender<u64>,
}

pub type ImapWorld = ProviderWorld<Imap>;
pub type ImapMailbox = ProviderMailbox<Imap>;

impl Provider for Imap {
    type FaultKind = ImapFaultKind;
    type Account = ImapAccount;
    type MailboxState = MailboxAccess;

    const DOMAIN: &'static str = "imap.example";

    fn new(_seed: u64, _letters: usize) -> Self {
        Self { capabilities: RwLock::new(words(CAPABILITIES)) }
    }

    fn create(world: &ImapWorld, spec: &AccountSpec) -> bool {
        let address = spec.address.to_lowercase();
        let access = MailboxAccess {
            password: RwLock::new(PASSWORD.to_owned()),
            changes: watch::Sender::new(0),
            ends: watch::Sender::new(0),
        };
        world.open_mailbox(&address, address.clone(), spec.messages, spec.seed, access)
    }

    fn change<T>(_world: &ImapWorld, mailbox: &ImapMailbox, change: impl FnOnce(&mut ImapAccount) -> T) -> T {
        mailbox.change(change)
    }

    fn describe(mailbox: &ImapMailbox) -> Value {
        let listeners = mailbox.state.changes.receiver_count();
        json!({"address": mailbox.address, "messages": mailbox.message_count(), "listeners": listeners})
    }
}

impl ImapWorld {
    /// Sets the password for new logins; open connections stay.
    pub fn set_password(&self, address: &str, password: &str) -> bool {
        let Some(mailbox) = self.find(address) else { return false };
        password.clone_into(&mut mailbox.state.password.write().unwrap_or_else(PoisonError::into_inner));
        true
    }

    /// Returns how many connections wait for changes of the mailbox.
    pub fn listeners(&self, address: &str) -> usize {
        self.find(address).map_or(0, |mailbox| mailbox.state.changes.receiver_count())
    }

    /// Ends all connections of one mailbox.
    pub fn disconnect(&self, address: &str) -> bool {
        let found = self.find(address);
        found.map(|mailbox| mailbox.state.ends.send_modify(|ends| *ends += 1)).is_some()
    }

    /// Sets the offered capabilities. Commands of other extensions are BAD.
    pub fn set_capabilities(&self, capabilities: &str) {
        *self.provider.capabilities.write().unwrap_or_else(PoisonError::into_inner) = words(capabilities);
    }

    pub fn capabilities(&self) -> String {
        self.provider.capabilities.read().unwrap_or_else(PoisonError::into_inner).join(" ")
    }

    pub(super) fn offers(&self, name: &str) -> bool {
        self.provider.capabilities.read().unwrap_or_else(PoisonError::into_inner).iter().any(|word| word == name)
    }

    /// Checks a login. The error is the text of the NO response.
    pub(super) fn log_in(&self, user: &str, password: &str) -> Result<Arc<ImapMailbox>, &'static str> {
        let known = self
            .find(user)
            .filter(|mailbox| *mailbox.state.password.read().unwrap_or_else(PoisonError::into_inner) == password);
        let mailbox = known.ok_or("[AUTHENTICATIONFAILED] Authentication failed.")?;
        if mailbox.has_mail_service.load(Ordering::Relaxed) {
            Ok(mailbox)
        } else {
            Err("[AUTHORIZATIONFAILED] IMAP is not enabled for this account.")
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl ImapMailbox {
    /// Changes the mailbox and wakes idle connections.
    pub fn change<T>(&self, change: impl FnOnce(&mut ImapAccount) -> T) -> T {
        let changed = change(&mut self.account());
        self.state.changes.send_modify(|changes| *changes += 1);
        changed
    }
}
