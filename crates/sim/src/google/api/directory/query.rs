//! The `query` parameter of user listings: clauses of field, operator and value, joined by AND.

use crate::people::Person;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserQuery(Vec<UserQueryClause>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum UserQueryClause {
    /// The unit and all units below it.
    Unit(String),
    Suspended(bool),
    Archived(bool),
    Admin(bool),
    Address(TextMatch),
    GivenName(TextMatch),
    FamilyName(TextMatch),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TextMatch {
    Exactly(String),
    BeginningWith(String),
}

impl TextMatch {
    /// Parses a value, which may end with `*` after the operator `:`.
    fn parse(operator: u8, value: &str) -> Option<Self> {
        match (operator, value.strip_suffix('*')) {
            (b':', Some(begin)) => Some(Self::BeginningWith(begin.to_lowercase())),
            (b'=', Some(_)) => None,
            _ => Some(Self::Exactly(value.to_lowercase())),
        }
    }

    fn matches(&self, given: &str) -> bool {
        match self {
            Self::Exactly(wanted) => given.to_lowercase() == *wanted,
            Self::BeginningWith(wanted) => given.to_lowercase().starts_with(wanted),
        }
    }
}

impl UserQuery {
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

    pub fn matches(&self, person: &Person) -> bool {
        self.0.iter().all(|clause| match clause {
            UserQueryClause::Unit(unit) => is_below(&person.unit, unit),
            UserQueryClause::Suspended(wanted) => *wanted == person.is_suspended,
            UserQueryClause::Archived(wanted) => *wanted == person.is_archived,
            UserQueryClause::Admin(wanted) => *wanted == person.is_admin,
            UserQueryClause::Address(wanted) => person.addresses().any(|address| wanted.matches(address)),
            UserQueryClause::GivenName(wanted) => wanted.matches(&person.given_name),
            UserQueryClause::FamilyName(wanted) => wanted.matches(&person.family_name),
        })
    }
}

/// Returns whether a unit is `above` or below it.
pub fn is_below(unit: &str, above: &str) -> bool {
    above == "/" || unit == above || unit.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn parse_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Parses the first clause and returns the rest.
fn clause(text: &str) -> Option<(UserQueryClause, &str)> {
    let at = text.find([':', '='])?;
    let (field, operator) = (&text[..at], text.as_bytes()[at]);
    let (value, rest) = match text[at + 1..].strip_prefix('\'') {
        Some(quoted) => quoted.split_once('\'')?,
        None => text[at + 1..].split_once(' ').unwrap_or((&text[at + 1..], "")),
    };
    let clause = match field {
        "orgUnitPath" if operator == b'=' && value.starts_with('/') => UserQueryClause::Unit(value.to_owned()),
        "isSuspended" if operator == b'=' => UserQueryClause::Suspended(parse_bool(value)?),
        "isArchived" if operator == b'=' => UserQueryClause::Archived(parse_bool(value)?),
        "isAdmin" if operator == b'=' => UserQueryClause::Admin(parse_bool(value)?),
        "email" => UserQueryClause::Address(TextMatch::parse(operator, value)?),
        "givenName" => UserQueryClause::GivenName(TextMatch::parse(operator, value)?),
        "familyName" => UserQueryClause::FamilyName(TextMatch::parse(operator, value)?),
        _ => return None,
    };
    Some((clause, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_clauses_filter_users() {
        let mut ann = Person::without_organisation("1", "ann@x.test");
        ann.unit = "/Sales/North Sea".to_owned();

        for (query, matches) in [
            ("orgUnitPath=/Sales", true),
            ("orgUnitPath='/Sales/North Sea' isSuspended=false", true),
            ("orgUnitPath=/Sale", false),
            ("orgUnitPath=/ email:an*", true),
            ("email=ann@x.test isAdmin=true", false),
            ("givenName:Ann", true),
            ("", true),
        ] {
            assert_eq!(UserQuery::read(query).unwrap().matches(&ann), matches, "{query}");
        }
        for wrong in ["orgUnitPath:/Sales", "isSuspended=maybe", "shoeSize=4", "ann", "orgUnitPath='/Sales"] {
            assert!(UserQuery::read(wrong).is_err(), "{wrong}");
        }
    }
}
