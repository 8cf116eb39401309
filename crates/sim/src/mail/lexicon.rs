//! The words and sentences of each language, parsed once from `data/`. All of it is invented; nothing is taken from
//! anyone's mail.
//!
//! A data file has sections such as `[things]` with one entry a line; phrases are written as `key = "text"`. Nouns stand in
//! the form the sentences need (with article, as an object), so that sentences come out right without grammar in code.

use std::collections::HashMap;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    English,
    German,
    French,
    Spanish,
    Polish,
    Greek,
    Russian,
    Arabic,
    Chinese,
    Japanese,
}

impl Language {
    pub const ALL: [Self; 10] = [
        Self::English,
        Self::German,
        Self::French,
        Self::Spanish,
        Self::Polish,
        Self::Greek,
        Self::Russian,
        Self::Arabic,
        Self::Chinese,
        Self::Japanese,
    ];

    /// Returns the tag of RFC 5646.
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
            Self::French => "fr",
            Self::Spanish => "es",
            Self::Polish => "pl",
            Self::Greek => "el",
            Self::Russian => "ru",
            Self::Arabic => "ar",
            Self::Chinese => "zh",
            Self::Japanese => "ja",
        }
    }

    /// Finds the language of a tag.
    pub fn from_tag(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.tag() == tag)
    }

    /// Returns whether the family name comes first and words have no spaces between them.
    pub fn is_east_asian(self) -> bool {
        matches!(self, Self::Chinese | Self::Japanese)
    }

    pub fn lexicon(self) -> &'static Lexicon {
        static LEXICONS: LazyLock<[Lexicon; 10]> =
            LazyLock::new(|| Language::ALL.map(|language| Lexicon::parse(language.data())));
        &LEXICONS[self as usize]
    }

    fn data(self) -> &'static str {
        match self {
            Self::English => include_str!("../../data/english.txt"),
            Self::German => include_str!("../../data/german.txt"),
            Self::French => include_str!("../../data/french.txt"),
            Self::Spanish => include_str!("../../data/spanish.txt"),
            Self::Polish => include_str!("../../data/polish.txt"),
            Self::Greek => include_str!("../../data/greek.txt"),
            Self::Russian => include_str!("../../data/russian.txt"),
            Self::Arabic => include_str!("../../data/arabic.txt"),
            Self::Chinese => include_str!("../../data/chinese.txt"),
            Self::Japanese => include_str!("../../data/japanese.txt"),
        }
    }
}

/// Words and sentences of one language. Slots in sentences: `{thing}`, `{verb}`, `{quality}`, `{day}`, `{place}`,
/// `{project}`, `{person}`, `{amount}`, `{count}`, `{percent}`, `{code}`.
#[derive(Debug)]
pub struct Lexicon {
    pub things: Vec<&'static str>,
    pub verbs: Vec<&'static str>,
    pub qualities: Vec<&'static str>,
    pub days: Vec<&'static str>,
    pub places: Vec<&'static str>,
    pub sentences: Vec<&'static str>,
    pub subjects: Vec<&'static str>,
    pub greetings: Vec<&'static str>,
    pub closings: Vec<&'static str>,
    pub given_names: Vec<PersonName>,
    pub family_names: Vec<PersonName>,
    pub phrases: Phrases,
}

/// Fixed lines that programs write rather than people.
#[derive(Debug)]
pub struct Phrases {
    pub reply: &'static str,
    pub forward: &'static str,
    /// The line above quoted text; slots `{date}` and `{person}`.
    pub wrote: &'static str,
    pub forwarded: &'static str,
    pub from: &'static str,
    pub date: &'static str,
    pub subject: &'static str,
    pub to: &'static str,
    pub total: &'static str,
    pub unsubscribe: &'static str,
    pub order: &'static str,
    pub shipped: &'static str,
    pub invoice: &'static str,
    pub receipt: &'static str,
    pub reset: &'static str,
    pub alert: &'static str,
    pub invitation: &'static str,
    pub away: &'static str,
    /// Slot `{day}`.
    pub away_text: &'static str,
    pub newsletter: &'static str,
}

/// A name as its owner writes it and as it stands in an address.
#[derive(Debug, Clone, Copy)]
pub struct PersonName {
    pub written: &'static str,
    pub latin: &'static str,
}

/// The entries of a data file by section.
type Sections = HashMap<&'static str, Vec<&'static str>>;

impl Lexicon {
    fn parse(text: &'static str) -> Self {
        let sections = sections(text);
        Self {
            things: section(&sections, "things"),
            verbs: section(&sections, "verbs"),
            qualities: section(&sections, "qualities"),
            days: section(&sections, "days"),
            places: section(&sections, "places"),
            sentences: section(&sections, "sentences"),
            subjects: section(&sections, "subjects"),
            greetings: section(&sections, "greetings"),
            closings: section(&sections, "closings"),
            given_names: section(&sections, "given_names").into_iter().map(PersonName::parse).collect(),
            family_names: section(&sections, "family_names").into_iter().map(PersonName::parse).collect(),
            phrases: Phrases::parse(&section(&sections, "phrases")),
        }
    }
}

fn sections(text: &'static str) -> Sections {
    let (mut sections, mut name) = (Sections::new(), "");
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(section) => name = section,
            None => sections.entry(name).or_default().push(line),
        }
    }
    sections
}

fn section(sections: &Sections, name: &str) -> Vec<&'static str> {
    sections.get(name).expect("every language has every section, and a test reads them").clone()
}

impl PersonName {
    /// Parses `Ada`, or `Zoë=zoe` where the address is spelt differently.
    fn parse(entry: &'static str) -> Self {
        let (written, latin) = entry.split_once('=').unwrap_or((entry, entry));
        Self { written, latin }
    }
}

impl Phrases {
    /// Parses lines such as `reply = "Re: "`; the quotes keep spaces at the ends.
    fn parse(lines: &[&'static str]) -> Self {
        Self {
            reply: phrase(lines, "reply"),
            forward: phrase(lines, "forward"),
            wrote: phrase(lines, "wrote"),
            forwarded: phrase(lines, "forwarded"),
            from: phrase(lines, "from"),
            date: phrase(lines, "date"),
            subject: phrase(lines, "subject"),
            to: phrase(lines, "to"),
            total: phrase(lines, "total"),
            unsubscribe: phrase(lines, "unsubscribe"),
            order: phrase(lines, "order"),
            shipped: phrase(lines, "shipped"),
            invoice: phrase(lines, "invoice"),
            receipt: phrase(lines, "receipt"),
            reset: phrase(lines, "reset"),
            alert: phrase(lines, "alert"),
            invitation: phrase(lines, "invitation"),
            away: phrase(lines, "away"),
            away_text: phrase(lines, "away_text"),
            newsletter: phrase(lines, "newsletter"),
        }
    }
}

fn phrase(lines: &[&'static str], key: &str) -> &'static str {
    let values = lines.iter().filter_map(|line| line.split_once(" = ")).filter(|(name, _)| *name == key);
    let quoted = values.map(|(_, value)| value).next().expect("every language has every phrase, and a test reads them");
    quoted.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_enough_words() {
        for language in Language::ALL {
            let lexicon = language.lexicon();

            assert!(lexicon.things.len() >= 60, "{language:?} has {} things", lexicon.things.len());
            assert!(lexicon.verbs.len() >= 20, "{language:?} has {} verbs", lexicon.verbs.len());
            assert!(lexicon.sentences.len() >= 25, "{language:?} has {} sentences", lexicon.sentences.len());
            assert!(lexicon.subjects.len() >= 12, "{language:?} has {} subjects", lexicon.subjects.len());
        }
    }

    #[test]
    fn names_in_addresses_are_ascii() {
        for language in Language::ALL {
            let lexicon = language.lexicon();
            for name in lexicon.given_names.iter().chain(&lexicon.family_names) {
                assert!(name.latin.bytes().all(|b| b.is_ascii_alphabetic()), "{name:?}");
            }
        }
    }
}
