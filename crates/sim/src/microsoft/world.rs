//! All accounts of one simulated Microsoft, who may read them, and what goes wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::account::{Account, Event, Refused};
use super::directory::{CONSUMERS, Directories, Directory, DirectoryChange, Tenant, guid, is_personal};
use super::face::Faces;
use super::faults::Kind;
use super::identity::{self, Asked, CLIENT_ID, Client, Identity, SCOPES};
use super::operation::{Applied, Operation};
use super::subscriptions::{self, LifecycleEvent, Settings, Subscription, Subscriptions};
use super::throttle::{Limits, Throttle};
use super::truth::Truth;
use crate::consent::Granted;
use crate::lazily::Lazily;
use crate::mail::rng::Rng;
use crate::mailboxes::{Mailboxes, Owned};
use crate::people::{Organised, People, Person};
use crate::stage::Stage;
use crate::steer::{Changing, Steered};

pub use crate::scripted::Now;

/// How often somebody is looked for who gets mail.
const DRAWS: usize = 20;

pub struct World {
    seed: u64,
    stage: Stage<Kind>,
    directories: RwLock<Directories>,
    pub(super) people: People,
    mailboxes: Mailboxes<Mailbox>,
    pub(super) identity: Identity,
    pub(super) subscriptions: Subscriptions,
    pub(super) throttle: Throttle,
    pub(super) faces: Faces,
    answers: AtomicU64,
    /// Calls about mail that did not ask for ids that stay, by address.
    without_immutable_ids: Mutex<BTreeMap<String, u64>>,
    rng: Mutex<Rng>,
}

pub(super) struct Mailbox {
    /// The first address that the person had: what everything here is known by.
    pub address: String,
    /// What the directory knows the person by, whatever the address.
    pub id: String,
    /// The id of the directory.
    pub directory: String,
    /// Whether there is a mailbox at all.
    pub has_mail_service: AtomicBool,
    account: Lazily<Account>,
}

/// An account to be made: of a company, or personal, by the domain of its address.
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
        Self::set_mail_service(self, address, is_enabled)
    }
}

impl Steered for World {
    fn revoke_tokens(&self, address: &str) {
        Self::revoke_tokens(self, address);
    }

    fn expire_access_tokens(&self, address: Option<&str>) {
        Self::expire_access_tokens(self, address);
    }

    fn rotate_keys(&self, is_old_forgotten: bool) -> String {
        Self::rotate_keys(self, is_old_forgotten)
    }
}

impl World {
    /// `letters`: how many different letters its mail is made of.
    pub fn new(seed: u64, letters: usize, now: Now) -> Self {
        Self {
            seed,
            stage: Stage::new(seed, letters, now),
            directories: RwLock::default(),
            people: People::new(|of, name| match of {
                "organisation" => guid(&format!("directory {name}")),
                of => guid(&format!("{of} {name}")),
            }),
            mailboxes: Mailboxes::default(),
            identity: Identity::new(seed),
            subscriptions: Subscriptions::new(seed),
            throttle: Throttle::default(),
            faces: Faces::new(letters),
            answers: AtomicU64::new(0),
            without_immutable_ids: Mutex::default(),
            rng: Mutex::new(Rng::new(seed)),
        }
    }

    /// Whether there was none of this address yet.
    pub fn create(&self, new: &NewAccount) -> bool {
        let address = new.address.to_lowercase();
        let directory = match is_personal(&address) {
            true => Some(CONSUMERS.to_owned()),
            false => self.people.enrol(&address, self.now_ms()),
        };
        directory.is_some_and(|directory| self.open(&address, &directory, new.messages, new.seed))
    }

    /// Whether nobody had it who is still there.
    fn open(&self, address: &str, directory: &str, messages: usize, seed: Option<u64>) -> bool {
        let person = self.people.find(address);
        self.open_directory(directory);
        self.mailboxes.add(Mailbox {
            id: person.map_or_else(|| guid(&format!("person {address}")), |person| person.id),
            address: address.to_owned(),
            directory: directory.to_owned(),
            has_mail_service: AtomicBool::new(true),
            account: Lazily::new(self.beginning(seed, address, messages), |beginning| {
                let mut account = Account::new(beginning.seed);
                account.fill(beginning.messages, &beginning.letters, beginning.at);
                account
            }),
        })
    }

    /// The consents of a directory are kept beside its people.
    fn open_directory(&self, id: &str) {
        let domain = self.people.read().get(id).map(|organisation| organisation.domain().to_owned());
        if let Some(domain) = domain {
            self.directories.write().unwrap_or_else(PoisonError::into_inner).of_domain(&domain);
        }
    }

    /// `user1@contoso.example` and so on. Those that are there stay as they are.
    pub fn create_many(&self, count: usize, messages: usize) -> usize {
        let new = |number| NewAccount { address: format!("user{number}@contoso.example"), messages, seed: None };
        (1..=count).filter(|number| self.create(&new(*number))).count()
    }

    pub fn apply(&self, address: &str, operation: Operation) -> Result<Applied, Refused> {
        let mailbox = self.find(address).ok_or(Refused::NoAccount)?;
        let now = self.now();
        self.change(&mailbox, |account| account.apply(operation, &self.letters, now))
    }

    /// Random changes to one mailbox.
    pub fn step(&self, address: &str, count: usize) -> bool {
        let Some(mailbox) = self.find(address) else { return false };
        let now = self.now();
        (0..count).for_each(|_| self.change(&mailbox, |account| account.step(&self.letters, now)));
        true
    }

    /// Random changes to mailboxes by chance.
    pub fn step_any(&self, count: usize) {
        let now = self.now();
        for _ in 0..count {
            let Some(mailbox) = self.any_mailbox() else { return };
            self.change(&mailbox, |account| account.step(&self.letters, now));
            self.count_change();
        }
    }

    /// Whoever has a subscription is told.
    fn change<T>(&self, mailbox: &Mailbox, change: impl FnOnce(&mut Account) -> T) -> T {
        let (changed, events): (T, Vec<Event>) = {
            let mut account = mailbox.account();
            let changed = change(&mut account);
            (changed, std::mem::take(&mut account.events))
        };
        subscriptions::tell(self, mailbox, &events);
        changed
    }

    /// One by chance; those who have left get no mail, and after some of them it is nobody's turn.
    fn any_mailbox(&self) -> Option<Arc<Mailbox>> {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let mut drawn = (0..DRAWS).map_while(|_| self.mailboxes.any(&mut rng));
        drawn.find(|mailbox| self.person(mailbox).has_mailbox())
    }

    pub fn truth(&self, address: &str) -> Option<Truth> {
        Some(self.find(address)?.account().truth(&self.letters))
    }

    /// Calls about mail that did not ask for ids that stay, by address.
    pub fn without_immutable_ids(&self) -> BTreeMap<String, u64> {
        self.without_immutable_ids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn count_without_immutable_ids(&self, address: &str) {
        let mut counts = self.without_immutable_ids.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(address.to_owned()).or_default() += 1;
    }

    /// Nothing: there is no limit.
    pub fn set_quota(&self, limits: Option<Limits>) {
        self.throttle.set(limits);
    }

    /// The most requests of one program that were under way for a mailbox at the same time, by address.
    pub fn most_at_once(&self) -> BTreeMap<String, u32> {
        self.throttle.most_at_once()
    }

    /// Those that have not expired.
    pub fn subscriptions(&self) -> Vec<Subscription> {
        self.subscriptions.list(self.now_ms())
    }

    /// Silently, or with a word to where it wants to be told. Whether there was one.
    pub fn remove_subscription(&self, id: &str, is_silent: bool) -> bool {
        let Some(removed) = self.subscriptions.remove(id) else { return false };
        if !is_silent {
            subscriptions::send_lifecycle(self, &removed, LifecycleEvent::SubscriptionRemoved);
        }
        true
    }

    /// Whether there is such a subscription with somewhere to tell it.
    pub fn send_lifecycle(&self, id: &str, event: LifecycleEvent) -> bool {
        let Some(subscription) = self.subscriptions.find(id, self.now_ms()) else { return false };
        match event {
            LifecycleEvent::ReauthorizationRequired => self.subscriptions.pause(id),
            LifecycleEvent::SubscriptionRemoved => return self.remove_subscription(id, false),
            LifecycleEvent::Missed => {}
        }
        subscriptions::send_lifecycle(self, &subscription, event)
    }

    pub fn set_notifications(&self, settings: Settings) {
        self.subscriptions.set(settings);
    }

    pub fn notification_counts(&self) -> subscriptions::Counts {
        self.subscriptions.counts()
    }

    pub(super) fn forget_counts(&self) {
        self.throttle.forget();
        self.forget_requests();
        self.without_immutable_ids.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub fn addresses(&self) -> Vec<String> {
        self.first_addresses(usize::MAX, &Tenant::Common)
    }

    /// Of those who can sign in there.
    pub(super) fn first_addresses(&self, count: usize, place: &Tenant) -> Vec<String> {
        self.mailboxes.first(count, |mailbox| place.takes(&mailbox.directory))
    }

    /// Whether the account has a mailbox; without it, every call is 404 `MailboxNotEnabledForRESTAPI`.
    pub fn set_mail_service(&self, address: &str, is_enabled: bool) -> bool {
        let found = self.find(address);
        found.map(|mailbox| mailbox.has_mail_service.store(is_enabled, Ordering::Relaxed)).is_some()
    }

    /// Tokens for reading an account's mail, as if its owner had just allowed the test client to.
    pub fn grant(&self, address: &str) -> Option<Granted> {
        self.grant_to(address, CLIENT_ID, &SCOPES)
    }

    pub fn grant_to(&self, address: &str, client: &str, scopes: &[&str]) -> Option<Granted> {
        let mailbox = self.find(address)?;
        let asked = Asked {
            account: Some(mailbox.address.clone()),
            directory: mailbox.directory.clone(),
            client: client.to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        };
        Some(self.identity.grant(&asked, self.now_ms()))
    }

    /// All of them: the account's owner, or an administrator, has taken the consent back.
    pub fn revoke_tokens(&self, address: &str) {
        self.identity.revoke_account(&address.to_lowercase());
    }

    /// Refresh tokens stay. All accounts', or one's.
    pub fn expire_access_tokens(&self, address: Option<&str>) {
        self.identity.expire_access_tokens(address.map(str::to_lowercase).as_deref());
    }

    pub fn set_access_token_lifetime(&self, seconds: i64) {
        self.identity.set_lifetime(seconds);
    }

    /// Whether a refresh token that was used before ends its whole family.
    pub fn set_strict_refresh(&self, is_strict: bool) {
        self.identity.set_strict(is_strict);
    }

    pub fn token_counts(&self) -> BTreeMap<String, identity::Counts> {
        self.identity.counts()
    }

    pub fn register_client(&self, client: Client) {
        self.identity.register(Client { id: client.id.to_lowercase(), ..client });
    }

    /// Another key signs from now on; its name.
    pub fn rotate_keys(&self, is_old_forgotten: bool) -> String {
        self.identity.rotate_keys(is_old_forgotten)
    }

    /// By id or domain; it is made if there is none. Personal accounts have none.
    pub fn change_directory(&self, name: &str, change: &DirectoryChange) {
        let id = self.directory_id(name).unwrap_or_else(|| self.people.write().of_domain(name));
        self.open_directory(&id);
        let mut directories = self.directories.write().unwrap_or_else(PoisonError::into_inner);
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
        self.directories.read().unwrap_or_else(PoisonError::into_inner).list()
    }

    /// By id or domain.
    pub fn directory(&self, name: &str) -> Option<Directory> {
        let id = self.directory_id(name)?;
        self.directories.read().unwrap_or_else(PoisonError::into_inner).find(&id).cloned()
    }

    /// Of one of its domains, or the id itself.
    fn directory_id(&self, name: &str) -> Option<String> {
        self.people.read().get(&name.to_lowercase()).map(|organisation| organisation.id.clone())
    }

    pub(super) fn tenant(&self, name: &str) -> Option<Tenant> {
        let name = self.directory_id(name).unwrap_or_else(|| name.to_owned());
        self.directories.read().unwrap_or_else(PoisonError::into_inner).tenant(&name)
    }

    /// What an administrator has allowed the program there.
    pub(super) fn consented(&self, directory: &str, client: &str) -> Option<Vec<String>> {
        self.directory(directory)?.consents.get(client).cloned()
    }

    /// Whether people of the directory may consent to the program, or an administrator has done it for them.
    pub(super) fn may_consent(&self, directory: &str, client: &str) -> bool {
        directory == CONSUMERS
            || self
                .directory(directory)
                .is_some_and(|directory| directory.user_consent || directory.consents.contains_key(client))
    }

    /// By any address that the person has or had, or by id.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Mailbox>> {
        let by_person = || self.mailboxes.find(&self.people.find(name)?.account);
        self.mailboxes.find(name).or_else(by_person)
    }

    /// Who has the mailbox, as the directory knows them; personal accounts have nobody but themselves.
    pub(super) fn person(&self, mailbox: &Mailbox) -> Person {
        self.people.find(&mailbox.id).unwrap_or_else(|| Person::alone(&mailbox.id, &mailbox.address))
    }

    /// Somebody in a directory who is there, by id or by the name that they sign in with: other addresses do not count.
    pub(super) fn user(&self, directory: &str, name: &str) -> Option<Arc<Mailbox>> {
        let account = {
            let organisations = self.people.read();
            let organisation = organisations.get(directory)?;
            let is_named = |person: &Person| {
                person.id == name || principal_name(person, organisation.domain()).eq_ignore_ascii_case(name)
            };
            let found = match name.contains("#EXT#") {
                true => organisation.present().map(|(_, person)| person).find(|person| is_named(person)),
                false => organisations.person(name).filter(|person| person.is_present() && is_named(person)),
            };
            let is_here = |person: &&Person| {
                organisations.find(&person.id).is_some_and(|found| found.organisation == organisation.id)
            };
            found.filter(is_here)?.account.clone()
        };
        self.mailboxes.find(&account)
    }

    pub(super) fn all(&self) -> Vec<Arc<Mailbox>> {
        self.mailboxes.all()
    }

    /// How many errors were told, so that each has an id of its own.
    pub(super) fn count_answer(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::Relaxed)
    }
}

impl Organised for World {
    fn people(&self) -> &People {
        &self.people
    }

    fn open_mailbox(&self, account: &str, organisation: &str, messages: usize) {
        self.open(account, organisation, messages, None);
    }

    fn end_sign_in(&self, account: &str) {
        self.expire_access_tokens(Some(account));
    }
}

/// What somebody signs in with. Those from elsewhere have a name that tells it.
pub fn principal_name(person: &Person, domain: &str) -> String {
    match person.is_guest {
        true => format!("{}#EXT#@{domain}", person.address.replace('@', "_")),
        false => person.address.clone(),
    }
}

impl Owned for Mailbox {
    fn address(&self) -> &str {
        &self.address
    }

    fn id(&self) -> &str {
        &self.id
    }
}

impl Mailbox {
    pub fn account(&self) -> MutexGuard<'_, Account> {
        self.account.get()
    }

    pub fn message_count(&self) -> usize {
        self.account.look(|beginning| beginning.messages, Account::message_count)
    }
}
