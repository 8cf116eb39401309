//! Who writes: invented companies with invented people, under names that can never be real (RFC 2606).

use super::rng::Rng;
use super::words::{Language, Name};

/// People per company: enough that not everyone is in every conversation.
const PEOPLE: usize = 9;

const COMPANIES: [(&str, &str, Language); 11] = [
    ("Harrow & Finchley Wharf Logistics", "harrowfinch.test", Language::English),
    ("Wiesenlerche Messtechnik GmbH", "wiesenlerche.test", Language::German),
    ("Ateliers Valfleury", "ateliers-valfleury.test", Language::French),
    ("Tinderbox Quay Software", "tinderboxquay.example", Language::English),
    ("Molinos Bravaluz", "bravaluz.example", Language::Spanish),
    ("Pracownia Źródlak", "zrodlak.example", Language::Polish),
    ("Ελαιώνης & Συκάκης", "elaionis.example", Language::Greek),
    ("Зимородков Проект", "zimorodkov.example", Language::Russian),
    ("دار النخلاوي", "dar-nakhlawi.example", Language::Arabic),
    ("端木精密", "duanmu-jingmi.example", Language::Chinese),
    ("星野川製作所", "hoshinogawa.example", Language::Japanese),
];

const JOBS: [&str; 12] = [
    "Purchasing",
    "Accounts",
    "Operations",
    "Sales",
    "Human Resources",
    "Legal",
    "Quality",
    "IT Support",
    "Logistics",
    "Research",
    "Customer Service",
    "Management",
];

/// Shops, papers and machines that write to everyone.
pub const SERVICES: [(&str, &str); 10] = [
    ("Kettle & Thorn", "kettlethorn.example"),
    ("Parcelwing", "parcelwing.example"),
    ("The Tuesday Ledger", "tuesdayledger.example"),
    ("Mossgate Office Supplies", "mossgate.example"),
    ("Larkspur Travel Desk", "larkspurdesk.example"),
    ("Tallyhouse", "tallyhouse.example"),
    ("Nimbusyard Hosting", "nimbusyard.example"),
    ("Watchtower Monitoring", "watchtower-mon.example"),
    ("Pennyroyal Cards", "pennyroyalcards.example"),
    ("Guild of Small Workshops", "smallworkshops.example"),
];

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
pub struct Person {
    pub contact: Contact,
    pub job: &'static str,
    pub phone: String,
    pub language: Language,
    /// Which of the invented mail programs this person writes with.
    pub client: usize,
}

#[derive(Debug, Clone)]
pub struct Company {
    pub name: String,
    pub domain: String,
    pub language: Language,
    pub people: Vec<Person>,
}

/// A person's place among the companies of one generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PersonId {
    pub company: usize,
    pub person: usize,
}

/// All invented companies; the first three are the tenants of the demo, and every language has at least one.
pub fn companies(seed: u64) -> Vec<Company> {
    let company = |(number, &(name, domain, language)): (usize, &(&'static str, &'static str, Language))| {
        let mut rng = Rng::for_part(seed, 0xC0_0000 + number as u64);
        let people = people(domain, language, &mut rng);
        Company { name: name.to_owned(), domain: domain.to_owned(), language, people }
    };
    COMPANIES.iter().enumerate().map(company).collect()
}

fn people(domain: &str, language: Language, rng: &mut Rng) -> Vec<Person> {
    let lexicon = language.lexicon();
    let (given, family) = (rng.below(lexicon.given_names.len()), rng.below(lexicon.family_names.len()));
    // Walking both lists in step keeps names, and so addresses, apart.
    (0..PEOPLE)
        .map(|number| {
            let given = lexicon.given_names[(given + number) % lexicon.given_names.len()];
            let family = lexicon.family_names[(family + number) % lexicon.family_names.len()];
            Person {
                contact: Contact { name: full_name(given, family, language), address: address(given, family, domain) },
                job: JOBS[(number * 5 + rng.below(2)) % JOBS.len()],
                phone: format!("+00 {} 555 {:04}", rng.between(100, 999), rng.below(10_000)),
                language,
                client: rng.below(super::clients::CLIENTS.len()),
            }
        })
        .collect()
}

fn full_name(given: Name, family: Name, language: Language) -> String {
    match language {
        Language::Chinese => format!("{}{}", family.written, given.written),
        Language::Japanese => format!("{} {}", family.written, given.written),
        _ => format!("{} {}", given.written, family.written),
    }
}

fn address(given: Name, family: Name, domain: &str) -> String {
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

        assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), companies.len() * PEOPLE);
        let domains = companies.iter().map(|c| c.domain.as_str()).chain(SERVICES.iter().map(|(_, domain)| *domain));
        assert!(domains.into_iter().all(|domain| domain.ends_with(".test") || domain.ends_with(".example")));
    }
}
