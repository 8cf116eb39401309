//! Who really is in an organisation, for whoever wants to know whether all of them were found.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::group::Member;
use super::organisation::Organisation;
use super::person::{Person, State};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrganisationTruth {
    pub id: String,
    pub domains: Vec<String>,
    /// By id, those who may come back too.
    pub people: BTreeMap<String, TruthPerson>,
    /// By id.
    pub groups: BTreeMap<String, TruthGroup>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthPerson {
    pub address: String,
    pub aliases: Vec<String>,
    /// The name of the mailbox under `accounts`.
    pub account: String,
    pub name: String,
    pub unit: String,
    pub state: State,
    pub is_admin: bool,
    pub is_suspended: bool,
    pub is_archived: bool,
    pub is_guest: bool,
    pub is_licensed: bool,
    pub has_mailbox: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthGroup {
    pub address: String,
    pub name: String,
    /// Ids of people and groups that are in it.
    pub members: Vec<String>,
    /// Ids of people who are in it or in groups that are in it.
    pub all_people: Vec<String>,
}

impl Organisation {
    pub fn truth(&self) -> OrganisationTruth {
        let person = |person: &Person| TruthPerson {
            address: person.address.clone(),
            aliases: person.aliases.clone(),
            account: person.account.clone(),
            name: person.full_name(),
            unit: person.unit.clone(),
            state: person.state,
            is_admin: person.is_admin,
            is_suspended: person.is_suspended,
            is_archived: person.is_archived,
            is_guest: person.is_guest,
            is_licensed: person.is_licensed,
            has_mailbox: person.has_mailbox(),
        };
        let id = |member: &Member| match member {
            Member::Person(number) => self.people[number].id.clone(),
            Member::Group(number) => self.groups[number].id.clone(),
        };
        let group = |(number, group): (&u64, &super::Group)| {
            let all = self.all_members(*number);
            let truth = TruthGroup {
                address: group.address.clone(),
                name: group.name.clone(),
                members: self.members(group).iter().map(id).collect(),
                all_people: all.iter().filter(|member| matches!(member, Member::Person(_))).map(id).collect(),
            };
            (group.id.clone(), truth)
        };
        let there = self.people.values().filter(|person| person.state != State::Purged);
        OrganisationTruth {
            id: self.id.clone(),
            domains: self.domains.clone(),
            people: there.map(|one| (one.id.clone(), person(one))).collect(),
            groups: self.groups.iter().map(group).collect(),
        }
    }
}
