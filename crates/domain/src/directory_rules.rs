//! Rules for which people of a directory get a mailbox here.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::DirectoryPerson;

/// By default everybody is included except suspended people, guests, and people without a mailbox licence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectoryRules {
    /// An empty selector includes everybody.
    pub include: PersonSelector,
    /// Takes precedence over `include`.
    pub exclude: PersonSelector,
    /// Whether suspended people are included.
    pub suspended: bool,
    /// Whether guests are included.
    pub guests: bool,
    /// Whether people without a mailbox licence are included.
    pub unlicensed: bool,
}

/// Selects people who match at least one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PersonSelector {
    /// By address or id.
    pub groups: Vec<String>,
    /// Organisational units with those below them: `/Sales` also matches `/Sales/North`.
    pub units: Vec<String>,
    /// Domains of the primary address.
    pub domains: Vec<String>,
    /// Primary addresses or aliases.
    pub addresses: Vec<String>,
}

/// The members of the groups that rules name, by the directory's ids.
pub type GroupMembers = HashMap<String, HashSet<String>>;

/// Why a person of the directory has no synced mailbox here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExclusionReason {
    /// The person was removed from the directory.
    Gone,
    NoAddress,
    Suspended,
    Guest,
    Unlicensed,
    Excluded,
    NotIncluded,
    /// Another mailbox already has this address.
    AddressTaken,
    /// The mailbox was disconnected by hand.
    Disconnected,
}

impl ExclusionReason {
    pub const ALL: [Self; 9] = [
        Self::Gone,
        Self::NoAddress,
        Self::Suspended,
        Self::Guest,
        Self::Unlicensed,
        Self::Excluded,
        Self::NotIncluded,
        Self::AddressTaken,
        Self::Disconnected,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::NoAddress => "no_address",
            Self::Suspended => "suspended",
            Self::Guest => "guest",
            Self::Unlicensed => "unlicensed",
            Self::Excluded => "excluded",
            Self::NotIncluded => "not_included",
            Self::AddressTaken => "address_taken",
            Self::Disconnected => "disconnected",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// Returns the end of the sentence "their mailbox is not synced: they …".
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Gone => "are not in the directory any more",
            Self::NoAddress => "have no address",
            Self::Suspended => "are suspended",
            Self::Guest => "are a guest",
            Self::Unlicensed => "have no licence for a mailbox",
            Self::Excluded => "are excluded by the rules",
            Self::NotIncluded => "are not included by the rules",
            Self::AddressTaken => "have an address that another mailbox has here",
            Self::Disconnected => "have a mailbox that was disconnected",
        }
    }
}

impl DirectoryRules {
    /// Returns the groups whose members must be known, each once.
    pub fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = self.include.groups.iter().chain(&self.exclude.groups).cloned().collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Returns why the person is excluded, or `None` if they are included. An unknown property excludes nobody.
    pub fn exclusion(&self, person: &DirectoryPerson, groups: &GroupMembers) -> Option<ExclusionReason> {
        if person.address.is_none() {
            return Some(ExclusionReason::NoAddress);
        }
        if person.is_suspended == Some(true) && !self.suspended {
            return Some(ExclusionReason::Suspended);
        }
        if person.is_guest == Some(true) && !self.guests {
            return Some(ExclusionReason::Guest);
        }
        if person.is_licensed == Some(false) && !self.unlicensed {
            return Some(ExclusionReason::Unlicensed);
        }
        if self.exclude.matches(person, groups) {
            return Some(ExclusionReason::Excluded);
        }
        let is_in = self.include.is_empty() || self.include.matches(person, groups);
        (!is_in).then_some(ExclusionReason::NotIncluded)
    }
}

impl PersonSelector {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.units.is_empty() && self.domains.is_empty() && self.addresses.is_empty()
    }

    fn matches(&self, person: &DirectoryPerson, groups: &GroupMembers) -> bool {
        let address = person.address.as_deref().unwrap_or_default();
        let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
        let mut addresses = std::iter::once(address).chain(person.aliases.iter().flatten().map(String::as_str));
        self.groups.iter().any(|group| groups.get(group).is_some_and(|members| members.contains(&person.id)))
            || person.unit.as_deref().is_some_and(|unit| self.units.iter().any(|wanted| is_within(unit, wanted)))
            || self.domains.iter().any(|wanted| wanted.eq_ignore_ascii_case(domain))
            || addresses.any(|address| self.addresses.iter().any(|wanted| wanted.eq_ignore_ascii_case(address)))
    }
}

fn is_within(unit: &str, wanted: &str) -> bool {
    let wanted = wanted.trim_end_matches('/').to_lowercase();
    let unit = unit.trim_end_matches('/').to_lowercase();
    unit.strip_prefix(&wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann() -> DirectoryPerson {
        DirectoryPerson {
            id: "1".to_owned(),
            address: Some("ann@acme.test".to_owned()),
            aliases: Some(vec!["annie@other.test".to_owned()]),
            unit: Some("/Sales/North".to_owned()),
            is_suspended: Some(false),
            ..DirectoryPerson::default()
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn choice(groups: &[&str], units: &[&str], domains: &[&str], addresses: &[&str]) -> PersonSelector {
        PersonSelector {
            groups: owned(groups),
            units: owned(units),
            domains: owned(domains),
            addresses: owned(addresses),
        }
    }

    #[test]
    fn default_rules_include_every_employee() {
        let rules = DirectoryRules::default();

        for (person, expected) in [
            (ann(), None), // an unknown licence does not exclude her
            (DirectoryPerson { is_suspended: Some(true), ..ann() }, Some(ExclusionReason::Suspended)),
            (DirectoryPerson { is_guest: Some(true), ..ann() }, Some(ExclusionReason::Guest)),
            (DirectoryPerson { is_licensed: Some(false), ..ann() }, Some(ExclusionReason::Unlicensed)),
            (DirectoryPerson { address: None, ..ann() }, Some(ExclusionReason::NoAddress)),
        ] {
            assert_eq!(rules.exclusion(&person, &GroupMembers::new()), expected, "{person:?}");
        }
    }

    #[test]
    fn each_selector_entry_selects_people() {
        let groups = GroupMembers::from([("sales@acme.test".to_owned(), HashSet::from(["1".to_owned()]))]);
        let chosen = [
            choice(&["sales@acme.test"], &[], &[], &[]),
            choice(&[], &["/sales/"], &[], &[]),
            choice(&[], &["/"], &[], &[]),
            choice(&[], &[], &["ACME.test"], &[]),
            choice(&[], &[], &[], &["Annie@other.test"]),
        ];
        let not = [
            choice(&["others@acme.test"], &[], &[], &[]),
            choice(&[], &["/Sal"], &[], &[]),
            choice(&[], &["/Sales/North/East"], &[], &[]),
            choice(&[], &[], &["other.test"], &[]),
            choice(&[], &[], &[], &["bob@acme.test"]),
        ];
        for include in chosen.clone() {
            assert_eq!(DirectoryRules { include, ..DirectoryRules::default() }.exclusion(&ann(), &groups), None);
        }
        for exclude in chosen {
            let rules = DirectoryRules { exclude, ..DirectoryRules::default() };
            assert_eq!(rules.exclusion(&ann(), &groups), Some(ExclusionReason::Excluded));
        }
        for include in not.clone() {
            let rules = DirectoryRules { include, ..DirectoryRules::default() };
            assert_eq!(rules.exclusion(&ann(), &groups), Some(ExclusionReason::NotIncluded));
        }
        for exclude in not {
            assert_eq!(DirectoryRules { exclude, ..DirectoryRules::default() }.exclusion(&ann(), &groups), None);
        }
    }

    #[test]
    fn exclusion_takes_precedence() {
        let rules = DirectoryRules {
            include: choice(&[], &[], &["acme.test"], &[]),
            exclude: choice(&[], &[], &[], &["ann@acme.test"]),
            ..DirectoryRules::default()
        };
        assert_eq!(rules.exclusion(&ann(), &GroupMembers::new()), Some(ExclusionReason::Excluded));
    }
}
