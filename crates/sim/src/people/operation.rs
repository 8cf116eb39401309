//! Scripted operations on an organisation.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::group::GroupMember;
use super::organisation::{NewPersonRecord, Organisation};
use super::person::{PersonField, PersonState};
use super::registry::Organisations;

/// A scripted operation on an organisation. People and groups are given by id or address.
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
    /// Deletes a person, who can be restored.
    Delete {
        person: String,
    },
    Restore {
        person: String,
    },
    /// Deletes a person for good.
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
    /// Expires all delta tokens up to now.
    ExpireDelta,
}

/// A person to add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewPerson {
    pub address: String,
    pub given_name: Option<String>,
    pub family_name: Option<String>,
    pub aliases: Vec<String>,
    pub unit: Option<String>,
    /// `None`: yes.
    pub licensed: Option<bool>,
    pub guest: bool,
    pub admin: bool,
    /// The number of initial messages.
    pub messages: usize,
}

/// A change of a person: only the given fields change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PersonChange {
    pub person: String,
    /// The new address; the old one becomes an alias.
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
    /// Adds an ordinary person without mail.
    pub fn join(address: &str) -> Self {
        Self::Join(NewPerson { address: address.to_owned(), ..NewPerson::default() })
    }
}

/// The ids of what an operation created or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeopleOperationOutcome {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// The reason why a scripted operation cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeopleOperationError {
    NoOrganisation,
    NoPerson,
    NoGroup,
    Taken(String),
    /// The group would contain itself.
    Circle,
}

impl fmt::Display for PeopleOperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOrganisation => f.write_str("there is no such organisation"),
            Self::NoPerson => f.write_str("there is no such person, or not in this state"),
            Self::NoGroup => f.write_str("there is no such group"),
            Self::Taken(address) => write!(f, "{address} is in use"),
            Self::Circle => f.write_str("a group cannot be in itself"),
        }
    }
}

/// The effects of an operation outside of the directory.
#[derive(Debug, Default)]
pub struct OperationEffects {
    pub applied: PeopleOperationOutcome,
    /// A mailbox to create, with its number of messages.
    pub new_mailbox: Option<(String, usize)>,
    /// The account whose sign-ins end.
    pub ended_account: Option<String>,
}

impl Organisations {
    pub fn apply(
        &mut self,
        organisation: &str,
        operation: PeopleOperation,
        now_ms: i64,
    ) -> Result<OperationEffects, PeopleOperationError> {
        let id = self.get(organisation).ok_or(PeopleOperationError::NoOrganisation)?.id.clone();
        match operation {
            PeopleOperation::Join(new) => self.apply_join(&id, new, now_ms),
            PeopleOperation::Set(change) => self.apply_change(&id, change),
            PeopleOperation::Alias { person, add, remove } => {
                let number = self.number(&id, &person, false)?;
                self.rename(&id, number, None, &add, &remove)?;
                Ok(self.effect(&id, number, false))
            }
            PeopleOperation::Delete { person } => {
                self.apply_state(&id, &person, &[PersonState::Present], PersonState::Deleted, now_ms)
            }
            PeopleOperation::Purge { person } => self.apply_state(
                &id,
                &person,
                &[PersonState::Present, PersonState::Deleted],
                PersonState::Purged,
                now_ms,
            ),
            PeopleOperation::Restore { person } => {
                self.apply_state(&id, &person, &[PersonState::Deleted], PersonState::Present, now_ms)
            }
            PeopleOperation::ExpireDelta => {
                let organisation = self.organisation(&id)?;
                organisation.changes += 1;
                organisation.oldest = organisation.changes;
                Ok(OperationEffects::default())
            }
            of_groups => self.apply_to_groups(&id, of_groups, now_ms),
        }
    }

    fn apply_join(&mut self, id: &str, new: NewPerson, now_ms: i64) -> Result<OperationEffects, PeopleOperationError> {
        let new_mailbox = Some((new.address.to_lowercase(), new.messages));
        let new = NewPersonRecord {
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
        Ok(OperationEffects { new_mailbox, ..self.effect(id, number, false) })
    }

    fn apply_change(&mut self, id: &str, change: PersonChange) -> Result<OperationEffects, PeopleOperationError> {
        let number = self.number(id, &change.person, false)?;
        if let Some(address) = &change.address {
            self.rename(id, number, Some(address), &[], &[])?;
        }
        let organisation = self.organisation(id)?;
        if change.given_name.is_some() || change.family_name.is_some() {
            organisation.update_field(number, PersonField::Name, |person| {
                person.given_name = change.given_name.unwrap_or_else(|| person.given_name.clone());
                person.family_name = change.family_name.unwrap_or_else(|| person.family_name.clone());
            })?;
        }
        if let Some(unit) = change.unit {
            organisation.update_field(number, PersonField::Unit, |person| person.unit = unit)?;
        }
        if let Some(is_licensed) = change.licensed {
            organisation.update_field(number, PersonField::Licence, |person| person.is_licensed = is_licensed)?;
        }
        if let Some(is_suspended) = change.suspended {
            organisation.update_field(number, PersonField::Suspended, |person| person.is_suspended = is_suspended)?;
        }
        if let Some(is_archived) = change.archived {
            organisation.update_field(number, PersonField::Archived, |person| person.is_archived = is_archived)?;
        }
        if let Some(is_admin) = change.admin {
            organisation.update_field(number, PersonField::Admin, |person| person.is_admin = is_admin)?;
        }
        let is_locked_out = change.suspended == Some(true) || change.archived == Some(true);
        let ended_account = is_locked_out.then(|| self.account(id, number)).flatten();
        Ok(OperationEffects { ended_account, ..self.effect(id, number, false) })
    }

    fn apply_state(
        &mut self,
        id: &str,
        person: &str,
        from: &[PersonState],
        to: PersonState,
        now_ms: i64,
    ) -> Result<OperationEffects, PeopleOperationError> {
        let number = self.number(id, person, false)?;
        let organisation = self.organisation(id)?;
        let changed = from.iter().find_map(|from| organisation.change_state(number, *from, to, now_ms).ok());
        changed.ok_or(PeopleOperationError::NoPerson)?;
        let ended_account = (to != PersonState::Present).then(|| self.account(id, number)).flatten();
        Ok(OperationEffects { ended_account, ..self.effect(id, number, false) })
    }

    /// Changes a person's address and aliases.
    fn rename(
        &mut self,
        id: &str,
        number: u64,
        address: Option<&str>,
        add: &[String],
        remove: &[String],
    ) -> Result<(), PeopleOperationError> {
        let person = &self.get(id).ok_or(PeopleOperationError::NoOrganisation)?.people[&number];
        let own: Vec<String> = person.addresses().map(str::to_owned).collect();
        let wanted: Vec<String> =
            address.into_iter().chain(add.iter().map(String::as_str)).map(str::to_lowercase).collect();
        if let Some(taken) = wanted.iter().find(|address| !own.contains(address) && !self.is_free(address)) {
            return Err(PeopleOperationError::Taken(taken.clone()));
        }
        let current = address.map_or_else(|| person.address.clone(), str::to_lowercase);
        let removed: Vec<String> = remove.iter().map(|address| address.to_lowercase()).collect();
        let mut aliases: Vec<String> = own.iter().chain(&wanted).filter(|one| **one != current).cloned().collect();
        aliases.retain(|alias| !removed.contains(alias));
        aliases.sort_unstable();
        aliases.dedup();
        // The first address is the mailbox's key and stays.
        let account = person.account.clone();
        for name in removed.iter().filter(|name| own.contains(name) && **name != current && **name != account) {
            self.remove_name(name);
        }
        for name in &wanted {
            self.add_name(name, id, number, false);
        }
        let field = if address.is_some() { PersonField::Address } else { PersonField::Aliases };
        self.organisation(id)?.update_field(number, field, |person| {
            person.address = current;
            person.aliases = aliases;
        })
    }

    fn apply_to_groups(
        &mut self,
        id: &str,
        operation: PeopleOperation,
        now_ms: i64,
    ) -> Result<OperationEffects, PeopleOperationError> {
        let (number, name, add, remove) = match operation {
            PeopleOperation::CreateGroup { address, name, members } => {
                let address = address.to_lowercase();
                if self.find(&address).is_some() {
                    return Err(PeopleOperationError::Taken(address));
                }
                let group_id = (self.id_scheme)("group", &address);
                let name = name.unwrap_or_else(|| name_of(&address));
                let number = self.organisation(id)?.add_group(&group_id, &address, &name, now_ms);
                self.add_name(&address, id, number, true);
                self.add_name(&group_id, id, number, true);
                (number, None, members, Vec::new())
            }
            PeopleOperation::ChangeGroup { group, name, add, remove } => {
                (self.number(id, &group, true)?, name, add, remove)
            }
            PeopleOperation::DeleteGroup { group } => {
                let number = self.number(id, &group, true)?;
                let removed = self.organisation(id)?.groups.remove(&number).ok_or(PeopleOperationError::NoGroup)?;
                self.remove_name(&removed.address);
                self.remove_name(&removed.id);
                return Ok(OperationEffects::default());
            }
            _ => return Ok(OperationEffects::default()),
        };
        for member in add {
            let member = self.member(id, &member)?;
            self.organisation(id)?.add_member(number, member)?;
        }
        let removed: Vec<GroupMember> =
            remove.iter().map(|member| self.member(id, member)).collect::<Result<_, PeopleOperationError>>()?;
        let group = self.organisation(id)?.groups.get_mut(&number).ok_or(PeopleOperationError::NoGroup)?;
        group.members.retain(|member| !removed.contains(member));
        group.name = name.unwrap_or_else(|| group.name.clone());
        Ok(self.effect(id, number, true))
    }

    fn member(&self, id: &str, name: &str) -> Result<GroupMember, PeopleOperationError> {
        let found = self.find(name).filter(|found| found.organisation == id).ok_or(PeopleOperationError::NoPerson)?;
        Ok(if found.is_group { GroupMember::Group(found.number) } else { GroupMember::Person(found.number) })
    }

    fn number(&self, id: &str, name: &str, is_group: bool) -> Result<u64, PeopleOperationError> {
        let missing = if is_group { PeopleOperationError::NoGroup } else { PeopleOperationError::NoPerson };
        let found = self.find(name).filter(|found| found.organisation == id && found.is_group == is_group);
        found.map(|found| found.number).ok_or(missing)
    }

    fn organisation(&mut self, id: &str) -> Result<&mut Organisation, PeopleOperationError> {
        self.get_mut(id).ok_or(PeopleOperationError::NoOrganisation)
    }

    fn account(&self, id: &str, number: u64) -> Option<String> {
        Some(self.get(id)?.people.get(&number)?.account.clone())
    }

    fn effect(&self, id: &str, number: u64, is_group: bool) -> OperationEffects {
        let organisation = self.get(id);
        let person = organisation.and_then(|found| found.people.get(&number)).map(|person| person.id.clone());
        let group = organisation.and_then(|found| found.groups.get(&number)).map(|group| group.id.clone());
        let applied = if is_group {
            PeopleOperationOutcome { person: None, group }
        } else {
            PeopleOperationOutcome { person, group: None }
        };
        OperationEffects { applied, ..OperationEffects::default() }
    }
}

/// Derives a given name from an address's local part.
pub fn name_of(address: &str) -> String {
    let mut letters = address.split('@').next().unwrap_or_default().chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
