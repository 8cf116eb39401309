//! A simulated provider whose accounts belong to organisations.

use serde::{Deserialize, Serialize};

use super::Person;
use super::operation::{PeopleOperation, PeopleOperationError, PeopleOperationOutcome};
use super::registry::PeopleDirectory;
use super::sample_people;
use super::truth::OrganisationTruth;
use crate::mailbox_registry::ProviderMailbox;
use crate::sign_in::SignInProvider;
use crate::world::ProviderWorld;

/// An organisation to create, with sample people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewOrganisation {
    pub domain: String,
    /// Further domains.
    pub more_domains: Vec<String>,
    pub people: usize,
    /// Messages in each mailbox.
    pub messages: usize,
}

/// A provider whose accounts belong to organisations.
pub trait PeopleProvider: SignInProvider {
    fn people(&self) -> &PeopleDirectory;

    /// Creates a person's mailbox.
    fn open_mailbox(world: &ProviderWorld<Self>, account: &str, organisation: &str, messages: usize);
}

impl<P: PeopleProvider> ProviderWorld<P> {
    /// Returns the mailbox's owner. Personal accounts are in no directory and own themselves.
    pub(crate) fn person(&self, mailbox: &ProviderMailbox<P>) -> Person {
        let person = self.provider.people().find(&mailbox.id);
        person.unwrap_or_else(|| Person::without_organisation(&mailbox.id, &mailbox.address))
    }
}

impl<P: PeopleProvider> DirectoryProvider for ProviderWorld<P> {
    fn people(&self) -> &PeopleDirectory {
        self.provider.people()
    }

    fn directory_time_ms(&self) -> i64 {
        self.now_ms()
    }

    fn open_mailbox(&self, account: &str, organisation: &str, messages: usize) {
        P::open_mailbox(self, account, organisation, messages);
    }

    fn end_sign_in(&self, account: &str) {
        self.expire_access_tokens(Some(account));
    }
}

/// A simulated provider with organisations.
pub trait DirectoryProvider: Send + Sync + 'static {
    #[doc(hidden)]
    fn people(&self) -> &PeopleDirectory;

    #[doc(hidden)]
    fn directory_time_ms(&self) -> i64;

    /// Creates a person's mailbox.
    fn open_mailbox(&self, account: &str, organisation: &str, messages: usize);

    /// Ends a person's sign-ins.
    fn end_sign_in(&self, account: &str);

    /// Creates an organisation and returns its id. Returns `None` if the domain is in use.
    fn create_organisation(&self, new: &NewOrganisation) -> Option<String> {
        let domains: Vec<String> = std::iter::once(&new.domain).chain(&new.more_domains).cloned().collect();
        let id = {
            let mut organisations = self.people().write();
            if domains.iter().any(|domain| organisations.get(domain).is_some()) {
                return None;
            }
            let id = organisations.organisation_of_domain(&new.domain);
            for domain in &new.more_domains {
                organisations.add_domain(&id, domain);
            }
            id
        };
        for operation in sample_people::people(&domains, new.people, new.messages) {
            // Cannot fail: the domain is new, so every address is free.
            let _ = self.apply_to_people(&id, operation);
        }
        Some(id)
    }

    /// Adds units, aliases and groups to `user1@domain` and so on. Their mail stays unchanged.
    fn add_directory_data(&self, domain: &str, count: usize) {
        for operation in sample_people::directory_data(domain, count) {
            // People who do not exist are skipped.
            let _ = self.apply_to_people(domain, operation);
        }
    }

    /// Applies an operation to an organisation, by id or domain.
    fn apply_to_people(
        &self,
        organisation: &str,
        operation: PeopleOperation,
    ) -> Result<PeopleOperationOutcome, PeopleOperationError> {
        let (effect, id) = {
            let mut organisations = self.people().write();
            let effect = organisations.apply(organisation, operation, self.directory_time_ms())?;
            (effect, organisations.get(organisation).map(|found| found.id.clone()).unwrap_or_default())
        };
        if let Some((account, messages)) = effect.new_mailbox {
            self.open_mailbox(&account, &id, messages);
        }
        if let Some(account) = effect.ended_account {
            self.end_sign_in(&account);
        }
        Ok(effect.applied)
    }

    fn organisation(&self, name: &str) -> Option<OrganisationTruth> {
        self.people().read().get(name).map(super::Organisation::truth)
    }
}
