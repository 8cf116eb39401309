//! Who of a directory is to have a mailbox here.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::Person;

/// Without a word everybody is in who works there: not who is suspended, a guest, or without a mailbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Nothing: everybody.
    pub include: Choice,
    /// Whoever is chosen by both is out.
    pub exclude: Choice,
    /// These are in as well.
    pub suspended: bool,
    pub guests: bool,
    pub unlicensed: bool,
}

/// Whoever is in one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Choice {
    /// By address or id.
    pub groups: Vec<String>,
    /// With what is below them: `/Sales` is `/Sales/North`, too.
    pub units: Vec<String>,
    /// Of the address that they write from.
    pub domains: Vec<String>,
    /// Aliases count.
    pub addresses: Vec<String>,
}

/// Who is in the groups that rules name, by ids of the directory.
pub type Groups = HashMap<String, HashSet<String>>;

/// Why somebody has no mailbox here that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// They are not in the directory any more.
    Gone,
    NoAddress,
    Suspended,
    Guest,
    Unlicensed,
    Excluded,
    NotIncluded,
    /// A mailbox has this address that is not theirs.
    AddressTaken,
    /// Somebody has disconnected their mailbox.
    Disconnected,
}

impl LeftOut {
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

    /// It completes the sentence "their mailbox is not looked at: they …".
    pub fn words(self) -> &'static str {
        match self {
            Self::Gone => "are not in the directory any more",
            Self::NoAddress => "have no address",
            Self::Suspended => "are suspended",
            Self::Guest => "are a guest",
            Self::Unlicensed => "have no licence for a mailbox",
            Self::Excluded => "are excluded by the rules",
            Self::NotIncluded => "are not included by the rules",
            Self::AddressTaken => "have an address that another mailbox has here",
            Self::Disconnected => "have a mailbox that somebody has disconnected",
        }
    }
}

impl Rules {
    /// The groups that have to be known, each once.
    pub fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = self.include.groups.iter().chain(&self.exclude.groups).cloned().collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// `None`: they are in. What is not known of somebody is not held against them.
    pub fn left_out(&self, person: &Person, groups: &Groups) -> Option<LeftOut> {
        if person.address.is_none() {
            return Some(LeftOut::NoAddress);
        }
        if person.is_suspended == Some(true) && !self.suspended {
            return Some(LeftOut::Suspended);
        }
        if person.is_guest == Some(true) && !self.guests {
            return Some(LeftOut::Guest);
        }
        if person.is_licensed == Some(false) && !self.unlicensed {
            return Some(LeftOut::Unlicensed);
        }
        if self.exclude.chooses(person, groups) {
            return Some(LeftOut::Excluded);
        }
        let is_in = self.include.is_empty() || self.include.chooses(person, groups);
        (!is_in).then_some(LeftOut::NotIncluded)
    }
}

impl Choice {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.units.is_empty() && self.domains.is_empty() && self.addresses.is_empty()
    }

    fn chooses(&self, person: &Person, groups: &Groups) -> bool {
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

    fn ann() -> Person {
        Person {
            id: "1".to_owned(),
            address: Some("ann@acme.test".to_owned()),
            aliases: Some(vec!["annie@other.test".to_owned()]),
            unit: Some("/Sales/North".to_owned()),
            is_suspended: Some(false),
            ..Person::default()
        }
    }

    fn choice(groups: &[&str], units: &[&str], domains: &[&str], addresses: &[&str]) -> Choice {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Choice { groups: owned(groups), units: owned(units), domains: owned(domains), addresses: owned(addresses) }
    }

    #[test]
    fn by_default_everybody_is_in_who_works_there() {
        let rules = Rules::default();
        let left_out = |person: Person| rules.left_out(&person, &Groups::new());

        assert_eq!(left_out(ann()), None, "that nothing is known of a licence is not held against her");
        assert_eq!(left_out(Person { is_suspended: Some(true), ..ann() }), Some(LeftOut::Suspended));
        assert_eq!(left_out(Person { is_guest: Some(true), ..ann() }), Some(LeftOut::Guest));
        assert_eq!(left_out(Person { is_licensed: Some(false), ..ann() }), Some(LeftOut::Unlicensed));
        assert_eq!(left_out(Person { address: None, ..ann() }), Some(LeftOut::NoAddress));
    }

    #[test]
    fn each_way_to_choose_somebody_chooses_them() {
        let groups = Groups::from([("sales@acme.test".to_owned(), HashSet::from(["1".to_owned()]))]);
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
            assert_eq!(Rules { include, ..Rules::default() }.left_out(&ann(), &groups), None);
        }
        for exclude in chosen {
            let rules = Rules { exclude, ..Rules::default() };
            assert_eq!(rules.left_out(&ann(), &groups), Some(LeftOut::Excluded));
        }
        for include in not.clone() {
            let rules = Rules { include, ..Rules::default() };
            assert_eq!(rules.left_out(&ann(), &groups), Some(LeftOut::NotIncluded));
        }
        for exclude in not {
            assert_eq!(Rules { exclude, ..Rules::default() }.left_out(&ann(), &groups), None);
        }
    }

    #[test]
    fn whoever_is_included_and_excluded_is_out() {
        let rules = Rules {
            include: choice(&[], &[], &["acme.test"], &[]),
            exclude: choice(&[], &[], &[], &["ann@acme.test"]),
            ..Rules::default()
        };
        assert_eq!(rules.left_out(&ann(), &Groups::new()), Some(LeftOut::Excluded));
    }
}
