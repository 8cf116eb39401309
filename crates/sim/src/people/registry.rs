//! All organisations of one provider, and who has which name there.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::operation::{PeopleOperation, PeopleRefused};
use super::organisation::{Joining, Organisation};
use super::person::{Person, State, domain_of};

/// How the provider names things: what it is of, and something that it is made from.
pub type Naming = fn(&str, &str) -> String;

#[derive(Debug)]
pub struct People {
    inner: RwLock<Organisations>,
}

#[derive(Debug)]
pub struct Organisations {
    pub naming: Naming,
    by_id: HashMap<String, Organisation>,
    /// Ids by domain.
    by_domain: HashMap<String, String>,
    /// Where people and groups are, by their ids and addresses.
    by_name: HashMap<String, Found>,
    /// How many have had an address so far.
    holders: HashMap<String, u32>,
}

/// Where somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub organisation: String,
    pub number: u64,
    pub is_group: bool,
}

impl People {
    pub fn new(naming: Naming) -> Self {
        let inner = Organisations {
            naming,
            by_id: HashMap::new(),
            by_domain: HashMap::new(),
            by_name: HashMap::new(),
            holders: HashMap::new(),
        };
        Self { inner: RwLock::new(inner) }
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Organisations> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, Organisations> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody ordinary comes to the organisation of their domain. Its id; nothing: somebody has the address.
    pub fn enrol(&self, address: &str, now_ms: i64) -> Option<String> {
        let mut organisations = self.write();
        let id = organisations.of_domain(domain_of(address));
        organisations.apply(&id, PeopleOperation::join(address), now_ms).ok().map(|_| id)
    }

    /// Whoever has this id or address, or had it when they were deleted.
    pub fn find(&self, name: &str) -> Option<Person> {
        self.read().person(name).cloned()
    }
}

impl Organisations {
    /// The organisation of a domain; it is made if there is none yet.
    pub fn of_domain(&mut self, domain: &str) -> String {
        let domain = domain.to_lowercase();
        if let Some(id) = self.by_domain.get(&domain) {
            return id.clone();
        }
        let id = (self.naming)("organisation", &domain);
        self.by_id.insert(id.clone(), Organisation::new(&id, &domain));
        self.by_domain.insert(domain, id.clone());
        id
    }

    /// One that nobody has yet.
    pub fn add_domain(&mut self, organisation: &str, domain: &str) {
        let domain = domain.to_lowercase();
        let Some(found) = self.by_id.get_mut(organisation) else { return };
        found.domains.push(domain.clone());
        self.by_domain.insert(domain, organisation.to_owned());
    }

    /// By id or domain.
    pub fn get(&self, name: &str) -> Option<&Organisation> {
        self.by_id.get(&self.id_of(name)?)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Organisation> {
        let id = self.id_of(name)?;
        self.by_id.get_mut(&id)
    }

    fn id_of(&self, name: &str) -> Option<String> {
        if self.by_id.contains_key(name) {
            return Some(name.to_owned());
        }
        self.by_domain.get(&name.to_lowercase()).cloned()
    }

    pub fn list(&self) -> Vec<&Organisation> {
        let mut all: Vec<&Organisation> = self.by_id.values().collect();
        all.sort_by(|one, other| one.domain().cmp(other.domain()));
        all
    }

    pub fn find(&self, name: &str) -> Option<&Found> {
        self.by_name.get(name).or_else(|| self.by_name.get(&name.to_lowercase()))
    }

    pub fn person(&self, name: &str) -> Option<&Person> {
        let found = self.find(name).filter(|found| !found.is_group)?;
        self.by_id.get(&found.organisation)?.people.get(&found.number)
    }

    /// Whether nobody has it, or only somebody who is gone for good.
    pub fn is_free(&self, address: &str) -> bool {
        let Some(found) = self.find(address) else { return true };
        !found.is_group && self.person(address).is_none_or(|person| person.state == State::Purged)
    }

    /// One after the other may have an address; each is somebody else.
    pub fn join(&mut self, organisation: &str, mut new: Joining, now_ms: i64) -> Result<u64, PeopleRefused> {
        new.address = new.address.to_lowercase();
        let wanted = std::iter::once(&new.address).chain(&new.aliases);
        if let Some(taken) = wanted.clone().find(|address| !self.is_free(address)) {
            return Err(PeopleRefused::Taken(taken.clone()));
        }
        let names: Vec<String> = wanted.cloned().collect();
        let before = self.holders.entry(new.address.clone()).or_default();
        *before += 1;
        new.id = match before {
            1 => (self.naming)("person", &new.address),
            more => (self.naming)("person", &format!("{} {more}", new.address)),
        };
        let id = new.id.clone();
        let found = self.by_id.get_mut(organisation).ok_or(PeopleRefused::NoOrganisation)?;
        let number = found.join(new, now_ms);
        for name in names.iter().chain([&id]) {
            self.name(name, organisation, number, false);
        }
        Ok(number)
    }

    pub fn name(&mut self, name: &str, organisation: &str, number: u64, is_group: bool) {
        let found = Found { organisation: organisation.to_owned(), number, is_group };
        self.by_name.insert(name.to_owned(), found);
    }

    pub fn forget_name(&mut self, name: &str) {
        self.by_name.remove(name);
    }
}
