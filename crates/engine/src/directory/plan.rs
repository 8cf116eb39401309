//! Plans what a discovery changes for users and their mailboxes. Decided from the records alone; changes nothing.

use std::collections::HashMap;

use domain::{
    DirectoryLocation, DirectoryPerson, DirectoryRules, ExclusionReason, GroupMembers, MailboxId, MailboxSettings,
    MailboxState, Provider, UserId,
};
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use store::sql::users::{MailboxHolder, User, UserWithMailbox};

use super::DiscoveryReport;

/// Users that are planned together and applied in one commit.
pub const BATCH_USERS: u64 = 500;

#[derive(Debug)]
pub struct Planner<'a> {
    pub rules: &'a DirectoryRules,
    pub groups: &'a GroupMembers,
    pub location: &'a DirectoryLocation,
    pub provider: Provider,
    /// The current addresses of users where they are not recorded, as in a dry run.
    pub current_addresses: HashMap<UserId, Option<String>>,
}

/// What is to be done for a user.
#[derive(Debug, Clone)]
pub enum UserAction {
    Nothing,
    /// The user had no active mailbox, and still has none, for this reason.
    Exclude(ExclusionReason),
    Remove(ExclusionReason),
    /// A new mailbox of this address; an import mailbox of that address is converted.
    Add {
        address: String,
        replaces: Option<MailboxId>,
    },
    /// An existing mailbox becomes theirs, with this address.
    Adopt {
        mailbox: Box<Mailbox>,
        address: String,
    },
    /// Their mailbox continues: it is switched on, renamed or connected again.
    Continue {
        returns: bool,
        rename: Option<String>,
        reconnect: bool,
    },
}

/// A user, what is to be done, and the mailbox that has to give up its address for that.
#[derive(Debug, Clone)]
pub struct PlannedUser {
    pub known: UserWithMailbox,
    pub action: UserAction,
    pub displaced: Option<(Box<Mailbox>, String)>,
}

impl Planner<'_> {
    pub fn left_out(&self, known: &UserWithMailbox) -> Option<ExclusionReason> {
        if known.user.is_listed {
            self.rules.exclusion(&known.user.person, self.groups)
        } else {
            Some(ExclusionReason::Gone)
        }
    }

    /// Counts the users and those that would go, before anything is changed.
    pub async fn count(
        &self,
        store: &TenantStore,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<DiscoveryReport, super::DiscoveryError> {
        let (mut report, mut after) = (DiscoveryReport::default(), None);
        loop {
            let known = store.list_users_with_mailboxes(self.provider, after, BATCH_USERS).await?;
            let Some(last) = known.last() else { return Ok(report) };
            after = Some(last.user.id);
            known.iter().for_each(|known| self.count_one(known, &mut report));
            progress();
        }
    }

    pub fn count_one(&self, known: &UserWithMailbox, report: &mut DiscoveryReport) {
        report.people += u64::from(known.user.is_listed);
        report.before += u64::from(known.user.is_active);
        if let Some(reason) = self.left_out(known) {
            *report.left_out.entry(reason.as_str().to_owned()).or_default() += 1;
            report.leaving += u64::from(known.user.is_active);
        }
    }

    /// Plans the actions for these users, in this order.
    pub async fn plan(
        &self,
        store: &TenantStore,
        known: Vec<UserWithMailbox>,
        is_stale: &IsStale<'_>,
    ) -> Result<Vec<PlannedUser>, super::DiscoveryError> {
        let wanted: Vec<String> = known
            .iter()
            .filter(|known| self.needs_address(known))
            .flat_map(|known| self.candidates(&known.user.person))
            .collect();
        let holders = store.list_mailbox_holders(wanted).await?;
        let holders = holders.into_iter().map(|holder| self.index_holder(holder)).collect();
        let mut candidates = AddressTable { provider: self.provider, holders, displaced: HashMap::new() };
        Ok(known.into_iter().map(|known| self.plan_one(known, &mut candidates, is_stale)).collect())
    }

    fn plan_one(&self, known: UserWithMailbox, candidates: &mut AddressTable, is_stale: &IsStale<'_>) -> PlannedUser {
        let (action, displaced) = match (self.left_out(&known), known.mailbox.clone()) {
            (Some(reason), _) if known.user.is_active => (UserAction::Remove(reason), None),
            (Some(reason), _) => (exclude(&known, reason), None),
            // A mailbox that a person has disconnected is not connected again behind their back.
            (None, Some(mailbox)) if mailbox.state == MailboxState::Disconnected => {
                let reason = ExclusionReason::Disconnected;
                (if known.user.is_active { UserAction::Remove(reason) } else { exclude(&known, reason) }, None)
            }
            (None, Some(mailbox)) => self.continue_mailbox(&known, &mailbox, candidates, is_stale),
            (None, None) => self.begin(&known, candidates),
        };
        PlannedUser { known, action, displaced }
    }

    fn continue_mailbox(
        &self,
        known: &UserWithMailbox,
        mailbox: &Mailbox,
        candidates: &mut AddressTable,
        is_stale: &IsStale<'_>,
    ) -> (UserAction, Option<(Box<Mailbox>, String)>) {
        let person = &known.user.person;
        let (mut rename, mut displaced) = (None, None);
        if self.needs_address(known) {
            let (address, from) = match candidates.find(person, &self.candidates(person), Some(mailbox.id)) {
                AddressLookup::Free { address, from } => (address, from),
                // Its address stays, or the one that an earlier user of this batch left it. The user that it opens must
                // not stay: that may be another person by now.
                _ => (candidates.displaced.get(&mailbox.id).unwrap_or(&mailbox.address).clone(), None),
            };
            let settings = self.connection(person, mailbox, &address);
            if address != mailbox.address || settings != mailbox.settings {
                let after = Mailbox { address: address.clone(), settings, ..mailbox.clone() };
                candidates.record_moved(&known.user, &mailbox.address, after);
                candidates.record_displaced(from.as_ref());
                (rename, displaced) = (Some(address), from);
            }
        }
        let returns = !known.user.is_active || !mailbox.is_active;
        // A mailbox in error is polled anyway, and shows why.
        let is_refused = mailbox.state == MailboxState::NeedsReauth;
        let reconnect = is_refused && is_app_only(mailbox) && (returns || is_stale(mailbox));
        if returns || rename.is_some() || reconnect {
            (UserAction::Continue { returns, rename, reconnect }, displaced)
        } else {
            (UserAction::Nothing, None)
        }
    }

    fn begin(
        &self,
        known: &UserWithMailbox,
        candidates: &mut AddressTable,
    ) -> (UserAction, Option<(Box<Mailbox>, String)>) {
        match candidates.find(&known.user.person, &self.candidates(&known.user.person), None) {
            AddressLookup::Free { address, from } => match candidates.find_by_alias(&known.user.person) {
                Some(mailbox) if mailbox.state == MailboxState::Disconnected => {
                    (exclude(known, ExclusionReason::Disconnected), None)
                }
                found => {
                    candidates.record_taken(&address, known.user.id);
                    candidates.record_displaced(from.as_ref());
                    let action = match found {
                        Some(mailbox) => {
                            candidates.holders.remove(&mailbox.address);
                            UserAction::Adopt { mailbox, address }
                        }
                        None => UserAction::Add { address, replaces: None },
                    };
                    (action, from)
                }
            },
            AddressLookup::Files { address, mailbox } => {
                candidates.record_taken(&address, known.user.id);
                (UserAction::Add { address, replaces: Some(mailbox) }, None)
            }
            AddressLookup::Theirs(mailbox) if mailbox.state == MailboxState::Disconnected => {
                (exclude(known, ExclusionReason::Disconnected), None)
            }
            AddressLookup::Theirs(mailbox) => {
                candidates.record_taken(&mailbox.address, known.user.id);
                (UserAction::Adopt { address: mailbox.address.clone(), mailbox }, None)
            }
            AddressLookup::Taken => (exclude(known, ExclusionReason::AddressTaken), None),
        }
    }

    fn index_holder(&self, holder: MailboxHolder) -> (String, AddressHolder) {
        let MailboxHolder { mailbox, user, user_address } = holder;
        let current_addresses = user.and_then(|(user, _)| self.current_addresses.get(&user)).cloned();
        let user_address = current_addresses.unwrap_or(user_address);
        (mailbox.address.clone(), AddressHolder { mailbox: Some(Box::new(mailbox)), user, user_address })
    }

    /// Returns whether the address or connection of their mailbox has to be planned.
    fn needs_address(&self, known: &UserWithMailbox) -> bool {
        if self.left_out(known).is_some() {
            return false;
        }
        known.mailbox.as_ref().is_none_or(|mailbox| {
            Some(&mailbox.address) != known.user.person.address.as_ref()
                || self.connection(&known.user.person, mailbox, &mailbox.address) != mailbox.settings
        })
    }

    /// Returns the addresses that their mailbox may have, the best first. A user who is in two directories of a tenant
    /// under one address has a mailbox at each, and here an address belongs to one mailbox: the second takes an alias
    /// or a suffix.
    fn candidates(&self, person: &DirectoryPerson) -> Vec<String> {
        let Some(address) = person.address.clone() else { return Vec::new() };
        let suffixed = with_suffix(&address, self.provider.as_str());
        let aliases = person.aliases.iter().flatten().cloned();
        std::iter::once(address).chain(aliases).chain([suffixed]).collect()
    }

    /// Returns the settings of a new mailbox of this address.
    pub fn settings(&self, person: &DirectoryPerson, name: &str) -> MailboxSettings {
        let mut connection = json!({"app_only": true, "user": self.user(person), "person": person.id});
        if let Some(directory) = &self.location.directory {
            connection["directory"] = json!(directory);
        }
        MailboxSettings::of_connection(with_account(connection, person, name))
    }

    /// Returns the settings of an existing mailbox with an updated connection.
    pub fn connection(&self, person: &DirectoryPerson, mailbox: &Mailbox, name: &str) -> MailboxSettings {
        let mut connection = mailbox.settings.connection.clone();
        if is_app_only(mailbox) {
            connection["user"] = json!(self.user(person));
        }
        // Identifies the user even when nothing else is recorded of them any more.
        connection["person"] = json!(person.id);
        let connection = with_account(connection, person, name);
        MailboxSettings { connection, ..mailbox.settings.clone() }
    }

    /// Returns the user id for the connection: Google knows users by their address, Graph by an id that never changes.
    fn user(&self, person: &DirectoryPerson) -> String {
        if self.provider.capabilities().identifies_users_by_address {
            person.address.clone().unwrap_or_default()
        } else {
            person.id.clone()
        }
    }
}

/// Decides whether a mailbox was refused so long ago that it is worth another try.
pub type IsStale<'a> = dyn Fn(&Mailbox) -> bool + Send + Sync + 'a;

/// Excludes a user, unless that is recorded already.
fn exclude(known: &UserWithMailbox, reason: ExclusionReason) -> UserAction {
    let is_known = known.user.left_out == Some(reason) && !known.user.is_active;
    if is_known { UserAction::Nothing } else { UserAction::Exclude(reason) }
}

pub fn is_app_only(mailbox: &Mailbox) -> bool {
    mailbox.settings.connection["app_only"] == true
}

/// Returns whether a mailbox opens, through our app, whoever has its address.
pub fn opens_by_address(mailbox: &Mailbox) -> bool {
    let user = mailbox.settings.connection["user"].as_str().unwrap_or(&mailbox.address);
    is_app_only(mailbox) && user == mailbox.address
}

/// Adds the address of the account at the provider where the mailbox has another one here: pushes carry it, and other
/// tenants may have the same account.
fn with_account(mut connection: Value, person: &DirectoryPerson, name: &str) -> Value {
    match person.address.as_deref() {
        Some(address) if address != name => connection["account"] = json!(address),
        _ => {
            if let Some(connection) = connection.as_object_mut() {
                connection.remove("account");
            }
        }
    }
    connection
}

/// Returns whether a mailbox may be theirs: one that a directory has assigned belongs to that user for good.
fn belongs_to(mailbox: &Mailbox, person: &DirectoryPerson) -> bool {
    mailbox.settings.connection["person"].as_str().is_none_or(|id| id == person.id)
}

fn free(address: &str) -> AddressLookup {
    AddressLookup::Free { address: address.to_owned(), from: None }
}

fn displacing(address: &str, mailbox: &Mailbox) -> AddressLookup {
    let displaced = with_suffix(address, &format!("former-{}", short_id(mailbox.id)));
    AddressLookup::Free { address: address.to_owned(), from: Some((Box::new(mailbox.clone()), displaced)) }
}

fn with_suffix(address: &str, word: &str) -> String {
    match address.rsplit_once('@') {
        Some((local, domain)) => format!("{local}+{word}@{domain}"),
        None => address.to_owned(),
    }
}

/// Who has which address by now.
#[derive(Debug)]
struct AddressTable {
    provider: Provider,
    holders: HashMap<String, AddressHolder>,
    /// The new addresses of mailboxes that gave up theirs since they were read.
    displaced: HashMap<MailboxId, String>,
}

#[derive(Debug)]
struct AddressHolder {
    /// `None`: the mailbox is about to be created.
    mailbox: Option<Box<Mailbox>>,
    user: Option<(UserId, Provider)>,
    user_address: Option<String>,
}

#[derive(Debug)]
enum AddressLookup {
    /// The address is free, or becomes so when `from` takes another one.
    Free {
        address: String,
        from: Option<(Box<Mailbox>, String)>,
    },
    /// An import mailbox, which becomes theirs.
    Files {
        address: String,
        mailbox: MailboxId,
    },
    /// A person connected it before.
    Theirs(Box<Mailbox>),
    Taken,
}

impl AddressHolder {
    /// Returns whether the address belongs to this mailbox.
    fn is_of(&self, mailbox: Option<MailboxId>) -> bool {
        mailbox.is_some() && self.mailbox.as_ref().map(|mailbox| mailbox.id) == mailbox
    }
}

impl AddressTable {
    fn find(&self, person: &DirectoryPerson, candidates: &[String], own: Option<MailboxId>) -> AddressLookup {
        let Some((address, others)) = candidates.split_first() else { return AddressLookup::Taken };
        let Some(held) = self.holders.get(address) else { return free(address) };
        if held.is_of(own) {
            return free(address);
        }
        match (&held.mailbox, held.user) {
            // The former owner has another address by now, or is gone: their mail stays theirs, under another address.
            (Some(mailbox), Some((_, provider)))
                if provider == self.provider && held.user_address.as_ref() != Some(address) =>
            {
                displacing(address, mailbox)
            }
            // The directory was removed since, and with it the record of who had the address.
            (Some(mailbox), None) if mailbox.provider == self.provider && !belongs_to(mailbox, person) => {
                displacing(address, mailbox)
            }
            (Some(mailbox), None) if mailbox.provider == self.provider && own.is_none() => {
                AddressLookup::Theirs(mailbox.clone())
            }
            (Some(mailbox), None) if mailbox.provider == Provider::Files && own.is_none() => {
                AddressLookup::Files { address: address.clone(), mailbox: mailbox.id }
            }
            // The user is in another directory of this tenant as well.
            (_, Some((_, provider))) if provider != self.provider => {
                let other = others.iter().find(|name| self.holders.get(*name).is_none_or(|held| held.is_of(own)));
                other.map_or(AddressLookup::Taken, |name| free(name))
            }
            _ => AddressLookup::Taken,
        }
    }

    /// Finds a mailbox that a person connected under an alias of the user, as people sign in at Microsoft.
    fn find_by_alias(&self, person: &DirectoryPerson) -> Option<Box<Mailbox>> {
        let held = person.aliases.iter().flatten().filter_map(|alias| self.holders.get(alias));
        let unowned = held.filter(|held| held.user.is_none()).filter_map(|held| held.mailbox.as_ref());
        let mut theirs = unowned.filter(|mailbox| mailbox.provider == self.provider && belongs_to(mailbox, person));
        theirs.next().cloned()
    }

    fn record_taken(&mut self, address: &str, user: UserId) {
        let held =
            AddressHolder { mailbox: None, user: Some((user, self.provider)), user_address: Some(address.to_owned()) };
        self.holders.insert(address.to_owned(), held);
    }

    fn record_displaced(&mut self, from: Option<&(Box<Mailbox>, String)>) {
        self.displaced.extend(from.map(|(mailbox, name)| (mailbox.id, name.clone())));
    }

    /// Records that a mailbox has another address; its old one is free.
    fn record_moved(&mut self, user: &User, from: &str, after: Mailbox) {
        if self.holders.get(from).is_some_and(|held| held.is_of(Some(after.id))) {
            self.holders.remove(from);
        }
        let (user, user_address) = (Some((user.id, self.provider)), user.person.address.clone());
        let address = after.address.clone();
        self.holders.insert(address, AddressHolder { mailbox: Some(Box::new(after)), user, user_address });
    }
}

/// Returns the random end of an id: ids of one moment begin alike.
fn short_id(mailbox: MailboxId) -> String {
    let text = mailbox.0.simple().to_string();
    text[text.len() - 8..].to_owned()
}
