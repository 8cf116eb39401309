//! People as an organisation's directory lists them.

use crate::connector::Cursors;

/// A person in a directory. `None` means not reported: unknown in a full listing, unchanged in a delta.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryPerson {
    /// The directory's id of the person, which outlives changes of the address.
    pub id: String,
    /// The primary address, in canonical case.
    pub address: Option<String>,
    /// Other addresses of the same person, in canonical case.
    pub aliases: Option<Vec<String>>,
    pub name: Option<String>,
    /// The organisational unit: a path at Google, a department at Microsoft.
    pub unit: Option<String>,
    pub is_suspended: Option<bool>,
    pub is_guest: Option<bool>,
    /// Whether their licences include a mailbox.
    pub is_licensed: Option<bool>,
}

impl DirectoryPerson {
    /// Merges a change into the person as known before: what the change does not report stays as it was.
    #[must_use]
    pub fn merged_over(self, before: Self) -> Self {
        Self {
            id: self.id,
            address: self.address.or(before.address),
            aliases: self.aliases.or(before.aliases),
            name: self.name.or(before.name),
            unit: self.unit.or(before.unit),
            is_suspended: self.is_suspended.or(before.is_suspended),
            is_guest: self.is_guest.or(before.is_guest),
            is_licensed: self.is_licensed.or(before.is_licensed),
        }
    }
}

/// One page of a listing of people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryPeoplePage {
    /// Each person at most once.
    pub people: Vec<DirectoryPerson>,
    /// Ids of people who were removed from the directory.
    pub removed: Vec<String>,
    /// The position of the next page. After the last page: the position for a later delta if the provider has deltas, else
    /// nothing, so that the next listing is a full one.
    pub cursors: Cursors,
    pub is_last: bool,
}

/// One page of a group's members, by their ids in the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupMembersPage {
    pub members: Vec<String>,
    pub cursors: Cursors,
    pub is_last: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreported_fields_stay_as_they_were() {
        let before = DirectoryPerson {
            id: "1".to_owned(),
            address: Some("ann@acme.test".to_owned()),
            is_suspended: Some(false),
            is_licensed: Some(true),
            ..DirectoryPerson::default()
        };
        let change = DirectoryPerson { id: "1".to_owned(), is_suspended: Some(true), ..DirectoryPerson::default() };

        let now = change.merged_over(before.clone());

        assert_eq!(now, DirectoryPerson { is_suspended: Some(true), ..before });
    }
}
