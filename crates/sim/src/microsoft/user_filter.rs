//! `$filter` of users.

use super::world::principal_name;
use crate::people::Person;

/// A filter of users; all conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserFilter(Vec<UserCondition>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum UserCondition {
    Enabled(bool),
    Kind {
        is_guest: bool,
    },
    Licensed(bool),
    Text {
        field: UserProperty,
        comparison: TextOperator,
        wanted: String,
    },
    /// One of the proxy addresses, with its `smtp:` prefix.
    Proxy(String),
    Not(Box<UserCondition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UserProperty {
    Mail,
    PrincipalName,
    DisplayName,
    Department,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextOperator {
    Equal,
    StartsWith,
    EndsWith,
}

impl UserFilter {
    pub fn read(text: &str) -> Result<Self, String> {
        text.split(" and ").map(|part| condition(part.trim())).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether this is an advanced query, which needs eventual consistency and `$count`.
    pub fn is_advanced(&self) -> bool {
        self.0.iter().any(|condition| {
            matches!(
                condition,
                UserCondition::Not(_)
                    | UserCondition::Licensed(_)
                    | UserCondition::Text { comparison: TextOperator::EndsWith, .. }
            )
        })
    }

    pub fn matches(&self, person: &Person, domain: &str) -> bool {
        self.0.iter().all(|condition| condition.holds(person, domain))
    }
}

impl UserCondition {
    fn holds(&self, person: &Person, domain: &str) -> bool {
        match self {
            Self::Enabled(wanted) => *wanted != person.is_suspended,
            Self::Kind { is_guest } => *is_guest == person.is_guest,
            Self::Licensed(wanted) => *wanted == person.is_licensed,
            Self::Text { field, comparison, wanted } => {
                let given = match field {
                    UserProperty::Mail => person.address.clone(),
                    UserProperty::PrincipalName => principal_name(person, domain),
                    UserProperty::DisplayName => person.full_name(),
                    UserProperty::Department => department(person).to_owned(),
                };
                let given = given.to_lowercase();
                match comparison {
                    TextOperator::Equal => given == *wanted,
                    TextOperator::StartsWith => given.starts_with(wanted),
                    TextOperator::EndsWith => given.ends_with(wanted),
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

/// Returns the department: the last part of the unit, because Microsoft's directories have no units.
pub fn department(person: &Person) -> &str {
    person.unit.rsplit('/').next().unwrap_or_default()
}

fn invalid_clause(text: &str) -> String {
    format!("Invalid filter clause: {text:?}")
}

fn condition(text: &str) -> Result<UserCondition, String> {
    if let Some(inner) = text.strip_prefix("not(").or_else(|| text.strip_prefix("not (")) {
        let inner = inner.strip_suffix(')').ok_or_else(|| invalid_clause(text))?;
        return condition(inner.trim()).map(|inner| UserCondition::Not(Box::new(inner)));
    }
    for (function, comparison) in [("startswith(", TextOperator::StartsWith), ("endswith(", TextOperator::EndsWith)] {
        let is_it = text.get(..function.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(function));
        let inner = text.get(function.len()..).filter(|_| is_it).and_then(|inner| inner.strip_suffix(')'));
        if let Some((field, wanted)) = inner.and_then(|inner| inner.split_once(',')) {
            let field = field_of(field.trim()).ok_or_else(|| invalid_clause(text))?;
            let wanted = quoted(wanted.trim()).ok_or_else(|| invalid_clause(text))?;
            return Ok(UserCondition::Text { field, comparison, wanted });
        }
    }
    let proxies = text.strip_prefix("proxyAddresses/any(").and_then(|inner| inner.strip_suffix(')'));
    if let Some((_, wanted)) = proxies.and_then(|inner| inner.split_once(" eq ")) {
        return quoted(wanted.trim()).map(UserCondition::Proxy).ok_or_else(|| invalid_clause(text));
    }
    let mut words = text.splitn(3, ' ');
    let (Some(field), Some(comparison), Some(value)) = (words.next(), words.next(), words.next()) else {
        return Err(invalid_clause(text));
    };
    let found = match (field, value) {
        ("accountEnabled", "true" | "false") => UserCondition::Enabled(value == "true"),
        ("userType", "'Member'" | "'Guest'") => UserCondition::Kind { is_guest: value == "'Guest'" },
        ("assignedLicenses/$count", "0") => UserCondition::Licensed(false),
        _ => {
            let (field, wanted) = (
                field_of(field).ok_or_else(|| invalid_clause(text))?,
                quoted(value).ok_or_else(|| invalid_clause(text))?,
            );
            UserCondition::Text { field, comparison: TextOperator::Equal, wanted }
        }
    };
    match comparison {
        "eq" => Ok(found),
        "ne" => Ok(UserCondition::Not(Box::new(found))),
        _ => Err(invalid_clause(text)),
    }
}

fn field_of(name: &str) -> Option<UserProperty> {
    Some(match name {
        "mail" => UserProperty::Mail,
        "userPrincipalName" => UserProperty::PrincipalName,
        "displayName" => UserProperty::DisplayName,
        "department" => UserProperty::Department,
        _ => return None,
    })
}

/// Parses a quoted string in lower case: directories ignore case.
fn quoted(text: &str) -> Option<String> {
    Some(text.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(change: impl FnOnce(&mut Person)) -> Person {
        let mut person = Person::without_organisation("1", "ann@contoso.test");
        change(&mut person);
        person
    }

    #[test]
    fn filter_matches_user_properties() {
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
            let read = UserFilter::read(filter).unwrap();
            let holds = [&ann, &guest].map(|person| read.matches(person, "contoso.test"));
            assert_eq!(holds, [is_ann, is_guest], "{filter}");
        }
    }

    #[test]
    fn index_queries_are_advanced() {
        for (filter, is_advanced) in [
            ("accountEnabled eq true", false),
            ("userType eq 'Guest'", false),
            ("userType ne 'Guest'", true),
            ("endswith(mail,'@x.test')", true),
            ("assignedLicenses/$count ne 0", true),
        ] {
            assert_eq!(UserFilter::read(filter).unwrap().is_advanced(), is_advanced, "{filter}");
        }
        for filter in ["accountEnabled", "accountEnabled eq 1", "skills eq 'x'", "mail gt 'a'", "mail eq a"] {
            assert!(UserFilter::read(filter).is_err(), "{filter}");
        }
    }
}
