//! What becomes of people and their mailboxes: decided from what is recorded of them, and changing nothing.

use std::collections::HashMap;

use domain::{Groups, LeftOut, MailboxId, MailboxState, Person, Provider, Rules, UserId};
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use store::sql::users::{Holder, KnownUser, User};

use super::{Place, Report};

/// People that are looked at together; what becomes of them is one commit.
pub const BATCH: u64 = 500;

#[derive(Debug)]
pub struct Planner<'a> {
    pub rules: &'a Rules,
    pub groups: &'a Groups,
    pub place: &'a Place,
    pub provider: Provider,
    /// Which address somebody has by now, if it is not recorded: nothing is in a dry run.
    pub told: HashMap<UserId, Option<String>>,
}

/// What is to be done for somebody.
#[derive(Debug, Clone)]
pub enum Action {
    Nothing,
    /// They had no mailbox that is looked at, and still have none, for this reason.
    StayOut(LeftOut),
    Leave(LeftOut),
    /// A mailbox of this name; one that took files so far becomes it.
    Add {
        address: String,
        over: Option<MailboxId>,
    },
    /// One that is here already, and is called so from now on.
    Adopt {
        mailbox: Box<Mailbox>,
        address: String,
    },
    /// The one they have goes on: it was switched off, is called otherwise now, or is tried again.
    GoOn {
        returns: bool,
        rename: Option<String>,
        again: bool,
    },
}

/// Somebody, what is to be done, and whose mailbox has to give up its name for that.
#[derive(Debug, Clone)]
pub struct Planned {
    pub known: KnownUser,
    pub action: Action,
    pub aside: Option<(Box<Mailbox>, String)>,
}

impl Planner<'_> {
    pub fn left_out(&self, known: &KnownUser) -> Option<LeftOut> {
        match known.user.is_there {
            true => self.rules.left_out(&known.user.person, self.groups),
            false => Some(LeftOut::Gone),
        }
    }

    /// Who there is and who would go, before anything is done.
    pub async fn count(
        &self,
        store: &TenantStore,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<Report, super::DiscoveryError> {
        let (mut report, mut after) = (Report::default(), None);
        loop {
            let known = store.list_known_users(self.provider, after, BATCH).await?;
            let Some(last) = known.last() else { return Ok(report) };
            after = Some(last.user.id);
            known.iter().for_each(|known| self.count_one(known, &mut report));
            progress();
        }
    }

    pub fn count_one(&self, known: &KnownUser, report: &mut Report) {
        report.people += u64::from(known.user.is_there);
        report.before += u64::from(known.user.is_active);
        if let Some(reason) = self.left_out(known) {
            *report.left_out.entry(reason.as_str().to_owned()).or_default() += 1;
            report.leaving += u64::from(known.user.is_active);
        }
    }

    /// What is to be done for these, in this order.
    pub async fn plan(
        &self,
        store: &TenantStore,
        known: Vec<KnownUser>,
        is_stale: &IsStale<'_>,
    ) -> Result<Vec<Planned>, super::DiscoveryError> {
        let wanted: Vec<String> = known
            .iter()
            .filter(|known| self.needs_name(known))
            .flat_map(|known| self.names(&known.user.person))
            .collect();
        let holders = store.list_holders(wanted).await?;
        let holders = holders.into_iter().map(|holder| self.by_address(holder)).collect();
        let mut names = Names { provider: self.provider, holders, aside: HashMap::new() };
        Ok(known.into_iter().map(|known| self.plan_one(known, &mut names, is_stale)).collect())
    }

    fn plan_one(&self, known: KnownUser, names: &mut Names, is_stale: &IsStale<'_>) -> Planned {
        let (action, aside) = match (self.left_out(&known), known.mailbox.clone()) {
            (Some(reason), _) if known.user.is_active => (Action::Leave(reason), None),
            (Some(reason), _) => (stay_out(&known, reason), None),
            // What somebody has ended is not begun again behind their back.
            (None, Some(mailbox)) if mailbox.state == MailboxState::Disconnected => match known.user.is_active {
                true => (Action::Leave(LeftOut::Disconnected), None),
                false => (stay_out(&known, LeftOut::Disconnected), None),
            },
            (None, Some(mailbox)) => self.go_on(&known, &mailbox, names, is_stale),
            (None, None) => self.begin(&known, names),
        };
        Planned { known, action, aside }
    }

    fn go_on(
        &self,
        known: &KnownUser,
        mailbox: &Mailbox,
        names: &mut Names,
        is_stale: &IsStale<'_>,
    ) -> (Action, Option<(Box<Mailbox>, String)>) {
        let person = &known.user.person;
        let (mut rename, mut aside) = (None, None);
        if self.needs_name(known) {
            let (address, from) = match names.find(person, &self.names(person), Some(mailbox.id)) {
                Found::Free { address, from } => (address, from),
                // Its name stays, or what somebody before them in this batch left of it. Whom it opens must not stay: that
                // may be somebody else by now.
                _ => (names.aside.get(&mailbox.id).unwrap_or(&mailbox.address).clone(), None),
            };
            let settings = self.connection(person, mailbox, &address);
            if address != mailbox.address || settings != mailbox.settings {
                let after = Mailbox { address: address.clone(), settings, ..mailbox.clone() };
                names.moved(&known.user, &mailbox.address, after);
                names.gave_up(from.as_ref());
                (rename, aside) = (Some(address), from);
            }
        }
        let returns = !known.user.is_active || !mailbox.is_active;
        // One in error is looked at anyway, and says why.
        let is_refused = mailbox.state == MailboxState::NeedsReauth;
        let again = is_refused && is_app_only(mailbox) && (returns || is_stale(mailbox));
        match returns || rename.is_some() || again {
            true => (Action::GoOn { returns, rename, again }, aside),
            false => (Action::Nothing, None),
        }
    }

    fn begin(&self, known: &KnownUser, names: &mut Names) -> (Action, Option<(Box<Mailbox>, String)>) {
        match names.find(&known.user.person, &self.names(&known.user.person), None) {
            Found::Free { address, from } => match names.by_alias(&known.user.person) {
                Some(mailbox) if mailbox.state == MailboxState::Disconnected => {
                    (stay_out(known, LeftOut::Disconnected), None)
                }
                found => {
                    names.taken(&address, known.user.id);
                    names.gave_up(from.as_ref());
                    let action = match found {
                        Some(mailbox) => {
                            names.holders.remove(&mailbox.address);
                            Action::Adopt { mailbox, address }
                        }
                        None => Action::Add { address, over: None },
                    };
                    (action, from)
                }
            },
            Found::Files { address, mailbox } => {
                names.taken(&address, known.user.id);
                (Action::Add { address, over: Some(mailbox) }, None)
            }
            Found::Theirs(mailbox) if mailbox.state == MailboxState::Disconnected => {
                (stay_out(known, LeftOut::Disconnected), None)
            }
            Found::Theirs(mailbox) => {
                names.taken(&mailbox.address, known.user.id);
                (Action::Adopt { address: mailbox.address.clone(), mailbox }, None)
            }
            Found::Taken => (stay_out(known, LeftOut::AddressTaken), None),
        }
    }

    fn by_address(&self, holder: Holder) -> (String, Held) {
        let Holder { mailbox, user, user_address } = holder;
        let told = user.and_then(|(user, _)| self.told.get(&user)).cloned();
        let user_address = told.unwrap_or(user_address);
        (mailbox.address.clone(), Held { mailbox: Some(Box::new(mailbox)), user, user_address })
    }

    /// Whether it has to be looked at what their mailbox is called.
    fn needs_name(&self, known: &KnownUser) -> bool {
        if self.left_out(known).is_some() {
            return false;
        }
        known.mailbox.as_ref().is_none_or(|mailbox| {
            Some(&mailbox.address) != known.user.person.address.as_ref()
                || self.connection(&known.user.person, mailbox, &mailbox.address) != mailbox.settings
        })
    }

    /// What their mailbox may be called, the best first. Who is in two directories of a tenant under one address has a
    /// mailbox at each, and an address is one mailbox's here: the second takes another of their names, or one that we make up.
    fn names(&self, person: &Person) -> Vec<String> {
        let Some(address) = person.address.clone() else { return Vec::new() };
        let made_up = beside(&address, self.provider.as_str());
        let aliases = person.aliases.iter().flatten().cloned();
        std::iter::once(address).chain(aliases).chain([made_up]).collect()
    }

    /// How a new mailbox of this name is reached.
    pub fn settings(&self, person: &Person, name: &str) -> Value {
        let mut connection = json!({"app_only": true, "user": self.user(person), "person": person.id});
        if let Some(directory) = &self.place.directory {
            connection["directory"] = json!(directory);
        }
        json!({"connection": called(connection, person, name)})
    }

    /// The same for one that is there, of which everything else stays.
    pub fn connection(&self, person: &Person, mailbox: &Mailbox, name: &str) -> Value {
        let mut settings = mailbox.settings.clone();
        let before = mailbox.settings["connection"].clone();
        let mut connection = before.clone();
        if is_app_only(mailbox) {
            connection["user"] = json!(self.user(person));
        }
        // Who it is, for whoever finds it when nothing else is recorded of them any more.
        connection["person"] = json!(person.id);
        let connection = called(connection, person, name);
        if connection != before {
            settings["connection"] = connection;
        }
        settings
    }

    /// Google knows people by their address, Graph by what never changes.
    fn user(&self, person: &Person) -> String {
        match self.provider {
            Provider::Gmail => person.address.clone().unwrap_or_default(),
            _ => person.id.clone(),
        }
    }
}

/// Whether a mailbox was refused so long ago that it is worth another try.
pub type IsStale<'a> = dyn Fn(&Mailbox) -> bool + Send + Sync + 'a;

/// Nothing, if that is known already.
fn stay_out(known: &KnownUser, reason: LeftOut) -> Action {
    match known.user.left_out == Some(reason) && !known.user.is_active {
        true => Action::Nothing,
        false => Action::StayOut(reason),
    }
}

pub fn is_app_only(mailbox: &Mailbox) -> bool {
    mailbox.settings["connection"]["app_only"] == true
}

/// Whether it opens, by our app, whoever has the address that it is called by.
pub fn opens_its_name(mailbox: &Mailbox) -> bool {
    let user = mailbox.settings["connection"]["user"].as_str().unwrap_or(&mailbox.address);
    is_app_only(mailbox) && user == mailbox.address
}

/// With the address that the provider knows the account by, where the mailbox is called otherwise here: pushes name it, and
/// other tenants may have the same one.
fn called(mut connection: Value, person: &Person, name: &str) -> Value {
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

/// Whether it may be theirs: one that a directory has told of is somebody's for good.
fn is_of(mailbox: &Mailbox, person: &Person) -> bool {
    mailbox.settings["connection"]["person"].as_str().is_none_or(|id| id == person.id)
}

fn free_of(address: &str, mailbox: &Mailbox) -> Found {
    let aside = beside(address, &format!("former-{}", short(mailbox.id)));
    Found::Free { address: address.to_owned(), from: Some((Box::new(mailbox.clone()), aside)) }
}

fn beside(address: &str, word: &str) -> String {
    match address.rsplit_once('@') {
        Some((local, domain)) => format!("{local}+{word}@{domain}"),
        None => address.to_owned(),
    }
}

/// Who has which name by now.
#[derive(Debug)]
struct Names {
    provider: Provider,
    holders: HashMap<String, Held>,
    /// What those are called who have given up their names since they were read.
    aside: HashMap<MailboxId, String>,
}

#[derive(Debug)]
struct Held {
    /// Nothing: it is about to be made.
    mailbox: Option<Box<Mailbox>>,
    user: Option<(UserId, Provider)>,
    user_address: Option<String>,
}

#[derive(Debug)]
enum Found {
    /// With the mailbox that has to give it up, and what that is called then.
    Free {
        address: String,
        from: Option<(Box<Mailbox>, String)>,
    },
    /// A place for files, which becomes theirs.
    Files {
        address: String,
        mailbox: MailboxId,
    },
    /// Somebody has connected it before.
    Theirs(Box<Mailbox>),
    Taken,
}

impl Names {
    fn find(&self, person: &Person, names: &[String], own: Option<MailboxId>) -> Found {
        let Some((address, others)) = names.split_first() else { return Found::Taken };
        let free = |address: &str| Found::Free { address: address.to_owned(), from: None };
        let Some(held) = self.holders.get(address) else { return free(address) };
        let is_own = |held: &Held| own.is_some() && held.mailbox.as_ref().map(|mailbox| mailbox.id) == own;
        if is_own(held) {
            return free(address);
        }
        match (&held.mailbox, held.user) {
            // Whoever had the address before has another by now, or is gone: their mail stays theirs, under another name.
            (Some(mailbox), Some((_, provider)))
                if provider == self.provider && held.user_address.as_ref() != Some(address) =>
            {
                free_of(address, mailbox)
            }
            // The directory was removed since, and with it all that was known of who had the address.
            (Some(mailbox), None) if mailbox.provider == self.provider && !is_of(mailbox, person) => {
                free_of(address, mailbox)
            }
            (Some(mailbox), None) if mailbox.provider == self.provider && own.is_none() => {
                Found::Theirs(mailbox.clone())
            }
            (Some(mailbox), None) if mailbox.provider == Provider::Files && own.is_none() => {
                Found::Files { address: address.clone(), mailbox: mailbox.id }
            }
            // They are in another directory of this tenant as well.
            (_, Some((_, provider))) if provider != self.provider => {
                let other = others.iter().find(|name| self.holders.get(*name).is_none_or(is_own));
                other.map_or(Found::Taken, |name| free(name))
            }
            _ => Found::Taken,
        }
    }

    /// What somebody has connected under another of their names, as which at Microsoft people sign in.
    fn by_alias(&self, person: &Person) -> Option<Box<Mailbox>> {
        let held = person.aliases.iter().flatten().filter_map(|alias| self.holders.get(alias));
        let unowned = held.filter(|held| held.user.is_none()).filter_map(|held| held.mailbox.as_ref());
        let mut theirs = unowned.filter(|mailbox| mailbox.provider == self.provider && is_of(mailbox, person));
        theirs.next().cloned()
    }

    fn taken(&mut self, address: &str, user: UserId) {
        let held = Held { mailbox: None, user: Some((user, self.provider)), user_address: Some(address.to_owned()) };
        self.holders.insert(address.to_owned(), held);
    }

    fn gave_up(&mut self, from: Option<&(Box<Mailbox>, String)>) {
        self.aside.extend(from.map(|(mailbox, name)| (mailbox.id, name.clone())));
    }

    /// Its old name is free from now on.
    fn moved(&mut self, user: &User, from: &str, after: Mailbox) {
        let is_it = |held: &Held| held.mailbox.as_ref().is_some_and(|held| held.id == after.id);
        if self.holders.get(from).is_some_and(is_it) {
            self.holders.remove(from);
        }
        let (user, user_address) = (Some((user.id, self.provider)), user.person.address.clone());
        let address = after.address.clone();
        self.holders.insert(address, Held { mailbox: Some(Box::new(after)), user, user_address });
    }
}

/// Of its random end: ids of one moment begin alike.
fn short(mailbox: MailboxId) -> String {
    let text = mailbox.0.simple().to_string();
    text[text.len() - 8..].to_owned()
}
