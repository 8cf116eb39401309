//! All mailboxes of one simulated Google, who may read them, and what goes wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::account::{Account, Refused};
use super::faults::Kind;
use super::oauth::{self, Client, Granted, OAuth, ServiceAccount};
use super::operation::{Applied, Operation};
use super::push::{self, Endpoint, Push, Watches};
use super::quota::{Limits, Quota};
use super::truth::Truth;
use crate::lazily::Lazily;
use crate::mail::rng::Rng;
use crate::mailboxes::{Mailboxes, Owned};
use crate::opaque;
use crate::people::{Organised, People, Person, domain_of};
use crate::stage::Stage;
use crate::steer::{Changing, Steered};

pub use crate::scripted::Now;

/// How often somebody is looked for who gets mail.
const DRAWS: usize = 20;

pub struct World {
    seed: u64,
    stage: Stage<Kind>,
    pub(super) people: People,
    mailboxes: Mailboxes<Mailbox>,
    pub(super) oauth: OAuth,
    pub(super) push: Push,
    pub(super) quota: Quota,
    rng: Mutex<Rng>,
}

pub(super) struct Mailbox {
    /// The first address that the person had: what everything here is known by.
    pub address: String,
    /// What Google knows the person by, whatever the address.
    pub id: String,
    account: Lazily<Account>,
    /// Whether the account has Gmail at all.
    pub has_mail_service: AtomicBool,
    pub watches: Mutex<Watches>,
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

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl World {
    /// `letters`: how many different letters its mail is made of.
    pub fn new(seed: u64, letters: usize, now: Now) -> Self {
        Self {
            seed,
            stage: Stage::new(seed, letters, now),
            people: People::new(naming),
            mailboxes: Mailboxes::default(),
            oauth: OAuth::new(seed),
            push: Push::new(seed),
            quota: Quota::default(),
            rng: Mutex::new(Rng::new(seed)),
        }
    }

    /// Whether there was none of this address yet.
    pub fn create(&self, new: &NewAccount) -> bool {
        let address = new.address.to_lowercase();
        let is_there = is_personal(&address) || self.people.enrol(&address, self.now_ms()).is_some();
        is_there && self.open(&address, new.messages, new.seed)
    }

    /// Whether nobody had it who is still there.
    fn open(&self, address: &str, messages: usize, seed: Option<u64>) -> bool {
        self.mailboxes.add(Mailbox {
            id: self.people.find(address).map_or_else(|| oauth::subject(address), |person| person.id),
            address: address.to_owned(),
            account: Lazily::new(self.beginning(seed, address, messages), |beginning| {
                let mut account = Account::new(beginning.seed);
                account.fill(beginning.messages, &beginning.letters, beginning.at);
                account
            }),
            has_mail_service: AtomicBool::new(true),
            watches: Mutex::default(),
        })
    }

    /// `user1@sim.example` and so on. Those that are there stay as they are.
    pub fn create_many(&self, count: usize, messages: usize) -> usize {
        let new = |number| NewAccount { address: format!("user{number}@sim.example"), messages, seed: None };
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

    /// Whoever watches the mailbox is told.
    fn change<T>(&self, mailbox: &Mailbox, change: impl FnOnce(&mut Account) -> T) -> T {
        let (changed, seen) = {
            let mut account = mailbox.account();
            let before = account.history_id();
            let changed = change(&mut account);
            let seen = (account.history_id() != before).then(|| (account.history_id(), account.last_labels()));
            (changed, seen)
        };
        if let Some((history_id, labels)) = seen {
            push::tell(self, mailbox, history_id, &labels);
        }
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

    pub fn addresses(&self) -> Vec<String> {
        self.first_addresses(usize::MAX)
    }

    pub(super) fn first_addresses(&self, count: usize) -> Vec<String> {
        self.mailboxes.first(count, |_| true)
    }

    /// Nothing: there is no limit.
    pub fn set_quota(&self, limits: Option<Limits>) {
        self.quota.set(limits);
    }

    /// Whether the account has Gmail; without it, every call is 400 `failedPrecondition`.
    pub fn set_mail_service(&self, address: &str, is_enabled: bool) -> bool {
        let found = self.find(address);
        found.map(|mailbox| mailbox.has_mail_service.store(is_enabled, Ordering::Relaxed)).is_some()
    }

    /// Tokens for reading an account's mail, as if its owner had just allowed the default client to.
    pub fn grant(&self, address: &str) -> Option<Granted> {
        self.grant_to(address, oauth::CLIENT_ID, &[oauth::READONLY])
    }

    pub fn grant_to(&self, address: &str, client: &str, scopes: &[&str]) -> Option<Granted> {
        let mailbox = self.find(address)?;
        Some(self.oauth.grant(&mailbox.address, client, scopes, self.now_ms()))
    }

    /// All of them: the account's owner has changed the password, or taken the consent back.
    pub fn revoke_tokens(&self, address: &str) {
        self.oauth.revoke_account(&address.to_lowercase());
    }

    /// Refresh tokens stay. All accounts', or one's.
    pub fn expire_access_tokens(&self, address: Option<&str>) {
        self.oauth.expire_access_tokens(address.map(str::to_lowercase).as_deref());
    }

    pub fn set_access_token_lifetime(&self, seconds: i64) {
        self.oauth.set_lifetime(seconds);
    }

    pub fn token_counts(&self) -> BTreeMap<String, oauth::Counts> {
        self.oauth.counts()
    }

    pub fn register_client(&self, client: Client) {
        self.oauth.register(client);
    }

    /// The scopes that the service account may use for others; nothing: all.
    pub fn set_delegated_scopes(&self, scopes: Option<Vec<String>>) {
        self.oauth.set_delegated(None, scopes);
    }

    /// The same in one organisation, whatever holds for the others; nothing: as for them.
    pub fn set_delegated_scopes_of(&self, domain: &str, scopes: Option<Vec<String>>) {
        let organisation = self.people.write().of_domain(domain);
        self.oauth.set_delegated(Some(&organisation), scopes);
    }

    /// Another key signs from now on; its name.
    pub fn rotate_keys(&self, is_old_forgotten: bool) -> String {
        self.oauth.rotate_keys(is_old_forgotten)
    }

    /// The service account's key file, as Google's console gives it.
    pub fn service_account_key(&self) -> Value {
        ServiceAccount::key_file(&self.url())
    }

    /// A token that the service account's key has signed.
    pub fn sign_as_service_account(&self, claims: &Value) -> String {
        self.oauth.sign_as_service_account(claims)
    }

    /// Where changes of watched accounts are pushed to.
    pub fn set_push(&self, endpoint: Option<Endpoint>) {
        self.push.set(endpoint);
    }

    pub fn push_counts(&self) -> push::Counts {
        self.push.counts()
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

    /// Whether somebody may sign in, or be signed in for.
    pub(super) fn may_sign_in(&self, account: &str) -> bool {
        let person = self.find(account).map(|mailbox| self.person(&mailbox));
        person.is_some_and(|person| person.is_present() && !person.is_suspended && !person.is_archived)
    }

    pub(super) fn all(&self) -> Vec<Arc<Mailbox>> {
        self.mailboxes.all()
    }
}

impl Organised for World {
    fn people(&self) -> &People {
        &self.people
    }

    fn open_mailbox(&self, account: &str, _: &str, messages: usize) {
        self.open(account, messages, None);
    }

    fn end_sign_in(&self, account: &str) {
        self.expire_access_tokens(Some(account));
    }
}

/// Ids as Google writes them.
fn naming(of: &str, name: &str) -> String {
    match of {
        "person" => oauth::subject(name),
        "organisation" => format!("C0{}", Rng::new(opaque::sum(1, name)).hex(7)),
        _ => format!("0{}", Rng::new(opaque::sum(2, name)).hex(14)),
    }
}

fn is_personal(address: &str) -> bool {
    ["gmail.com", "googlemail.com"].contains(&domain_of(address))
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
