//! A provider whose accounts belong to organisations.

use serde::{Deserialize, Serialize};

use super::operation::{PeopleApplied, PeopleOperation, PeopleRefused};
use super::registry::People;
use super::spread;
use super::truth::OrganisationTruth;
use crate::steer::Changing;

/// An organisation to be made, with people of every kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewOrganisation {
    pub domain: String,
    /// Others that it has.
    pub more_domains: Vec<String>,
    pub people: usize,
    /// In each mailbox.
    pub messages: usize,
}

pub trait Organised: Changing {
    #[doc(hidden)]
    fn people(&self) -> &People;

    /// Somebody has a mailbox from now on.
    fn open_mailbox(&self, account: &str, organisation: &str, messages: usize);

    /// Somebody may not sign in any more.
    fn end_sign_in(&self, account: &str);

    /// Its id; nothing when there is one of this domain already.
    fn organise(&self, new: &NewOrganisation) -> Option<String> {
        let domains: Vec<String> = std::iter::once(&new.domain).chain(&new.more_domains).cloned().collect();
        let id = {
            let mut organisations = self.people().write();
            if domains.iter().any(|domain| organisations.get(domain).is_some()) {
                return None;
            }
            let id = organisations.of_domain(&new.domain);
            for domain in &new.more_domains {
                organisations.add_domain(&id, domain);
            }
            id
        };
        for operation in spread::people(&domains, new.people, new.messages) {
            // Those of the seed are good: a domain is new, so nobody has an address in it.
            let _ = self.apply_to_people(&id, operation);
        }
        Some(id)
    }

    /// Gives `user1@domain` and so on units, aliases and groups; their mail stays as it is.
    fn furnish(&self, domain: &str, count: usize) {
        for operation in spread::furniture(domain, count) {
            // Whoever is not there needs nothing.
            let _ = self.apply_to_people(domain, operation);
        }
    }

    /// By the organisation's id or one of its domains.
    fn apply_to_people(&self, organisation: &str, operation: PeopleOperation) -> Result<PeopleApplied, PeopleRefused> {
        let (effect, id) = {
            let mut organisations = self.people().write();
            let effect = organisations.apply(organisation, operation, self.now_ms())?;
            (effect, organisations.get(organisation).map(|found| found.id.clone()).unwrap_or_default())
        };
        if let Some((account, messages)) = effect.opened {
            self.open_mailbox(&account, &id, messages);
        }
        if let Some(account) = effect.ended {
            self.end_sign_in(&account);
        }
        Ok(effect.applied)
    }

    fn organisation(&self, name: &str) -> Option<OrganisationTruth> {
        self.people().read().get(name).map(super::Organisation::truth)
    }
}
