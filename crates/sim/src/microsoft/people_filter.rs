//! `$filter` over people, as far as a directory knows it.

use super::world::principal_name;
use crate::people::Person;

/// All of it must be so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeopleFilter(Vec<Condition>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Enabled(bool),
    Kind {
        is_guest: bool,
    },
    Licensed(bool),
    Text {
        field: Text,
        comparison: Comparison,
        wanted: String,
    },
    /// One of the addresses, with or without what kind of address it is.
    Proxy(String),
    Not(Box<Condition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    Mail,
    PrincipalName,
    DisplayName,
    Department,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    StartsWith,
    EndsWith,
}

impl PeopleFilter {
    pub fn read(text: &str) -> Result<Self, String> {
        text.split(" and ").map(|part| condition(part.trim())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether only an index that lags behind can tell: such questions need a header and a count.
    pub fn is_advanced(&self) -> bool {
        self.0.iter().any(|condition| {
            matches!(
                condition,
                Condition::Not(_) | Condition::Licensed(_) | Condition::Text { comparison: Comparison::EndsWith, .. }
            )
        })
    }

    pub fn matches(&self, person: &Person, domain: &str) -> bool {
        self.0.iter().all(|condition| condition.holds(person, domain))
    }
}

impl Condition {
    fn holds(&self, person: &Person, domain: &str) -> bool {
        match self {
            Self::Enabled(wanted) => *wanted != person.is_suspended,
            Self::Kind { is_guest } => *is_guest == person.is_guest,
            Self::Licensed(wanted) => *wanted == person.is_licensed,
            Self::Text { field, comparison, wanted } => {
                let given = match field {
                    Text::Mail => person.address.clone(),
                    Text::PrincipalName => principal_name(person, domain),
                    Text::DisplayName => person.full_name(),
                    Text::Department => department(person).to_owned(),
                };
                let given = given.to_lowercase();
                match comparison {
                    Comparison::Equal => given == *wanted,
                    Comparison::StartsWith => given.starts_with(wanted),
                    Comparison::EndsWith => given.ends_with(wanted),
                }
            }
            Self::Proxy(wanted) => {
                let address = wanted.strip_prefix("smtp:").unwrap_or_default();
                person.addresses().any(|one| one == address)
            }
            Self::Not(inner) => !inner.holds(person, domain),
        }
    }
}

/// The last part of the unit: Microsoft's directories have no units.
pub fn department(person: &Person) -> &str {
    person.unit.rsplit('/').next().unwrap_or_default()
}

fn condition(text: &str) -> Result<Condition, String> {
    let wrong = || format!("Invalid filter clause: {text:?}");
    if let Some(inner) = text.strip_prefix("not(").or_else(|| text.strip_prefix("not (")) {
        let inner = inner.strip_suffix(')').ok_or_else(wrong)?;
        return condition(inner.trim()).map(|inner| Condition::Not(Box::new(inner)));
    }
    for (function, comparison) in [("startswith(", Comparison::StartsWith), ("endswith(", Comparison::EndsWith)] {
        let is_it = text.get(..function.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(function));
        let inner = text.get(function.len()..).filter(|_| is_it).and_then(|inner| inner.strip_suffix(')'));
        if let Some((field, wanted)) = inner.and_then(|inner| inner.split_once(',')) {
            let field = field_of(field.trim()).ok_or_else(wrong)?;
            let wanted = quoted(wanted.trim()).ok_or_else(wrong)?;
            return Ok(Condition::Text { field, comparison, wanted });
        }
    }
    let proxies = text.strip_prefix("proxyAddresses/any(").and_then(|inner| inner.strip_suffix(')'));
    if let Some((_, wanted)) = proxies.and_then(|inner| inner.split_once(" eq ")) {
        return quoted(wanted.trim()).map(Condition::Proxy).ok_or_else(wrong);
    }
    let mut words = text.splitn(3, ' ');
    let (Some(field), Some(comparison), Some(value)) = (words.next(), words.next(), words.next()) else {
        return Err(wrong());
    };
    let found = match (field, value) {
        ("accountEnabled", "true" | "false") => Condition::Enabled(value == "true"),
        ("userType", "'Member'" | "'Guest'") => Condition::Kind { is_guest: value == "'Guest'" },
        ("assignedLicenses/$count", "0") => Condition::Licensed(false),
        _ => {
            let (field, wanted) = (field_of(field).ok_or_else(wrong)?, quoted(value).ok_or_else(wrong)?);
            Condition::Text { field, comparison: Comparison::Equal, wanted }
        }
    };
    match comparison {
        "eq" => Ok(found),
        "ne" => Ok(Condition::Not(Box::new(found))),
        _ => Err(wrong()),
    }
}

fn field_of(name: &str) -> Option<Text> {
    Some(match name {
        "mail" => Text::Mail,
        "userPrincipalName" => Text::PrincipalName,
        "displayName" => Text::DisplayName,
        "department" => Text::Department,
        _ => return None,
    })
}

/// Case makes no difference in a directory.
fn quoted(text: &str) -> Option<String> {
    Some(text.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(change: impl FnOnce(&mut Person)) -> Person {
        let mut person = Person::alone("1", "ann@contoso.test");
        change(&mut person);
        person
    }

    #[test]
    fn people_are_told_apart_by_what_they_are() {
        let ann = person(|_| {});
        let guest = person(|ann| {
            ann.is_guest = true;
            ann.is_licensed = false;
            ann.is_suspended = true;
        });

        for (filter, is_ann, is_guest) in [
            ("accountEnabled eq true", true, false),
            ("userType eq 'Guest'", false, true),
            ("userType ne 'Guest' and accountEnabled eq true", true, false),
            ("assignedLicenses/$count ne 0", true, false),
            ("startswith(userPrincipalName,'Ann_contoso.test#EXT#')", false, true),
            ("endswith(mail,'@contoso.test')", true, true),
            ("mail eq 'ANN@contoso.test'", true, true),
            ("proxyAddresses/any(p:p eq 'smtp:bob@contoso.test')", false, false),
        ] {
            let read = PeopleFilter::read(filter).unwrap();
            let holds = [&ann, &guest].map(|person| read.matches(person, "contoso.test"));
            assert_eq!(holds, [is_ann, is_guest], "{filter}");
        }
    }

    #[test]
    fn what_only_a_lagging_index_can_tell_is_advanced() {
        for (filter, is_advanced) in [
            ("accountEnabled eq true", false),
            ("userType eq 'Guest'", false),
            ("userType ne 'Guest'", true),
            ("endswith(mail,'@x.test')", true),
            ("assignedLicenses/$count ne 0", true),
        ] {
            assert_eq!(PeopleFilter::read(filter).unwrap().is_advanced(), is_advanced, "{filter}");
        }
        for filter in ["accountEnabled", "accountEnabled eq 1", "skills eq 'x'", "mail gt 'a'", "mail eq a"] {
            assert!(PeopleFilter::read(filter).is_err(), "{filter}");
        }
    }
}
