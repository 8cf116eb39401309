//! People as the directory of their organisation tells of them.

use crate::connector::Cursors;

/// Somebody in a directory. What is not said is `None`: in a listing of everybody it is not known, and among changes it is
/// as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Person {
    /// What the directory calls them, whatever their address is by now.
    pub id: String,
    /// The one they write from, in canonical case.
    pub address: Option<String>,
    /// Others under which mail reaches them, in canonical case.
    pub aliases: Option<Vec<String>>,
    pub name: Option<String>,
    /// Where in the organisation: a path at Google, a department at Microsoft.
    pub unit: Option<String>,
    pub is_suspended: Option<bool>,
    pub is_guest: Option<bool>,
    /// Whether they have a mailbox, as far as their licences say.
    pub is_licensed: Option<bool>,
}

impl Person {
    /// What is said now, and what was said before of all else.
    #[must_use]
    pub fn over(self, before: Self) -> Self {
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
pub struct PeoplePage {
    /// Nobody twice.
    pub people: Vec<Person>,
    /// By their ids: they are in the directory no more.
    pub gone: Vec<String>,
    /// Where it goes on: after the last page with what changes from now on, if the provider tells that, else with
    /// everybody from the beginning.
    pub cursors: Cursors,
    pub is_last: bool,
}

/// One page of those who are in a group, by their ids in the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MembersPage {
    pub members: Vec<String>,
    pub cursors: Cursors,
    pub is_last: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_do_not_speak_of_stays_as_it_was() {
        let before = Person {
            id: "1".to_owned(),
            address: Some("ann@acme.test".to_owned()),
            is_suspended: Some(false),
            is_licensed: Some(true),
            ..Person::default()
        };
        let told = Person { id: "1".to_owned(), is_suspended: Some(true), ..Person::default() };

        let now = told.over(before.clone());

        assert_eq!(now, Person { is_suspended: Some(true), ..before });
    }
}
