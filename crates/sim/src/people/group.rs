//! People under one address. A group may be a member of another one.

use std::collections::BTreeSet;

use super::organisation::Organisation;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: String,
    pub address: String,
    pub name: String,
    pub members: BTreeSet<Member>,
    pub made_ms: i64,
}

/// By the numbers that the organisation has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    Person(u64),
    Group(u64),
}

impl Organisation {
    /// Those who are named in it and are still there.
    pub fn members(&self, group: &Group) -> Vec<Member> {
        group.members.iter().copied().filter(|member| self.is_there(*member)).collect()
    }

    /// With the members of groups that are in it, however deep, each once.
    pub fn all_members(&self, group: u64) -> Vec<Member> {
        let (mut found, mut left) = (BTreeSet::new(), vec![group]);
        while let Some(number) = left.pop() {
            let Some(group) = self.groups.get(&number) else { continue };
            for member in self.members(group) {
                if found.insert(member)
                    && let Member::Group(inner) = member
                {
                    left.push(inner);
                }
            }
        }
        found.remove(&Member::Group(group));
        found.into_iter().collect()
    }

    fn is_there(&self, member: Member) -> bool {
        match member {
            Member::Person(number) => self.people.get(&number).is_some_and(super::Person::is_present),
            Member::Group(number) => self.groups.contains_key(&number),
        }
    }
}
