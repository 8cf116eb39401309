//! Groups of people, which may be nested.

use std::collections::BTreeSet;

use super::organisation::Organisation;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: String,
    pub address: String,
    pub name: String,
    pub members: BTreeSet<GroupMember>,
    pub made_ms: i64,
}

/// A member, by its number in the organisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupMember {
    Person(u64),
    Group(u64),
}

impl Organisation {
    /// Returns the direct members that are present.
    pub fn members(&self, group: &Group) -> Vec<GroupMember> {
        group.members.iter().copied().filter(|member| self.is_there(*member)).collect()
    }

    /// Returns all members, those of nested groups included, each once.
    pub fn all_members(&self, group: u64) -> Vec<GroupMember> {
        let (mut found, mut left) = (BTreeSet::new(), vec![group]);
        while let Some(number) = left.pop() {
            let Some(group) = self.groups.get(&number) else { continue };
            for member in self.members(group) {
                if found.insert(member)
                    && let GroupMember::Group(inner) = member
                {
                    left.push(inner);
                }
            }
        }
        found.remove(&GroupMember::Group(group));
        found.into_iter().collect()
    }

    fn is_there(&self, member: GroupMember) -> bool {
        match member {
            GroupMember::Person(number) => self.people.get(&number).is_some_and(super::Person::is_present),
            GroupMember::Group(number) => self.groups.contains_key(&number),
        }
    }
}
