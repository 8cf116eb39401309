//! The state of one simulated JMAP server: accounts, passwords, limits and faults.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::account::JmapAccount;
use super::faults::JmapFaultKind;
use super::{api, control};
use crate::mailbox_registry::ProviderMailbox;
use crate::provider_server::{HttpProvider, ProviderServer};
use crate::world::{AccountSpec, Provider, ProviderWorld};

/// The default password of every account.
pub const JMAP_PASSWORD: &str = "sim-app-password";

/// How many objects a call may name or list by default.
const MAX_OBJECTS: usize = 100;

/// What the JMAP server has of its own.
#[derive(Debug)]
pub struct JmapProvider {
    max_objects: AtomicUsize,
}

/// The state of a mailbox beside its account.
#[derive(Debug)]
pub struct JmapAccess {
    password: RwLock<String>,
    /// Incremented by each change, for event sources.
    pub changes: watch::Sender<u64>,
}

pub type JmapWorld = ProviderWorld<JmapProvider>;
pub type JmapServer = ProviderServer<JmapProvider>;
pub type JmapAccountHolder = ProviderMailbox<JmapProvider>;

impl Provider for JmapProvider {
    type FaultKind = JmapFaultKind;
    type Account = JmapAccount;
    type MailboxState = JmapAccess;

    const DOMAIN: &'static str = "jmap.example";

    fn new(_seed: u64, _letters: usize) -> Self {
        Self { max_objects: AtomicUsize::new(MAX_OBJECTS) }
    }

    fn create(world: &JmapWorld, spec: &AccountSpec) -> bool {
        let address = spec.address.to_lowercase();
        let hash = address.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let access = JmapAccess { password: RwLock::new(JMAP_PASSWORD.to_owned()), changes: watch::Sender::new(0) };
        world.open_mailbox(&address, format!("u{hash:x}"), spec.messages, spec.seed, access)
    }

    fn change<T>(_world: &JmapWorld, mailbox: &JmapAccountHolder, change: impl FnOnce(&mut JmapAccount) -> T) -> T {
        let changed = change(&mut mailbox.account());
        mailbox.state.changes.send_modify(|changes| *changes += 1);
        changed
    }

    fn describe(mailbox: &JmapAccountHolder) -> Value {
        let listeners = mailbox.state.changes.receiver_count();
        json!({
            "address": mailbox.address, "id": mailbox.id, "messages": mailbox.message_count(), "listeners": listeners,
        })
    }
}

impl HttpProvider for JmapProvider {
    fn routes() -> Router<Arc<JmapWorld>> {
        api::routes().merge(control::routes())
    }

    /// Changes are told to those who listen.
    async fn deliver_pushes(_world: Arc<JmapWorld>) {
        std::future::pending::<()>().await;
    }
}

impl JmapWorld {
    /// Sets the password, which also changes the token.
    pub fn set_password(&self, address: &str, password: &str) -> bool {
        let Some(mailbox) = self.find(address) else { return false };
        password.clone_into(&mut mailbox.state.password.write().unwrap_or_else(PoisonError::into_inner));
        true
    }

    /// Returns an API token for an account.
    pub fn token(&self, address: &str) -> Option<String> {
        let mailbox = self.find(address)?;
        let password = mailbox.state.password.read().unwrap_or_else(PoisonError::into_inner);
        Some(STANDARD.encode(format!("{}:{password}", mailbox.address)))
    }

    /// Sets how many objects a call may name or list.
    pub fn set_max_objects(&self, count: usize) {
        self.provider.max_objects.store(count.max(1), Ordering::Relaxed);
    }

    pub fn max_objects(&self) -> usize {
        self.provider.max_objects.load(Ordering::Relaxed)
    }

    /// Returns how many event sources of the account are open.
    pub fn listeners(&self, address: &str) -> usize {
        self.find(address).map_or(0, |mailbox| mailbox.state.changes.receiver_count())
    }

    /// Finds the account that an `Authorization` opens. A token is made like the credentials of Basic.
    pub(super) fn log_in(&self, authorization: Option<&str>) -> Option<Arc<JmapAccountHolder>> {
        let (_, encoded) = authorization?.split_once(' ')?;
        let decoded = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
        let (user, password) = decoded.split_once(':')?;
        let mailbox = self.find(user)?;
        let is_right = *mailbox.state.password.read().unwrap_or_else(PoisonError::into_inner) == password;
        (is_right && mailbox.has_mail_service.load(Ordering::Relaxed)).then_some(mailbox)
    }
}
