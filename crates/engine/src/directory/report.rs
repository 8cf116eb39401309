//! The report of a discovery: what it found, and what it changed or would change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Users that a dry run lists; further ones are only counted.
const MAX_ITEMS: usize = 1_000;

/// Directories of so few users are never held back, however many of them go.
const MIN_USERS_FOR_CHECK: u64 = 10;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiscoveryReport {
    /// Users that the provider listed this time; in a listing of changes, those who changed.
    pub listed: u64,
    /// The listing was full, not only of changes.
    pub is_whole: bool,
    /// Users in the directory.
    pub people: u64,
    /// Users that had an active mailbox, and how many of them would lose it.
    #[serde(skip)]
    pub before: u64,
    #[serde(skip)]
    pub leaving: u64,
    /// New mailboxes.
    pub added: u64,
    /// Existing mailboxes that were assigned to a user.
    pub adopted: u64,
    /// Mailboxes that were switched on again.
    pub returned: u64,
    /// Mailboxes that were switched off; their mail stays.
    pub left: u64,
    pub renamed: u64,
    /// Users without an active mailbox, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Why nothing was changed, or would be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The users concerned, in a dry run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ReportItem>,
    /// Further users are concerned than are listed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportItem {
    /// `add`, `adopt`, `return`, `leave`, `rename` or `leave_out`.
    pub action: String,
    pub provider_user_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why the user has no active mailbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl DiscoveryReport {
    pub fn changes(&self) -> u64 {
        self.added + self.adopted + self.returned + self.left + self.renamed
    }

    /// Returns why the changes need to be forced: less than half of the mailboxes would be left.
    pub(super) fn too_many_leave(&self) -> Option<String> {
        let (before, leaving) = (self.before, self.leaving);
        let is_suspicious = before > MIN_USERS_FOR_CHECK && (before - leaving) * 2 < before;
        is_suspicious.then(|| {
            format!(
                "{leaving} of {before} users would lose their mailbox; run the discovery with `force` to apply this"
            )
        })
    }

    pub(super) fn add_item(&mut self, item: ReportItem) {
        if self.items.len() < MAX_ITEMS {
            self.items.push(item);
        } else {
            self.is_cut = true;
        }
    }
}
