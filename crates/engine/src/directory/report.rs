//! What a look at a directory found, and what it changed or would change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// People that a dry run names; of more it only counts.
const MOST_ITEMS: usize = 1_000;

/// More people than this have to be there before it is strange that many of them are not any more.
const FEW: u64 = 10;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// People that the provider told of this time; among changes, those who changed.
    pub listed: u64,
    /// It told of everybody, not only of changes.
    pub is_whole: bool,
    /// People in the directory.
    pub people: u64,
    /// Of those that had a mailbox here, how many there were, and how many of them are not wanted any more.
    #[serde(skip)]
    pub before: u64,
    #[serde(skip)]
    pub leaving: u64,
    /// New mailboxes.
    pub added: u64,
    /// Mailboxes that were here already and are known to be theirs now.
    pub adopted: u64,
    /// Mailboxes that are looked at again.
    pub returned: u64,
    /// Mailboxes that are not looked at any more; their mail stays.
    pub left: u64,
    pub renamed: u64,
    /// Everybody who is not wanted, by why.
    pub left_out: BTreeMap<String, u64>,
    /// Why nothing was changed, or would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a dry run: who is concerned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    /// There are more of them than are named.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// `add`, `adopt`, `return`, `leave`, `rename` or `leave_out`.
    pub action: String,
    pub provider_user_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why they are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Report {
    pub fn changes(&self) -> u64 {
        self.added + self.adopted + self.returned + self.left + self.renamed
    }

    /// Why somebody has to be sure before this is done: less than half would be left.
    pub(super) fn is_strange(&self) -> Option<String> {
        let (before, leaving) = (self.before, self.leaving);
        let is_strange = before > FEW && (before - leaving) * 2 < before;
        is_strange.then(|| {
            format!("{leaving} of {before} people would lose their mailbox here; if that is right, discover with force")
        })
    }

    pub(super) fn name(&mut self, item: Item) {
        match self.items.len() < MOST_ITEMS {
            true => self.items.push(item),
            false => self.is_cut = true,
        }
    }
}
