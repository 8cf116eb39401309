//! What people are searched by: clauses with a field, an operator and a value, all of which must be so.

use crate::people::Person;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(Vec<Clause>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Clause {
    /// The unit itself and all below it.
    Unit(String),
    Suspended(bool),
    Archived(bool),
    Admin(bool),
    Address(Wanted),
    GivenName(Wanted),
    FamilyName(Wanted),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Exactly(String),
    BeginningWith(String),
}

impl Wanted {
    fn fits(&self, given: &str) -> bool {
        match self {
            Self::Exactly(wanted) => given.to_lowercase() == *wanted,
            Self::BeginningWith(wanted) => given.to_lowercase().starts_with(wanted),
        }
    }
}

impl Query {
    pub fn read(text: &str) -> Result<Self, String> {
        let mut clauses = Vec::new();
        let mut left = text.trim();
        while !left.is_empty() {
            let (clause, rest) = clause(left).ok_or_else(|| format!("query {text:?}"))?;
            clauses.push(clause);
            left = rest.trim_start();
        }
        Ok(Self(clauses))
    }

    pub fn fits(&self, person: &Person) -> bool {
        self.0.iter().all(|clause| match clause {
            Clause::Unit(unit) => is_below(&person.unit, unit),
            Clause::Suspended(wanted) => *wanted == person.is_suspended,
            Clause::Archived(wanted) => *wanted == person.is_archived,
            Clause::Admin(wanted) => *wanted == person.is_admin,
            Clause::Address(wanted) => person.addresses().any(|address| wanted.fits(address)),
            Clause::GivenName(wanted) => wanted.fits(&person.given_name),
            Clause::FamilyName(wanted) => wanted.fits(&person.family_name),
        })
    }
}

/// Whether a unit is this one or inside of it.
pub fn is_below(unit: &str, above: &str) -> bool {
    above == "/" || unit == above || unit.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// The first clause, and what comes after it.
fn clause(text: &str) -> Option<(Clause, &str)> {
    let at = text.find([':', '='])?;
    let (field, operator) = (&text[..at], text.as_bytes()[at]);
    let (value, rest) = match text[at + 1..].strip_prefix('\'') {
        Some(quoted) => quoted.split_once('\'')?,
        None => text[at + 1..].split_once(' ').unwrap_or((&text[at + 1..], "")),
    };
    let truth = || match value.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    };
    let words = || match (operator, value.strip_suffix('*')) {
        (b':', Some(begin)) => Some(Wanted::BeginningWith(begin.to_lowercase())),
        (b'=', Some(_)) => None,
        _ => Some(Wanted::Exactly(value.to_lowercase())),
    };
    let clause = match field {
        "orgUnitPath" if operator == b'=' && value.starts_with('/') => Clause::Unit(value.to_owned()),
        "isSuspended" if operator == b'=' => Clause::Suspended(truth()?),
        "isArchived" if operator == b'=' => Clause::Archived(truth()?),
        "isAdmin" if operator == b'=' => Clause::Admin(truth()?),
        "email" => Clause::Address(words()?),
        "givenName" => Clause::GivenName(words()?),
        "familyName" => Clause::FamilyName(words()?),
        _ => return None,
    };
    Some((clause, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_choose_and_a_unit_has_those_below_it() {
        let mut ann = Person::alone("1", "ann@x.test");
        ann.unit = "/Sales/North Sea".to_owned();

        for (query, fits) in [
            ("orgUnitPath=/Sales", true),
            ("orgUnitPath='/Sales/North Sea' isSuspended=false", true),
            ("orgUnitPath=/Sale", false),
            ("orgUnitPath=/ email:an*", true),
            ("email=ann@x.test isAdmin=true", false),
            ("givenName:Ann", true),
            ("", true),
        ] {
            assert_eq!(Query::read(query).unwrap().fits(&ann), fits, "{query}");
        }
        for wrong in ["orgUnitPath:/Sales", "isSuspended=maybe", "shoeSize=4", "ann", "orgUnitPath='/Sales"] {
            assert!(Query::read(wrong).is_err(), "{wrong}");
        }
    }
}
