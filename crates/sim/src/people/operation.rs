//! What a script does to an organisation.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::group::Member;
use super::organisation::{Joining, Organisation};
use super::person::{Field, State};
use super::registry::Organisations;

/// People and groups are named by id or address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum PeopleOperation {
    Join(NewPerson),
    Set(PersonChange),
    Alias {
        person: String,
        #[serde(default)]
        add: Vec<String>,
        #[serde(default)]
        remove: Vec<String>,
    },
    /// They may come back.
    Delete {
        person: String,
    },
    Restore {
        person: String,
    },
    /// For good, whether they were deleted before or not.
    Purge {
        person: String,
    },
    CreateGroup {
        address: String,
        name: Option<String>,
        #[serde(default)]
        members: Vec<String>,
    },
    ChangeGroup {
        group: String,
        name: Option<String>,
        #[serde(default)]
        add: Vec<String>,
        #[serde(default)]
        remove: Vec<String>,
    },
    DeleteGroup {
        group: String,
    },
    /// What was told of changes before now is not remembered any more.
    ExpireDelta,
}

/// Somebody who is to come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewPerson {
    pub address: String,
    pub given_name: Option<String>,
    pub family_name: Option<String>,
    pub aliases: Vec<String>,
    pub unit: Option<String>,
    /// Nothing: yes.
    pub licensed: Option<bool>,
    pub guest: bool,
    pub admin: bool,
    /// In the mailbox from the start.
    pub messages: usize,
}

/// What is named changes; the rest stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PersonChange {
    pub person: String,
    /// The one from before stays as an alias.
    pub address: Option<String>,
    pub given_name: Option<String>,
    pub family_name: Option<String>,
    pub unit: Option<String>,
    pub licensed: Option<bool>,
    pub suspended: Option<bool>,
    pub archived: Option<bool>,
    pub admin: Option<bool>,
}

impl PeopleOperation {
    /// Somebody ordinary, without mail.
    pub fn join(address: &str) -> Self {
        Self::Join(NewPerson { address: address.to_owned(), ..NewPerson::default() })
    }
}

/// What an operation made or changed, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeopleApplied {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// Why an operation cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeopleRefused {
    NoOrganisation,
    NoPerson,
    NoGroup,
    Taken(String),
    /// A group would be in itself.
    Circle,
}

impl fmt::Display for PeopleRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOrganisation => f.write_str("there is no such organisation"),
            Self::NoPerson => f.write_str("there is no such person, or not in this state"),
            Self::NoGroup => f.write_str("there is no such group"),
            Self::Taken(address) => write!(f, "somebody has {address} already"),
            Self::Circle => f.write_str("a group cannot be in itself"),
        }
    }
}

/// What follows from an operation outside of the directory.
#[derive(Debug, Default)]
pub struct Effect {
    pub applied: PeopleApplied,
    /// A mailbox is to be made, with so many messages.
    pub opened: Option<(String, usize)>,
    /// Whoever had signed in as this one has to do it again.
    pub ended: Option<String>,
}

impl Organisations {
    pub fn apply(
        &mut self,
        organisation: &str,
        operation: PeopleOperation,
        now_ms: i64,
    ) -> Result<Effect, PeopleRefused> {
        let id = self.get(organisation).ok_or(PeopleRefused::NoOrganisation)?.id.clone();
        match operation {
            PeopleOperation::Join(new) => self.apply_join(&id, new, now_ms),
            PeopleOperation::Set(change) => self.apply_change(&id, change),
            PeopleOperation::Alias { person, add, remove } => {
                let number = self.number(&id, &person, false)?;
                self.rename(&id, number, None, &add, &remove)?;
                Ok(self.effect(&id, number, false))
            }
            PeopleOperation::Delete { person } => self.leave(&id, &person, &[State::Present], State::Deleted, now_ms),
            PeopleOperation::Purge { person } => {
                self.leave(&id, &person, &[State::Present, State::Deleted], State::Purged, now_ms)
            }
            PeopleOperation::Restore { person } => self.leave(&id, &person, &[State::Deleted], State::Present, now_ms),
            PeopleOperation::ExpireDelta => {
                let organisation = self.organisation(&id)?;
                organisation.changes += 1;
                organisation.oldest = organisation.changes;
                Ok(Effect::default())
            }
            of_groups => self.apply_to_groups(&id, of_groups, now_ms),
        }
    }

    fn apply_join(&mut self, id: &str, new: NewPerson, now_ms: i64) -> Result<Effect, PeopleRefused> {
        let opened = Some((new.address.to_lowercase(), new.messages));
        let new = Joining {
            given_name: new.given_name.unwrap_or_else(|| name_of(&new.address)),
            family_name: new.family_name.unwrap_or_default(),
            aliases: new.aliases.iter().map(|alias| alias.to_lowercase()).collect(),
            unit: new.unit.unwrap_or_default(),
            is_admin: new.admin,
            is_guest: new.guest,
            is_licensed: new.licensed.unwrap_or(true),
            address: new.address,
            id: String::new(),
        };
        let number = self.join(id, new, now_ms)?;
        Ok(Effect { opened, ..self.effect(id, number, false) })
    }

    fn apply_change(&mut self, id: &str, change: PersonChange) -> Result<Effect, PeopleRefused> {
        let number = self.number(id, &change.person, false)?;
        if let Some(address) = &change.address {
            self.rename(id, number, Some(address), &[], &[])?;
        }
        let organisation = self.organisation(id)?;
        if change.given_name.is_some() || change.family_name.is_some() {
            organisation.touch(number, Field::Name, |person| {
                person.given_name = change.given_name.unwrap_or_else(|| person.given_name.clone());
                person.family_name = change.family_name.unwrap_or_else(|| person.family_name.clone());
            })?;
        }
        if let Some(unit) = change.unit {
            organisation.touch(number, Field::Unit, |person| person.unit = unit)?;
        }
        if let Some(is_licensed) = change.licensed {
            organisation.touch(number, Field::Licence, |person| person.is_licensed = is_licensed)?;
        }
        if let Some(is_suspended) = change.suspended {
            organisation.touch(number, Field::Suspended, |person| person.is_suspended = is_suspended)?;
        }
        if let Some(is_archived) = change.archived {
            organisation.touch(number, Field::Archived, |person| person.is_archived = is_archived)?;
        }
        if let Some(is_admin) = change.admin {
            organisation.touch(number, Field::Admin, |person| person.is_admin = is_admin)?;
        }
        let is_ended = change.suspended == Some(true) || change.archived == Some(true);
        let ended = is_ended.then(|| self.account(id, number)).flatten();
        Ok(Effect { ended, ..self.effect(id, number, false) })
    }

    fn leave(
        &mut self,
        id: &str,
        person: &str,
        from: &[State],
        to: State,
        now_ms: i64,
    ) -> Result<Effect, PeopleRefused> {
        let number = self.number(id, person, false)?;
        let organisation = self.organisation(id)?;
        let turned = from.iter().find_map(|from| organisation.turn(number, *from, to, now_ms).ok());
        turned.ok_or(PeopleRefused::NoPerson)?;
        let ended = (to != State::Present).then(|| self.account(id, number)).flatten();
        Ok(Effect { ended, ..self.effect(id, number, false) })
    }

    /// Another address, and other aliases.
    fn rename(
        &mut self,
        id: &str,
        number: u64,
        address: Option<&str>,
        add: &[String],
        remove: &[String],
    ) -> Result<(), PeopleRefused> {
        let lower = |address: &str| address.to_lowercase();
        let person = &self.get(id).ok_or(PeopleRefused::NoOrganisation)?.people[&number];
        let own: Vec<String> = person.addresses().map(str::to_owned).collect();
        let wanted: Vec<String> = address.into_iter().chain(add.iter().map(String::as_str)).map(lower).collect();
        if let Some(taken) = wanted.iter().find(|address| !own.contains(address) && !self.is_free(address)) {
            return Err(PeopleRefused::Taken(taken.clone()));
        }
        let current = address.map_or_else(|| person.address.clone(), lower);
        let removed: Vec<String> = remove.iter().map(|address| lower(address)).collect();
        let mut aliases: Vec<String> = own.iter().chain(&wanted).filter(|one| **one != current).cloned().collect();
        aliases.retain(|alias| !removed.contains(alias));
        aliases.sort_unstable();
        aliases.dedup();
        // The mailbox is known by its first address for as long as there is one.
        let account = person.account.clone();
        for name in removed.iter().filter(|name| own.contains(name) && **name != current && **name != account) {
            self.forget_name(name);
        }
        for name in &wanted {
            self.name(name, id, number, false);
        }
        let field = if address.is_some() { Field::Address } else { Field::Aliases };
        self.organisation(id)?.touch(number, field, |person| {
            person.address = current;
            person.aliases = aliases;
        })
    }

    fn apply_to_groups(&mut self, id: &str, operation: PeopleOperation, now_ms: i64) -> Result<Effect, PeopleRefused> {
        let (number, name, add, remove) = match operation {
            PeopleOperation::CreateGroup { address, name, members } => {
                let address = address.to_lowercase();
                if self.find(&address).is_some() {
                    return Err(PeopleRefused::Taken(address));
                }
                let group_id = (self.naming)("group", &address);
                let name = name.unwrap_or_else(|| name_of(&address));
                let number = self.organisation(id)?.add_group(&group_id, &address, &name, now_ms);
                self.name(&address, id, number, true);
                self.name(&group_id, id, number, true);
                (number, None, members, Vec::new())
            }
            PeopleOperation::ChangeGroup { group, name, add, remove } => {
                (self.number(id, &group, true)?, name, add, remove)
            }
            PeopleOperation::DeleteGroup { group } => {
                let number = self.number(id, &group, true)?;
                let removed = self.organisation(id)?.groups.remove(&number).ok_or(PeopleRefused::NoGroup)?;
                self.forget_name(&removed.address);
                self.forget_name(&removed.id);
                return Ok(Effect::default());
            }
            _ => return Ok(Effect::default()),
        };
        for member in add {
            let member = self.member(id, &member)?;
            self.organisation(id)?.add_member(number, member)?;
        }
        let removed: Vec<Member> =
            remove.iter().map(|member| self.member(id, member)).collect::<Result<_, PeopleRefused>>()?;
        let group = self.organisation(id)?.groups.get_mut(&number).ok_or(PeopleRefused::NoGroup)?;
        group.members.retain(|member| !removed.contains(member));
        group.name = name.unwrap_or_else(|| group.name.clone());
        Ok(self.effect(id, number, true))
    }

    fn member(&self, id: &str, name: &str) -> Result<Member, PeopleRefused> {
        let found = self.find(name).filter(|found| found.organisation == id).ok_or(PeopleRefused::NoPerson)?;
        Ok(if found.is_group { Member::Group(found.number) } else { Member::Person(found.number) })
    }

    fn number(&self, id: &str, name: &str, is_group: bool) -> Result<u64, PeopleRefused> {
        let missing = if is_group { PeopleRefused::NoGroup } else { PeopleRefused::NoPerson };
        let found = self.find(name).filter(|found| found.organisation == id && found.is_group == is_group);
        found.map(|found| found.number).ok_or(missing)
    }

    fn organisation(&mut self, id: &str) -> Result<&mut Organisation, PeopleRefused> {
        self.get_mut(id).ok_or(PeopleRefused::NoOrganisation)
    }

    fn account(&self, id: &str, number: u64) -> Option<String> {
        Some(self.get(id)?.people.get(&number)?.account.clone())
    }

    fn effect(&self, id: &str, number: u64, is_group: bool) -> Effect {
        let organisation = self.get(id);
        let person = organisation.and_then(|found| found.people.get(&number)).map(|person| person.id.clone());
        let group = organisation.and_then(|found| found.groups.get(&number)).map(|group| group.id.clone());
        let applied = match is_group {
            true => PeopleApplied { person: None, group },
            false => PeopleApplied { person, group: None },
        };
        Effect { applied, ..Effect::default() }
    }
}

/// What stands before the `@`, in a form that people have.
pub fn name_of(address: &str) -> String {
    let mut letters = address.split('@').next().unwrap_or_default().chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
