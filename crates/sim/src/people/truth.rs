//! The ground truth of an organisation, for comparison with what a client has found.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::group::{Group, GroupMember};
use super::organisation::Organisation;
use super::person::{Person, PersonState};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrganisationTruth {
    pub id: String,
    pub domains: Vec<String>,
    /// By id, deleted people included.
    pub people: BTreeMap<String, PersonTruth>,
    /// By id.
    pub groups: BTreeMap<String, GroupTruth>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonTruth {
    pub address: String,
    pub aliases: Vec<String>,
    /// The key of the mailbox under `accounts`.
    pub account: String,
    pub name: String,
    pub unit: String,
    pub state: PersonState,
    pub is_admin: bool,
    pub is_suspended: bool,
    pub is_archived: bool,
    pub is_guest: bool,
    pub is_licensed: bool,
    pub has_mailbox: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTruth {
    pub address: String,
    pub name: String,
    /// Ids of direct members.
    pub members: Vec<String>,
    /// Ids of all people, those of nested groups included.
    pub all_people: Vec<String>,
}

impl Organisation {
    pub fn truth(&self) -> OrganisationTruth {
        let people = self.people.values().filter(|person| person.state != PersonState::Purged);
        let groups = self.groups.iter();
        OrganisationTruth {
            id: self.id.clone(),
            domains: self.domains.clone(),
            people: people.map(|person| (person.id.clone(), person.truth())).collect(),
            groups: groups.map(|(number, group)| (group.id.clone(), self.group_truth(*number, group))).collect(),
        }
    }

    fn group_truth(&self, number: u64, group: &Group) -> GroupTruth {
        let all = self.all_members(number);
        let people = all.iter().filter(|member| matches!(member, GroupMember::Person(_)));
        GroupTruth {
            address: group.address.clone(),
            name: group.name.clone(),
            members: self.members(group).iter().map(|member| self.member_id(member)).collect(),
            all_people: people.map(|member| self.member_id(member)).collect(),
        }
    }

    fn member_id(&self, member: &GroupMember) -> String {
        match member {
            GroupMember::Person(number) => self.people[number].id.clone(),
            GroupMember::Group(number) => self.groups[number].id.clone(),
        }
    }
}

impl Person {
    fn truth(&self) -> PersonTruth {
        PersonTruth {
            address: self.address.clone(),
            aliases: self.aliases.clone(),
            account: self.account.clone(),
            name: self.full_name(),
            unit: self.unit.clone(),
            state: self.state,
            is_admin: self.is_admin,
            is_suspended: self.is_suspended,
            is_archived: self.is_archived,
            is_guest: self.is_guest,
            is_licensed: self.is_licensed,
            has_mailbox: self.has_mailbox(),
        }
    }
}
