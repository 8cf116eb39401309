//! An organisation: domains, people, groups and its change counter.

use std::collections::{BTreeMap, BTreeSet};

use super::group::{Group, GroupMember};
use super::operation::PeopleOperationError;
use super::person::{Person, PersonField, PersonState};

#[derive(Debug, Default)]
pub struct Organisation {
    /// The provider's id of the organisation.
    pub id: String,
    /// The first is the primary domain.
    pub domains: Vec<String>,
    /// In order of joining. Deleted people stay, so that delta queries can report them.
    pub people: BTreeMap<u64, Person>,
    pub groups: BTreeMap<u64, Group>,
    /// The change counter.
    pub changes: u64,
    /// Delta tokens before this change have expired.
    pub oldest: u64,
    next: u64,
}

/// A person to add, with all fields resolved.
#[derive(Debug, Clone, Default)]
pub struct NewPersonRecord {
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

    /// Iterates over the present people, in order of joining.
    pub fn present(&self) -> impl Iterator<Item = (u64, &Person)> {
        self.people.iter().filter(|(_, person)| person.is_present()).map(|(number, person)| (*number, person))
    }

    pub(super) fn join(&mut self, new: NewPersonRecord, now_ms: i64) -> u64 {
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
            // The first person is an administrator.
            is_admin: new.is_admin || self.people.is_empty(),
            is_suspended: false,
            is_archived: false,
            is_guest: new.is_guest,
            is_licensed: new.is_licensed && !new.is_guest,
            state: PersonState::Present,
            joined_ms: now_ms,
            deleted_ms: None,
            changed_at: self.changes,
            entered_at: self.changes,
            touched: BTreeMap::new(),
        };
        self.people.insert(number, person);
        number
    }

    /// Changes a field of a present person.
    pub(super) fn update_field(
        &mut self,
        number: u64,
        field: PersonField,
        change: impl FnOnce(&mut Person),
    ) -> Result<(), PeopleOperationError> {
        let person = self.people.get_mut(&number).filter(|person| person.is_present());
        let person = person.ok_or(PeopleOperationError::NoPerson)?;
        self.changes += 1;
        change(person);
        person.changed_at = self.changes;
        person.touched.insert(field, self.changes);
        Ok(())
    }

    /// Changes a person's state, if it is `from`.
    pub(super) fn change_state(
        &mut self,
        number: u64,
        from: PersonState,
        to: PersonState,
        now_ms: i64,
    ) -> Result<(), PeopleOperationError> {
        let person = self.people.get_mut(&number).filter(|person| person.state == from);
        let person = person.ok_or(PeopleOperationError::NoPerson)?;
        self.changes += 1;
        person.state = to;
        person.changed_at = self.changes;
        match to {
            PersonState::Present => {
                person.entered_at = self.changes;
                person.deleted_ms = None;
            }
            PersonState::Deleted => person.deleted_ms = Some(now_ms),
            PersonState::Purged => {}
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

    /// Adds a member, unless the groups would contain each other.
    pub(super) fn add_member(&mut self, group: u64, member: GroupMember) -> Result<(), PeopleOperationError> {
        if matches!(member, GroupMember::Group(inner) if self.contains_group(inner, group)) {
            return Err(PeopleOperationError::Circle);
        }
        self.groups.get_mut(&group).ok_or(PeopleOperationError::NoGroup)?.members.insert(member);
        Ok(())
    }

    /// Returns whether a group is another one or contains it, however deep.
    fn contains_group(&self, outer: u64, inner: u64) -> bool {
        outer == inner || self.all_members(outer).contains(&GroupMember::Group(inner))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
