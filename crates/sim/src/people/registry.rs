//! All organisations of one provider, with an index of ids and addresses.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::operation::{PeopleOperation, PeopleOperationError};
use super::organisation::{NewPersonRecord, Organisation};
use super::person::{Person, PersonState, domain_of};

/// Builds a provider's ids from the kind of object and its name.
pub type IdScheme = fn(&str, &str) -> String;

#[derive(Debug)]
pub struct PeopleDirectory {
    inner: RwLock<Organisations>,
}

#[derive(Debug)]
pub struct Organisations {
    pub id_scheme: IdScheme,
    by_id: HashMap<String, Organisation>,
    /// Ids by domain.
    by_domain: HashMap<String, String>,
    /// People and groups by id and address.
    by_name: HashMap<String, EntryLocation>,
    /// The number of people who have had an address so far.
    holders: HashMap<String, u32>,
}

/// The location of a person or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryLocation {
    pub organisation: String,
    pub number: u64,
    pub is_group: bool,
}

impl PeopleDirectory {
    pub fn new(id_scheme: IdScheme) -> Self {
        let inner = Organisations {
            id_scheme,
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

    /// Adds an ordinary person to the organisation of the domain and returns its id. Returns `None` if the address is
    /// in use.
    pub fn add_person(&self, address: &str, now_ms: i64) -> Option<String> {
        let mut organisations = self.write();
        let id = organisations.organisation_of_domain(domain_of(address));
        organisations.apply(&id, PeopleOperation::join(address), now_ms).ok().map(|_| id)
    }

    /// Finds a person by id or address, deleted ones included.
    pub fn find(&self, name: &str) -> Option<Person> {
        self.read().person(name).cloned()
    }
}

impl Organisations {
    /// Returns the id of a domain's organisation, which is created if necessary.
    pub fn organisation_of_domain(&mut self, domain: &str) -> String {
        let domain = domain.to_lowercase();
        if let Some(id) = self.by_domain.get(&domain) {
            return id.clone();
        }
        let id = (self.id_scheme)("organisation", &domain);
        self.by_id.insert(id.clone(), Organisation::new(&id, &domain));
        self.by_domain.insert(domain, id.clone());
        id
    }

    /// Adds a domain that is not in use.
    pub fn add_domain(&mut self, organisation: &str, domain: &str) {
        let domain = domain.to_lowercase();
        let Some(found) = self.by_id.get_mut(organisation) else { return };
        found.domains.push(domain.clone());
        self.by_domain.insert(domain, organisation.to_owned());
    }

    /// Finds an organisation by id or domain.
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

    pub fn find(&self, name: &str) -> Option<&EntryLocation> {
        self.by_name.get(name).or_else(|| self.by_name.get(&name.to_lowercase()))
    }

    pub fn person(&self, name: &str) -> Option<&Person> {
        let found = self.find(name).filter(|found| !found.is_group)?;
        self.by_id.get(&found.organisation)?.people.get(&found.number)
    }

    /// Returns whether an address is free: not in use, or its holder is purged.
    pub fn is_free(&self, address: &str) -> bool {
        let Some(found) = self.find(address) else { return true };
        !found.is_group && self.person(address).is_none_or(|person| person.state == PersonState::Purged)
    }

    /// Adds a person. A reused address gets a new id.
    pub fn join(
        &mut self,
        organisation: &str,
        mut new: NewPersonRecord,
        now_ms: i64,
    ) -> Result<u64, PeopleOperationError> {
        new.address = new.address.to_lowercase();
        let wanted = std::iter::once(&new.address).chain(&new.aliases);
        if let Some(taken) = wanted.clone().find(|address| !self.is_free(address)) {
            return Err(PeopleOperationError::Taken(taken.clone()));
        }
        let names: Vec<String> = wanted.cloned().collect();
        let before = self.holders.entry(new.address.clone()).or_default();
        *before += 1;
        new.id = match before {
            1 => (self.id_scheme)("person", &new.address),
            more => (self.id_scheme)("person", &format!("{} {more}", new.address)),
        };
        let id = new.id.clone();
        let found = self.by_id.get_mut(organisation).ok_or(PeopleOperationError::NoOrganisation)?;
        let number = found.join(new, now_ms);
        for name in names.iter().chain([&id]) {
            self.add_name(name, organisation, number, false);
        }
        Ok(number)
    }

    pub fn add_name(&mut self, name: &str, organisation: &str, number: u64, is_group: bool) {
        let found = EntryLocation { organisation: organisation.to_owned(), number, is_group };
        self.by_name.insert(name.to_owned(), found);
    }

    pub fn remove_name(&mut self, name: &str) {
        self.by_name.remove(name);
    }
}
