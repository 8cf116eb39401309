//! Invented companies and people, under domains that can never be real (RFC 2606).

use std::sync::LazyLock;

use super::data::{entries, rows};
use super::lexicon::{Language, PersonName};
use super::rng::Rng;

/// The number of people per company: enough that not everyone is in every conversation.
const PEOPLE_PER_COMPANY: usize = 9;

static DEPARTMENTS: LazyLock<Vec<&str>> = LazyLock::new(|| entries(include_str!("../../data/departments.txt")));

/// Shops, newspapers and services that write to everyone: name and domain.
pub static SERVICES: LazyLock<Vec<[&str; 2]>> = LazyLock::new(|| rows(include_str!("../../data/services.txt")));

/// A name with an address, as header fields have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    pub name: String,
    pub address: String,
}

impl Contact {
    pub fn domain(&self) -> &str {
        self.address.split_once('@').map_or("", |(_, domain)| domain)
    }
}

#[derive(Debug, Clone)]
pub struct Correspondent {
    pub contact: Contact,
    pub job: &'static str,
    pub phone: String,
    pub language: Language,
    /// The index of the person's mail program.
    pub client: usize,
}

#[derive(Debug, Clone)]
pub struct Company {
    pub name: String,
    pub domain: String,
    pub language: Language,
    pub people: Vec<Correspondent>,
}

/// A person's index among the companies of one generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PersonId {
    pub company: usize,
    pub person: usize,
}

/// Returns all invented companies. The first three are the tenants of the demo; every language has at least one.
pub fn companies(seed: u64) -> Vec<Company> {
    rows(include_str!("../../data/companies.txt"))
        .into_iter()
        .enumerate()
        .map(|(number, [name, domain, tag])| {
            let language = Language::from_tag(tag).expect("the companies' languages are known, and a test reads them");
            let mut rng = Rng::for_part(seed, 0xC0_0000 + number as u64);
            let people = people(domain, language, &mut rng);
            Company { name: name.to_owned(), domain: domain.to_owned(), language, people }
        })
        .collect()
}

fn people(domain: &str, language: Language, rng: &mut Rng) -> Vec<Correspondent> {
    let lexicon = language.lexicon();
    let (given, family) = (rng.below(lexicon.given_names.len()), rng.below(lexicon.family_names.len()));
    // Walking both lists in step keeps names, and so addresses, apart.
    (0..PEOPLE_PER_COMPANY)
        .map(|number| {
            let given = lexicon.given_names[(given + number) % lexicon.given_names.len()];
            let family = lexicon.family_names[(family + number) % lexicon.family_names.len()];
            Correspondent {
                contact: Contact { name: full_name(given, family, language), address: address(given, family, domain) },
                job: DEPARTMENTS[(number * 5 + rng.below(2)) % DEPARTMENTS.len()],
                phone: format!("+00 {} 555 {:04}", rng.between(100, 999), rng.below(10_000)),
                language,
                client: rng.below(super::mail_programs::MAIL_PROGRAMS.len()),
            }
        })
        .collect()
}

fn full_name(given: PersonName, family: PersonName, language: Language) -> String {
    match language {
        Language::Chinese => format!("{}{}", family.written, given.written),
        Language::Japanese => format!("{} {}", family.written, given.written),
        _ => format!("{} {}", given.written, family.written),
    }
}

fn address(given: PersonName, family: PersonName, domain: &str) -> String {
    format!("{}.{}@{domain}", given.latin.to_ascii_lowercase(), family.latin.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn addresses_are_distinct_and_cannot_be_real() {
        let companies = companies(1);

        let addresses: Vec<&str> =
            companies.iter().flat_map(|c| &c.people).map(|person| person.contact.address.as_str()).collect();

        assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), companies.len() * PEOPLE_PER_COMPANY);
        let domains = companies.iter().map(|c| c.domain.as_str()).chain(SERVICES.iter().map(|[_, domain]| *domain));
        assert!(domains.into_iter().all(|domain| domain.ends_with(".test") || domain.ends_with(".example")));
    }
}
