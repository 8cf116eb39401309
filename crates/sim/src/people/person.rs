//! Somebody in an organisation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::operation::name_of;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// What the directory knows them by, whatever the address.
    pub id: String,
    /// The name of their mailbox: the first address they had.
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
    /// From elsewhere, and without a mailbox here.
    pub is_guest: bool,
    /// Whether a mailbox was paid for.
    pub is_licensed: bool,
    pub state: State,
    pub joined_ms: i64,
    pub deleted_ms: Option<i64>,
    /// When they last changed, counted in changes to the organisation.
    pub(crate) changed_at: u64,
    /// When they came, or came back, counted likewise.
    pub(crate) entered_at: u64,
    /// When each of these last changed, if it ever did.
    pub(crate) touched: BTreeMap<Field, u64>,
}

/// Whether somebody is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Present,
    /// And may come back.
    Deleted,
    /// For good.
    Purged,
}

/// What can change about a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Address,
    Aliases,
    Name,
    Unit,
    Admin,
    Suspended,
    Archived,
    Licence,
}

/// What stands after the `@`.
pub fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or(address, |(_, domain)| domain)
}

impl Person {
    /// Somebody who belongs to no organisation.
    pub(crate) fn alone(id: &str, address: &str) -> Self {
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
            state: State::Present,
            joined_ms: 0,
            deleted_ms: None,
            changed_at: 0,
            entered_at: 0,
            touched: BTreeMap::new(),
        }
    }

    pub fn is_present(&self) -> bool {
        self.state == State::Present
    }

    /// Whether there is mail to read, as far as the directory is concerned.
    pub fn has_mailbox(&self) -> bool {
        self.is_present() && self.is_licensed && !self.is_guest
    }

    pub fn full_name(&self) -> String {
        [self.given_name.as_str(), &self.family_name].join(" ").trim().to_owned()
    }

    /// All that they are reached by, the current address first.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.address.as_str()).chain(self.aliases.iter().map(String::as_str))
    }

    /// What changed since, if that was not all of it.
    pub fn touched_since(&self, change: u64) -> impl Iterator<Item = Field> {
        self.touched.iter().filter(move |(_, at)| **at > change).map(|(field, _)| *field)
    }
}
