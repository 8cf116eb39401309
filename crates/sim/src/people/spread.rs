//! People as an organisation has them: most of them ordinary, and some of everything else.

use super::operation::{NewPerson, PeopleOperation, PersonChange};
use crate::mail::Language;

const UNITS: [&str; 7] =
    ["/", "/Sales", "/Sales/North", "/Engineering", "/Engineering/Platform", "/Finance", "/Support"];

/// Groups with those of the units below a name.
const GROUPS: [(&str, &str); 3] = [("sales", "/Sales"), ("engineering", "/Engineering"), ("finance", "/Finance")];

/// One in so many, and which of them. No two of these meet before the thousands, so each kind is seen alone.
const UNLICENSED: (usize, usize) = (19, 5);
const SUSPENDED: (usize, usize) = (23, 7);
const GUESTS: (usize, usize) = (29, 11);
const ARCHIVED: (usize, usize) = (41, 13);
const DELETED: (usize, usize) = (53, 17);

fn is_one((of, which): (usize, usize), number: usize) -> bool {
    number % of == which
}

/// What makes so many people, in the order in which it is done. `user1` is the administrator.
pub fn people(domains: &[String], count: usize, messages: usize) -> Vec<PeopleOperation> {
    let mut all: Vec<PeopleOperation> = (1..=count).flat_map(|number| one(domains, number, messages)).collect();
    all.extend(groups(domains, count, |number| address(domains, number)));
    all
}

/// What gives ordinary people, `user1` and so on, their units, aliases and groups. Their mail stays as it is.
pub fn furniture(domain: &str, count: usize) -> Vec<PeopleOperation> {
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

/// The administrator has the main domain; the others have all of them in turn.
fn domain(domains: &[String], number: usize) -> &str {
    &domains[(number - 1) % domains.len()]
}

fn address(domains: &[String], number: usize) -> String {
    let domain = domain(domains, number);
    match is_one(GUESTS, number) {
        true => format!("guest{number}@guests.{domain}"),
        false => format!("user{number}@{domain}"),
    }
}

fn unit(number: usize) -> &'static str {
    UNITS[number % UNITS.len()]
}

fn one(domains: &[String], number: usize, messages: usize) -> Vec<PeopleOperation> {
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
        licensed: Some(!is_one(UNLICENSED, number)),
        guest: is_one(GUESTS, number),
        admin: number == 1,
        messages,
    });
    let change = |suspended, archived| {
        PeopleOperation::Set(PersonChange { person: person.clone(), suspended, archived, ..PersonChange::default() })
    };
    let mut all = vec![join];
    if is_one(SUSPENDED, number) {
        all.push(change(Some(true), None));
    }
    if is_one(ARCHIVED, number) {
        all.push(change(None, Some(true)));
    }
    if is_one(DELETED, number) {
        all.push(PeopleOperation::Delete { person });
    }
    all
}

/// One with everybody, one for each of some units, and one with another group in it.
fn groups(domains: &[String], count: usize, address: impl Fn(usize) -> String) -> Vec<PeopleOperation> {
    let main = domain(domains, 1);
    let of_unit = |wanted: &str| -> Vec<String> {
        let numbers = (1..=count).filter(|number| unit(*number).starts_with(wanted));
        numbers.map(&address).collect()
    };
    let group =
        |name: &str, members| PeopleOperation::CreateGroup { address: format!("{name}@{main}"), name: None, members };
    let mut all = vec![group("everybody", of_unit("/"))];
    all.extend(GROUPS.iter().map(|(name, unit)| group(name, of_unit(unit))));
    let leaders = (1..=count.min(3)).map(&address);
    all.push(group("leaders", leaders.chain([format!("finance@{main}")]).collect()));
    all
}
