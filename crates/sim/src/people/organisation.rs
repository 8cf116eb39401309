//! One organisation: its domains, its people, its groups, and what changed when.

use std::collections::{BTreeMap, BTreeSet};

use super::group::{Group, Member};
use super::operation::PeopleRefused;
use super::person::{Field, Person, State};

#[derive(Debug, Default)]
pub struct Organisation {
    /// What the provider knows it by.
    pub id: String,
    /// The first is the main one.
    pub domains: Vec<String>,
    /// In the order in which they came. Those who are gone stay in it, so that their going can be told.
    pub people: BTreeMap<u64, Person>,
    pub groups: BTreeMap<u64, Group>,
    /// How many changes there were.
    pub changes: u64,
    /// What was told before this change is not remembered any more.
    pub oldest: u64,
    next: u64,
}

/// Who is to come.
#[derive(Debug, Clone, Default)]
pub struct Joining {
    pub id: String,
    pub address: String,
    pub aliases: Vec<String>,
    pub given_name: String,
    pub family_name: String,
    pub unit: String,
    pub is_admin: bool,
    pub is_guest: bool,
    pub is_licensed: bool,
}

impl Organisation {
    pub fn new(id: &str, domain: &str) -> Self {
        Self { id: id.to_owned(), domains: vec![domain.to_owned()], ..Self::default() }
    }

    pub fn domain(&self) -> &str {
        self.domains.first().map_or("", String::as_str)
    }

    /// Those who are there, in the order in which they came.
    pub fn present(&self) -> impl Iterator<Item = (u64, &Person)> {
        self.people.iter().filter(|(_, person)| person.is_present()).map(|(number, person)| (*number, person))
    }

    pub(super) fn join(&mut self, new: Joining, now_ms: i64) -> u64 {
        let number = self.number();
        self.changes += 1;
        let person = Person {
            id: new.id,
            account: new.address.clone(),
            address: new.address,
            aliases: new.aliases,
            given_name: new.given_name,
            family_name: new.family_name,
            unit: if new.unit.is_empty() { "/".to_owned() } else { new.unit },
            // Somebody has made the organisation.
            is_admin: new.is_admin || self.people.is_empty(),
            is_suspended: false,
            is_archived: false,
            is_guest: new.is_guest,
            is_licensed: new.is_licensed && !new.is_guest,
            state: State::Present,
            joined_ms: now_ms,
            deleted_ms: None,
            changed_at: self.changes,
            entered_at: self.changes,
            touched: BTreeMap::new(),
        };
        self.people.insert(number, person);
        number
    }

    /// Something about somebody who is there.
    pub(super) fn touch(
        &mut self,
        number: u64,
        field: Field,
        change: impl FnOnce(&mut Person),
    ) -> Result<(), PeopleRefused> {
        let person = self.people.get_mut(&number).filter(|person| person.is_present());
        let person = person.ok_or(PeopleRefused::NoPerson)?;
        self.changes += 1;
        change(person);
        person.changed_at = self.changes;
        person.touched.insert(field, self.changes);
        Ok(())
    }

    /// From one state to another.
    pub(super) fn turn(&mut self, number: u64, from: State, to: State, now_ms: i64) -> Result<(), PeopleRefused> {
        let person = self.people.get_mut(&number).filter(|person| person.state == from);
        let person = person.ok_or(PeopleRefused::NoPerson)?;
        self.changes += 1;
        person.state = to;
        person.changed_at = self.changes;
        match to {
            State::Present => {
                person.entered_at = self.changes;
                person.deleted_ms = None;
            }
            State::Deleted => person.deleted_ms = Some(now_ms),
            State::Purged => {}
        }
        Ok(())
    }

    pub(super) fn add_group(&mut self, id: &str, address: &str, name: &str, now_ms: i64) -> u64 {
        let number = self.number();
        let group = Group {
            id: id.to_owned(),
            address: address.to_owned(),
            name: name.to_owned(),
            members: BTreeSet::new(),
            made_ms: now_ms,
        };
        self.groups.insert(number, group);
        number
    }

    /// A group that has this one in it cannot be one of its members.
    pub(super) fn add_member(&mut self, group: u64, member: Member) -> Result<(), PeopleRefused> {
        let leads_back = |inner| inner == group || self.all_members(inner).contains(&Member::Group(group));
        if matches!(member, Member::Group(inner) if leads_back(inner)) {
            return Err(PeopleRefused::Circle);
        }
        self.groups.get_mut(&group).ok_or(PeopleRefused::NoGroup)?.members.insert(member);
        Ok(())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
