//! What people write, per language. All of it is invented here; nothing is taken from anyone's mail.
//!
//! Nouns stand in the form the sentences need (with article, as an object), so that sentences come out right without
//! grammar in code.

mod arabic;
mod chinese;
mod english;
mod french;
mod german;
mod greek;
mod japanese;
mod polish;
mod russian;
mod spanish;

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

    /// The tag of RFC 5646.
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

    /// Chinese and Japanese put the family name first and no spaces between words.
    pub fn is_east_asian(self) -> bool {
        matches!(self, Self::Chinese | Self::Japanese)
    }

    pub fn lexicon(self) -> &'static Lexicon {
        static LEXICONS: LazyLock<[Lexicon; 10]> = LazyLock::new(|| {
            [
                english::lexicon(),
                german::lexicon(),
                french::lexicon(),
                spanish::lexicon(),
                polish::lexicon(),
                greek::lexicon(),
                russian::lexicon(),
                arabic::lexicon(),
                chinese::lexicon(),
                japanese::lexicon(),
            ]
        });
        &LEXICONS[self as usize]
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
    pub sentences: &'static [&'static str],
    pub subjects: &'static [&'static str],
    pub greetings: &'static [&'static str],
    pub closings: &'static [&'static str],
    pub given_names: Vec<Name>,
    pub family_names: Vec<Name>,
    pub phrases: Phrases,
}

/// Fixed lines that programs write rather than people.
#[derive(Debug)]
pub struct Phrases {
    pub reply: &'static str,
    pub forward: &'static str,
    /// Above quoted text; slots `{date}` and `{person}`.
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
pub struct Name {
    pub written: &'static str,
    pub latin: &'static str,
}

/// Items between commas.
fn list(text: &'static str) -> Vec<&'static str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Names between commas; `Zoë=zoe` where the address is spelt differently.
fn names(text: &'static str) -> Vec<Name> {
    let name = |item: &'static str| match item.split_once('=') {
        Some((written, latin)) => Name { written, latin },
        None => Name { written: item, latin: item },
    };
    list(text).into_iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_enough_to_say() {
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
