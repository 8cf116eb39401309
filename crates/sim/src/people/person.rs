//! A person in an organisation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::operation::name_of;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The directory's id of the person, which stays when the address changes.
    pub id: String,
    /// The key of the mailbox: the person's first address.
    pub account: String,
    pub address: String,
    pub aliases: Vec<String>,
    pub given_name: String,
    pub family_name: String,
    /// The organisational unit, as in `/Sales/North`.
    pub unit: String,
    pub is_admin: bool,
    pub is_suspended: bool,
    pub is_archived: bool,
    /// Whether the person is a guest, without a mailbox here.
    pub is_guest: bool,
    /// Whether the person has a mailbox licence.
    pub is_licensed: bool,
    pub state: PersonState,
    pub joined_ms: i64,
    pub deleted_ms: Option<i64>,
    /// The organisation's change counter at the last change.
    pub(crate) changed_at: u64,
    /// The change counter when the person joined or was restored.
    pub(crate) entered_at: u64,
    /// The change counter at the last change of each field.
    pub(crate) touched: BTreeMap<PersonField, u64>,
}

/// The state of a person in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersonState {
    Present,
    /// Can be restored.
    Deleted,
    /// Removed for good.
    Purged,
}

/// A field of a person that can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PersonField {
    Address,
    Aliases,
    Name,
    Unit,
    Admin,
    Suspended,
    Archived,
    Licence,
}

/// Returns the domain of an address.
pub fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or(address, |(_, domain)| domain)
}

impl Person {
    /// Builds a person without an organisation.
    pub(crate) fn without_organisation(id: &str, address: &str) -> Self {
        Self {
            id: id.to_owned(),
            account: address.to_owned(),
            address: address.to_owned(),
            aliases: Vec::new(),
            given_name: name_of(address),
            family_name: String::new(),
            unit: "/".to_owned(),
            is_admin: false,
            is_suspended: false,
            is_archived: false,
            is_guest: false,
            is_licensed: true,
            state: PersonState::Present,
            joined_ms: 0,
            deleted_ms: None,
            changed_at: 0,
            entered_at: 0,
            touched: BTreeMap::new(),
        }
    }

    pub fn is_present(&self) -> bool {
        self.state == PersonState::Present
    }

    /// Returns whether the directory gives the person a mailbox.
    pub fn has_mailbox(&self) -> bool {
        self.is_present() && self.is_licensed && !self.is_guest
    }

    pub fn full_name(&self) -> String {
        [self.given_name.as_str(), &self.family_name].join(" ").trim().to_owned()
    }

    /// Iterates over all addresses, the primary one first.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.address.as_str()).chain(self.aliases.iter().map(String::as_str))
    }

    /// Iterates over the fields changed since.
    pub fn touched_since(&self, change: u64) -> impl Iterator<Item = PersonField> {
        self.touched.iter().filter(move |(_, at)| **at > change).map(|(field, _)| *field)
    }
}
