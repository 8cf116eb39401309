//! The state of one simulated Microsoft: mailboxes, directories, tokens, subscriptions, limits and faults.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::account::{MailboxEvent, OutlookAccount};
use super::directory::{Authority, CONSUMERS, Directories, Directory, DirectoryChange, guid, is_personal};
use super::faults::MicrosoftFaultKind;
use super::identity::{self, CLIENT_ID, Identity, MicrosoftClient, MicrosoftGrant, MicrosoftTokenStore, SCOPES};
use super::message_view::MessageViews;
use super::subscriptions::{self, LifecycleEvent, NotificationSettings, Subscription, Subscriptions};
use super::throttle::{OutlookLimits, Throttle};
use super::{api, control};
use crate::consent::IssuedTokens;
use crate::mailbox_registry::ProviderMailbox;
use crate::people::{PeopleDirectory, PeopleProvider, Person};
use crate::provider_server::{HttpProvider, ProviderServer};
use crate::sign_in::{SignIn, SignInProvider};
use crate::world::{AccountSpec, Provider, ProviderWorld};

/// What Microsoft has of its own.
#[derive(Debug)]
pub struct Microsoft {
    directories: RwLock<Directories>,
    pub(super) people: PeopleDirectory,
    pub(super) identity: Identity,
    pub(super) subscriptions: Subscriptions,
    pub(super) throttle: Throttle,
    pub(super) views: MessageViews,
    errors: AtomicU64,
    /// Mail requests without immutable ids, by address.
    without_immutable_ids: Mutex<BTreeMap<String, u64>>,
}

/// The state of a mailbox beside its account.
#[derive(Debug)]
pub struct DirectoryMembership {
    /// The id of the directory.
    pub directory: String,
}

pub type MicrosoftWorld = ProviderWorld<Microsoft>;
pub type MicrosoftMailbox = ProviderMailbox<Microsoft>;
pub type MicrosoftServer = ProviderServer<Microsoft>;

impl Provider for Microsoft {
    type FaultKind = MicrosoftFaultKind;
    type Account = OutlookAccount;
    type MailboxState = DirectoryMembership;

    const DOMAIN: &'static str = "contoso.example";

    fn new(seed: u64, letters: usize) -> Self {
        Self {
            directories: RwLock::default(),
            people: PeopleDirectory::new(build_id),
            identity: Identity::new(seed),
            subscriptions: Subscriptions::new(seed),
            throttle: Throttle::default(),
            views: MessageViews::new(letters),
            errors: AtomicU64::new(0),
            without_immutable_ids: Mutex::default(),
        }
    }

    /// Creates an account of a company, or a personal one, by the domain of its address.
    fn create(world: &MicrosoftWorld, spec: &AccountSpec) -> bool {
        let address = spec.address.to_lowercase();
        let directory = if is_personal(&address) {
            Some(CONSUMERS.to_owned())
        } else {
            world.provider.people.add_person(&address, world.now_ms())
        };
        directory.is_some_and(|directory| open(world, &address, &directory, spec.messages, spec.seed))
    }

    fn change<T>(
        world: &MicrosoftWorld,
        mailbox: &MicrosoftMailbox,
        change: impl FnOnce(&mut OutlookAccount) -> T,
    ) -> T {
        let (changed, events): (T, Vec<MailboxEvent>) = {
            let mut account = mailbox.account();
            let changed = change(&mut account);
            (changed, std::mem::take(&mut account.events))
        };
        subscriptions::publish_events(world, mailbox, &events);
        changed
    }

    fn find_key(&self, name: &str) -> Option<String> {
        self.people.find(name).map(|person| person.account)
    }

    fn is_active(world: &MicrosoftWorld, mailbox: &MicrosoftMailbox) -> bool {
        world.person(mailbox).has_mailbox()
    }

    fn describe(mailbox: &MicrosoftMailbox) -> Value {
        json!({
            "address": mailbox.address, "id": mailbox.id, "directory": mailbox.state.directory,
            "messages": mailbox.message_count(),
        })
    }

    fn request_report(world: &MicrosoftWorld) -> Response {
        let totals = world.requests();
        let without_immutable_ids = world.without_immutable_ids();
        Json(json!({
            "all": totals.all, "accounts": totals.accounts, "without_immutable_ids": without_immutable_ids,
        }))
        .into_response()
    }

    fn clear_request_report(world: &MicrosoftWorld) {
        world.provider.throttle.clear_peaks();
        world.clear_requests();
        world.provider.without_immutable_ids.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl HttpProvider for Microsoft {
    fn routes() -> Router<Arc<MicrosoftWorld>> {
        api::routes().merge(control::routes())
    }

    fn deliver_pushes(world: Arc<MicrosoftWorld>) -> impl Future<Output = ()> + Send {
        subscriptions::run(world)
    }
}

impl SignInProvider for Microsoft {
    type Tokens = MicrosoftTokenStore;

    const CLIENT_ID: &'static str = CLIENT_ID;
    const SCOPES: &'static [&'static str] = &SCOPES;

    fn sign_in(&self) -> &SignIn<MicrosoftTokenStore> {
        &self.identity
    }

    fn issue(world: &MicrosoftWorld, mailbox: &MicrosoftMailbox, client: &str, scopes: Vec<String>) -> IssuedTokens {
        let grant = MicrosoftGrant {
            account: Some(mailbox.address.clone()),
            directory: mailbox.state.directory.clone(),
            client: client.to_owned(),
            scopes,
        };
        world.provider.identity.tokens_mut().grant(&grant, world.now_ms())
    }
}

impl PeopleProvider for Microsoft {
    fn people(&self) -> &PeopleDirectory {
        &self.people
    }

    fn open_mailbox(world: &MicrosoftWorld, account: &str, organisation: &str, messages: usize) {
        open(world, account, organisation, messages, None);
    }
}

impl MicrosoftWorld {
    /// Creates the directory of an organisation, which holds its consents.
    fn open_directory(&self, id: &str) {
        let domain = self.provider.people.read().get(id).map(|organisation| organisation.domain().to_owned());
        if let Some(domain) = domain {
            self.provider.directories.write().unwrap_or_else(PoisonError::into_inner).of_domain(&domain);
        }
    }

    /// Returns the number of mail requests without immutable ids, by address.
    pub fn without_immutable_ids(&self) -> BTreeMap<String, u64> {
        self.provider.without_immutable_ids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn count_without_immutable_ids(&self, address: &str) {
        let mut counts = self.provider.without_immutable_ids.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(address.to_owned()).or_default() += 1;
    }

    /// Sets the limits. `None`: no limit.
    pub fn set_quota(&self, limits: Option<OutlookLimits>) {
        self.provider.throttle.set(limits);
    }

    /// Returns the highest concurrency of one client seen, by address.
    pub fn most_at_once(&self) -> BTreeMap<String, u32> {
        self.provider.throttle.most_at_once()
    }

    /// Lists subscriptions that have not expired.
    pub fn subscriptions(&self) -> Vec<Subscription> {
        self.provider.subscriptions.list(self.now_ms())
    }

    /// Removes a subscription, with a lifecycle notification unless `is_silent`. Returns `false` if there is none.
    pub fn remove_subscription(&self, id: &str, is_silent: bool) -> bool {
        let Some(removed) = self.provider.subscriptions.remove(id) else { return false };
        if !is_silent {
            subscriptions::send_lifecycle(self, &removed, LifecycleEvent::SubscriptionRemoved);
        }
        true
    }

    /// Sends a lifecycle notification. Returns `false` without such a subscription or its URL.
    pub fn send_lifecycle(&self, id: &str, event: LifecycleEvent) -> bool {
        let Some(subscription) = self.provider.subscriptions.find(id, self.now_ms()) else { return false };
        match event {
            LifecycleEvent::ReauthorizationRequired => self.provider.subscriptions.pause(id),
            LifecycleEvent::SubscriptionRemoved => return self.remove_subscription(id, false),
            LifecycleEvent::Missed => {}
        }
        subscriptions::send_lifecycle(self, &subscription, event)
    }

    pub fn set_notifications(&self, settings: NotificationSettings) {
        self.provider.subscriptions.set(settings);
    }

    pub fn notification_counts(&self) -> subscriptions::NotificationCounts {
        self.provider.subscriptions.counts()
    }

    /// Returns the first addresses that can sign in at the authority.
    pub(super) fn first_addresses(&self, count: usize, authority: &Authority) -> Vec<String> {
        self.mailboxes.first(count, |mailbox| authority.accepts(&mailbox.state.directory))
    }

    /// Sets strict mode: reuse of a refresh token revokes its family.
    pub fn set_strict_refresh(&self, is_strict: bool) {
        self.provider.identity.tokens_mut().is_strict = is_strict;
    }

    pub fn register_client(&self, client: MicrosoftClient) {
        let id = client.id.to_lowercase();
        self.provider.identity.register(id.clone(), MicrosoftClient { id, ..client });
    }

    /// Changes a directory, by id or domain, and creates it if necessary. Personal accounts have none.
    pub fn change_directory(&self, name: &str, change: &DirectoryChange) {
        let id = self.directory_id(name).unwrap_or_else(|| self.provider.people.write().organisation_of_domain(name));
        self.open_directory(&id);
        let mut directories = self.provider.directories.write().unwrap_or_else(PoisonError::into_inner);
        let Some(directory) = directories.find_mut(&id) else { return };
        let client = change.client_id.clone().unwrap_or_else(|| CLIENT_ID.to_owned());
        match change.admin_consent {
            Some(true) => {
                let permissions = change.permissions.clone().unwrap_or_else(identity::permissions);
                directory.consents.insert(client, permissions);
            }
            Some(false) => drop(directory.consents.remove(&client)),
            None => {}
        }
        directory.user_consent = change.user_consent.unwrap_or(directory.user_consent);
    }

    pub fn directories(&self) -> Vec<Directory> {
        self.provider.directories.read().unwrap_or_else(PoisonError::into_inner).list()
    }

    /// Finds a directory by id or domain.
    pub fn directory(&self, name: &str) -> Option<Directory> {
        let id = self.directory_id(name)?;
        self.provider.directories.read().unwrap_or_else(PoisonError::into_inner).find(&id).cloned()
    }

    /// Finds a directory's id by id or domain.
    fn directory_id(&self, name: &str) -> Option<String> {
        self.provider.people.read().get(&name.to_lowercase()).map(|organisation| organisation.id.clone())
    }

    pub(super) fn tenant(&self, name: &str) -> Option<Authority> {
        let name = self.directory_id(name).unwrap_or_else(|| name.to_owned());
        self.provider.directories.read().unwrap_or_else(PoisonError::into_inner).tenant(&name)
    }

    /// Returns the permissions that an administrator has consented to for the client.
    pub(super) fn consented(&self, directory: &str, client: &str) -> Option<Vec<String>> {
        self.directory(directory)?.consents.get(client).cloned()
    }

    /// Returns whether users may consent to the client, or an administrator has consented for them.
    pub(super) fn may_consent(&self, directory: &str, client: &str) -> bool {
        directory == CONSUMERS
            || self
                .directory(directory)
                .is_some_and(|directory| directory.user_consent || directory.consents.contains_key(client))
    }

    /// Finds the mailbox of a present user by id or principal name. Other addresses do not count.
    pub(super) fn user(&self, directory: &str, name: &str) -> Option<Arc<MicrosoftMailbox>> {
        let account = {
            let organisations = self.provider.people.read();
            let organisation = organisations.get(directory)?;
            let domain = organisation.domain();
            let found = if name.contains("#EXT#") {
                organisation.present().map(|(_, person)| person).find(|person| has_sign_in_name(person, domain, name))
            } else {
                organisations
                    .person(name)
                    .filter(|person| person.is_present() && has_sign_in_name(person, domain, name))
            };
            found
                .filter(|person| {
                    organisations.find(&person.id).is_some_and(|found| found.organisation == organisation.id)
                })?
                .account
                .clone()
        };
        self.mailboxes.find(&account)
    }

    /// Returns a new number for an error's request id.
    pub(super) fn next_error_number(&self) -> u64 {
        self.provider.errors.fetch_add(1, Ordering::Relaxed)
    }
}

/// Creates the mailbox. Returns `false` if a present person has it.
fn open(world: &MicrosoftWorld, address: &str, directory: &str, messages: usize, seed: Option<u64>) -> bool {
    let person = world.provider.people.find(address);
    world.open_directory(directory);
    let id = person.map_or_else(|| guid(&format!("person {address}")), |person| person.id);
    world.open_mailbox(address, id, messages, seed, DirectoryMembership { directory: directory.to_owned() })
}

/// Builds ids in Microsoft's format.
fn build_id(of: &str, name: &str) -> String {
    match of {
        "organisation" => guid(&format!("directory {name}")),
        of => guid(&format!("{of} {name}")),
    }
}

fn has_sign_in_name(person: &Person, domain: &str, name: &str) -> bool {
    person.id == name || principal_name(person, domain).eq_ignore_ascii_case(name)
}

/// Returns the user principal name. Guests have one with `#EXT#`.
pub fn principal_name(person: &Person, domain: &str) -> String {
    if person.is_guest { format!("{}#EXT#@{domain}", person.address.replace('@', "_")) } else { person.address.clone() }
}
