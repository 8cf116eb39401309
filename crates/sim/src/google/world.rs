//! The state of one simulated Google: mailboxes, tokens, people, pushes, quota and faults.

use std::sync::{Arc, Mutex};

use axum::Router;
use serde_json::{Value, json};

use super::account::GmailAccount;
use super::faults::GoogleFaultKind;
use super::oauth::{self, GoogleClient, GoogleGrant, GoogleTokenStore, IssuedTokens, OAuth, ServiceAccount};
use super::push::{self, Push, PushEndpoint, Watches};
use super::quota::{GmailLimits, Quota};
use super::{api, control};
use crate::mail::rng::Rng;
use crate::mailbox_registry::ProviderMailbox;
use crate::opaque_token;
use crate::people::{PeopleDirectory, PeopleProvider, domain_of};
use crate::provider_server::{HttpProvider, ProviderServer};
use crate::sign_in::{SignIn, SignInProvider};
use crate::world::{AccountSpec, Provider, ProviderWorld};

/// What Google has of its own.
#[derive(Debug)]
pub struct Google {
    pub(super) people: PeopleDirectory,
    pub(super) oauth: OAuth,
    pub(super) push: Push,
    pub(super) quota: Quota,
}

pub type GoogleWorld = ProviderWorld<Google>;
/// A mailbox with its watches.
pub type GoogleMailbox = ProviderMailbox<Google>;
pub type GoogleServer = ProviderServer<Google>;

impl Provider for Google {
    type FaultKind = GoogleFaultKind;
    type Account = GmailAccount;
    type MailboxState = Mutex<Watches>;

    const DOMAIN: &'static str = "sim.example";

    fn new(seed: u64, _letters: usize) -> Self {
        Self {
            people: PeopleDirectory::new(build_id),
            oauth: OAuth::new(seed),
            push: Push::new(seed),
            quota: Quota::default(),
        }
    }

    fn create(world: &GoogleWorld, spec: &AccountSpec) -> bool {
        let address = spec.address.to_lowercase();
        let has_person = is_personal(&address) || world.provider.people.add_person(&address, world.now_ms()).is_some();
        has_person && open(world, &address, spec.messages, spec.seed)
    }

    fn change<T>(world: &GoogleWorld, mailbox: &GoogleMailbox, change: impl FnOnce(&mut GmailAccount) -> T) -> T {
        let (changed, seen) = {
            let mut account = mailbox.account();
            let before = account.history_id();
            let changed = change(&mut account);
            let seen = (account.history_id() != before).then(|| (account.history_id(), account.last_labels()));
            (changed, seen)
        };
        if let Some((history_id, labels)) = seen {
            push::publish_change(world, mailbox, history_id, &labels);
        }
        changed
    }

    fn find_key(&self, name: &str) -> Option<String> {
        self.people.find(name).map(|person| person.account)
    }

    fn is_active(world: &GoogleWorld, mailbox: &GoogleMailbox) -> bool {
        world.person(mailbox).has_mailbox()
    }

    fn describe(mailbox: &GoogleMailbox) -> Value {
        json!({"address": mailbox.address, "messages": mailbox.message_count()})
    }
}

impl HttpProvider for Google {
    fn routes() -> Router<Arc<GoogleWorld>> {
        api::routes().merge(control::routes())
    }

    fn deliver_pushes(world: Arc<GoogleWorld>) -> impl Future<Output = ()> + Send {
        push::run(world)
    }
}

impl SignInProvider for Google {
    type Tokens = GoogleTokenStore;

    const CLIENT_ID: &'static str = oauth::CLIENT_ID;
    const SCOPES: &'static [&'static str] = &[oauth::READONLY];

    fn sign_in(&self) -> &SignIn<GoogleTokenStore> {
        &self.oauth
    }

    fn issue(world: &GoogleWorld, mailbox: &GoogleMailbox, client: &str, scopes: Vec<String>) -> IssuedTokens {
        let (account, client) = (mailbox.address.clone(), client.to_owned());
        let grant = GoogleGrant { account, client, scopes, is_offline: true, is_forced: true };
        world.provider.oauth.tokens_mut().grant(&grant, world.now_ms())
    }
}

impl PeopleProvider for Google {
    fn people(&self) -> &PeopleDirectory {
        &self.people
    }

    fn open_mailbox(world: &GoogleWorld, account: &str, _organisation: &str, messages: usize) {
        open(world, account, messages, None);
    }
}

impl GoogleWorld {
    pub(super) fn first_addresses(&self, count: usize) -> Vec<String> {
        self.mailboxes.first(count, |_| true)
    }

    /// Sets the limits. `None`: no limit.
    pub fn set_quota(&self, limits: Option<GmailLimits>) {
        self.provider.quota.set(limits);
    }

    pub fn register_client(&self, client: GoogleClient) {
        self.provider.oauth.register(client.id.clone(), client);
    }

    /// Sets the scopes that the service account may use. `None`: all.
    pub fn set_delegated_scopes(&self, scopes: Option<Vec<String>>) {
        self.provider.oauth.set_delegated(None, scopes);
    }

    /// Sets them for one organisation. `None`: as for all others.
    pub fn set_delegated_scopes_of(&self, domain: &str, scopes: Option<Vec<String>>) {
        let organisation = self.provider.people.write().organisation_of_domain(domain);
        self.provider.oauth.set_delegated(Some(&organisation), scopes);
    }

    /// Returns the service account's key file, as Google's console offers it.
    pub fn service_account_key(&self) -> Value {
        ServiceAccount::key_file(&self.url())
    }

    /// Signs claims with the service account's key.
    pub fn sign_as_service_account(&self, claims: &Value) -> String {
        self.provider.oauth.sign_as_service_account(claims)
    }

    /// Sets the endpoint that pushes go to.
    pub fn set_push(&self, endpoint: Option<PushEndpoint>) {
        self.provider.push.set(endpoint);
    }

    pub fn push_counts(&self) -> push::PushCounts {
        self.provider.push.counts()
    }

    /// Returns whether the account's owner may sign in.
    pub(super) fn may_sign_in(&self, account: &str) -> bool {
        let person = self.find(account).map(|mailbox| self.person(&mailbox));
        person.is_some_and(|person| person.is_present() && !person.is_suspended && !person.is_archived)
    }
}

/// Creates the mailbox. Returns `false` if a present person has it.
fn open(world: &GoogleWorld, address: &str, messages: usize, seed: Option<u64>) -> bool {
    let person = world.provider.people.find(address);
    let id = person.map_or_else(|| oauth::subject(address), |person| person.id);
    world.open_mailbox(address, id, messages, seed, Mutex::default())
}

/// Builds ids in Google's format.
fn build_id(of: &str, name: &str) -> String {
    match of {
        "person" => oauth::subject(name),
        "organisation" => format!("C0{}", Rng::new(opaque_token::checksum(1, name)).hex(7)),
        _ => format!("0{}", Rng::new(opaque_token::checksum(2, name)).hex(14)),
    }
}

fn is_personal(address: &str) -> bool {
    ["gmail.com", "googlemail.com"].contains(&domain_of(address))
}
