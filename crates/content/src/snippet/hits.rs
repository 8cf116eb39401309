//! Finds the phrases of a query in a text.

use std::borrow::Cow;
use std::ops::Range;

use domain::search::Phrase;

use crate::tokens::{SearchField, words};

/// As many words as are indexed of one email; later ones cannot have matched.
const MAX_SEARCHED_WORDS: usize = 16_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    /// The index of the phrase.
    pub phrase: usize,
    pub bytes: Range<usize>,
    pub chars: Range<usize>,
}

/// Returns the hits in order of their start. A phrase that is bound to a field hits in that field only.
pub fn find(text: &str, field: Option<SearchField>, phrases: &[Phrase]) -> Vec<SearchHit> {
    let wanted: Vec<(usize, Vec<&str>, bool)> = phrases
        .iter()
        .enumerate()
        .filter_map(|(number, phrase)| Some((number, words_in(phrase, field)?, phrase.is_prefix)))
        .collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let words = counted_words(text);
    let mut hits = Vec::new();
    for start in 0..words.len() {
        for (number, phrase, is_prefix) in &wanted {
            if is_at(&words[start..], phrase, *is_prefix) {
                let (first, last) = (&words[start], &words[start + phrase.len() - 1]);
                let bytes = first.bytes.start..last.bytes.end;
                hits.push(SearchHit { phrase: *number, bytes, chars: first.chars.start..last.chars.end });
            }
        }
    }
    hits
}

/// Returns the phrase without the field's name; `None` when it is bound to another field.
fn words_in(phrase: &Phrase, field: Option<SearchField>) -> Option<Vec<&str>> {
    if phrase.tokens.is_empty() {
        return None;
    }
    if phrase.tokens.iter().all(|token| !token.starts_with(':')) {
        return Some(phrase.tokens.iter().map(String::as_str).collect());
    }
    let prefix = field?.token("");
    phrase.tokens.iter().map(|token| token.strip_prefix(&prefix)).collect()
}

struct TextWord<'a> {
    token: Cow<'a, str>,
    bytes: Range<usize>,
    chars: Range<usize>,
}

fn counted_words(text: &str) -> Vec<TextWord<'_>> {
    // Pairs of a script without spaces overlap, so count from the last start.
    let (mut at, mut count) = (0, 0);
    words(text)
        .take(MAX_SEARCHED_WORDS)
        .map(|(token, bytes)| {
            count += text[at..bytes.start.max(at)].chars().count();
            at = bytes.start.max(at);
            let chars = count..count + text[bytes.clone()].chars().count();
            TextWord { token, bytes, chars }
        })
        .collect()
}

fn is_at(words: &[TextWord], phrase: &[&str], is_prefix: bool) -> bool {
    if words.len() < phrase.len() {
        return false;
    }
    words.iter().zip(phrase).enumerate().all(|(at, (word, wanted))| {
        if is_prefix && at + 1 == phrase.len() { word.token.starts_with(wanted) } else { word.token == *wanted }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::parse;

    #[test]
    fn hits_have_byte_and_character_positions() {
        let phrases = parse("\"b c\" subject:b").unwrap().all_of;

        let hits = find("é b c b", None, &phrases);

        assert_eq!(hits, [SearchHit { phrase: 0, bytes: 3..6, chars: 2..5 }]);
        assert_eq!(find("é b c b", Some(SearchField::Subject), &phrases).len(), 3);
    }
}
