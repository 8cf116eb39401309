//! Sample people of an organisation: mostly ordinary, some guests, suspended, archived, unlicensed or deleted.

use super::operation::{NewPerson, PeopleOperation, PersonChange};
use crate::mail::Language;

const ORG_UNITS: [&str; 7] =
    ["/", "/Sales", "/Sales/North", "/Engineering", "/Engineering/Platform", "/Finance", "/Support"];

/// Groups of all people in a unit and below.
const UNIT_GROUPS: [(&str, &str); 3] = [("sales", "/Sales"), ("engineering", "/Engineering"), ("finance", "/Finance")];

/// Shares as (modulus, remainder). No two meet below a thousand, so each kind occurs alone.
const UNLICENSED_SHARE: (usize, usize) = (19, 5);
const SUSPENDED_SHARE: (usize, usize) = (23, 7);
const GUEST_SHARE: (usize, usize) = (29, 11);
const ARCHIVED_SHARE: (usize, usize) = (41, 13);
const DELETED_SHARE: (usize, usize) = (53, 17);

fn is_in_share((of, which): (usize, usize), number: usize) -> bool {
    number % of == which
}

/// Returns the operations that create `count` people. `user1` is the administrator.
pub fn people(domains: &[String], count: usize, messages: usize) -> Vec<PeopleOperation> {
    let mut all: Vec<PeopleOperation> =
        (1..=count).flat_map(|number| operations_for(domains, number, messages)).collect();
    all.extend(groups(domains, count, |number| address(domains, number)));
    all
}

/// Returns the operations that add units, aliases and groups to `user1` and so on.
pub fn directory_data(domain: &str, count: usize) -> Vec<PeopleOperation> {
    let domains = [domain.to_owned()];
    let mut all = Vec::new();
    for number in 1..=count {
        let (person, unit) = (format!("user{number}@{domain}"), Some(unit(number).to_owned()));
        all.push(PeopleOperation::Set(PersonChange { person: person.clone(), unit, ..PersonChange::default() }));
        if has_alias(number) {
            all.push(PeopleOperation::Alias { person, add: vec![alias(&domains, number)], remove: Vec::new() });
        }
    }
    all.extend(groups(&domains, count, |number| format!("user{number}@{domain}")));
    all
}

fn has_alias(number: usize) -> bool {
    number.is_multiple_of(4)
}

fn alias(domains: &[String], number: usize) -> String {
    format!("u{number}@{}", domain(domains, number))
}

/// Returns a person's domain: the administrator has the primary one, the others take turns.
fn domain(domains: &[String], number: usize) -> &str {
    &domains[(number - 1) % domains.len()]
}

fn address(domains: &[String], number: usize) -> String {
    let domain = domain(domains, number);
    if is_in_share(GUEST_SHARE, number) {
        format!("guest{number}@guests.{domain}")
    } else {
        format!("user{number}@{domain}")
    }
}

fn unit(number: usize) -> &'static str {
    ORG_UNITS[number % ORG_UNITS.len()]
}

fn operations_for(domains: &[String], number: usize, messages: usize) -> Vec<PeopleOperation> {
    let person = address(domains, number);
    let lexicon = Language::ALL[number % Language::ALL.len()].lexicon();
    let given_name = lexicon.given_names[number % lexicon.given_names.len()].written;
    let family_name = lexicon.family_names[number / 3 % lexicon.family_names.len()].written;
    let join = PeopleOperation::Join(NewPerson {
        address: person.clone(),
        given_name: Some(given_name.to_owned()),
        family_name: Some(family_name.to_owned()),
        aliases: if has_alias(number) { vec![alias(domains, number)] } else { Vec::new() },
        unit: Some(unit(number).to_owned()),
        licensed: Some(!is_in_share(UNLICENSED_SHARE, number)),
        guest: is_in_share(GUEST_SHARE, number),
        admin: number == 1,
        messages,
    });
    let mut all = vec![join];
    if is_in_share(SUSPENDED_SHARE, number) {
        all.push(PeopleOperation::Set(PersonChange {
            person: person.clone(),
            suspended: Some(true),
            ..PersonChange::default()
        }));
    }
    if is_in_share(ARCHIVED_SHARE, number) {
        all.push(PeopleOperation::Set(PersonChange {
            person: person.clone(),
            archived: Some(true),
            ..PersonChange::default()
        }));
    }
    if is_in_share(DELETED_SHARE, number) {
        all.push(PeopleOperation::Delete { person });
    }
    all
}

/// Returns the groups: everybody, one for each of some units, and one that contains another.
fn groups(domains: &[String], count: usize, address: impl Fn(usize) -> String) -> Vec<PeopleOperation> {
    let main = domain(domains, 1);
    let of_unit = |wanted: &str| -> Vec<String> {
        let numbers = (1..=count).filter(|number| unit(*number).starts_with(wanted));
        numbers.map(&address).collect()
    };
    let group =
        |name: &str, members| PeopleOperation::CreateGroup { address: format!("{name}@{main}"), name: None, members };
    let mut all = vec![group("everybody", of_unit("/"))];
    all.extend(UNIT_GROUPS.iter().map(|(name, unit)| group(name, of_unit(unit))));
    let leaders = (1..=count.min(3)).map(&address);
    all.push(group("leaders", leaders.chain([format!("finance@{main}")]).collect()));
    all
}
