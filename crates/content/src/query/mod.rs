//! Parses a search query as people type it, in Gmail's syntax:
//! `invoice "past due" -draft from:alice to:bob subject:offer filename:pdf has:attachment label:work is:deleted
//! after:2024-01-31`.

mod date;
pub mod naive;
mod scan;

use domain::search::{DeletedEmails, Phrase, SearchQuery};
use jiff::Timestamp;

pub use date::parse as parse_date;

use crate::tokens::{HAS_ATTACHMENT, SearchField, is_unspaced, words};
use scan::QueryTerm;

/// More than anyone types; further terms are ignored, so that a pasted page is a bounded search.
const MAX_QUERY_TERMS: usize = 64;

/// A longer phrase is cut here, which finds a little more than was asked.
const MAX_PHRASE_WORDS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("{operator}: wants a date like 2024-01-31, not {value:?}")]
    Date { operator: &'static str, value: String },
    #[error("has: knows only has:attachment, not {value:?}")]
    Has { value: String },
    #[error("is: knows only is:deleted, not {value:?}")]
    Is { value: String },
}

/// Reads any text as a search: at most 64 terms of at most 64 words each, the rest is ignored. Punctuation alone is
/// ignored, an unknown `operator:` is a word. Only a date, `has:` or `is:` that says nothing we know is an error, for to
/// ignore it would answer another question.
pub fn parse(text: &str) -> Result<SearchQuery, QueryError> {
    let mut query = SearchQuery::default();
    for term in scan::terms(text).take(MAX_QUERY_TERMS) {
        add(&mut query, &term)?;
    }
    Ok(query)
}

fn add(query: &mut SearchQuery, term: &QueryTerm) -> Result<(), QueryError> {
    let phrases = if term.is_negated { &mut query.none_of } else { &mut query.all_of };
    match term.operator.to_ascii_lowercase().as_str() {
        "subject" => phrases.extend(phrase(Some(SearchField::Subject), term)),
        "from" => phrases.extend(phrase(Some(SearchField::From), term)),
        "to" => phrases.extend(phrase(Some(SearchField::To), term)),
        "filename" => phrases.extend(phrase(Some(SearchField::Filename), term)),
        "has" => phrases.push(has(term.value)?),
        "is" => {
            let deleted = deleted(term.value)?;
            // The negation says what holds anyway.
            query.deleted = if term.is_negated { query.deleted } else { deleted };
        }
        "label" => {
            let labels = if term.is_negated { &mut query.not_labels } else { &mut query.labels };
            labels.extend(Some(term.value.trim().to_owned()).filter(|label| !label.is_empty()));
        }
        "after" => bound(query, !term.is_negated, date_of("after", term.value)?),
        "before" => bound(query, term.is_negated, date_of("before", term.value)?),
        _ => phrases.extend(phrase(None, term)),
    }
    Ok(())
}

fn has(value: &str) -> Result<Phrase, QueryError> {
    match value.to_ascii_lowercase().as_str() {
        "attachment" | "attachments" => Ok(Phrase { tokens: vec![HAS_ATTACHMENT.to_owned()], is_prefix: false }),
        _ => Err(QueryError::Has { value: shown(value) }),
    }
}

fn deleted(value: &str) -> Result<DeletedEmails, QueryError> {
    if value.eq_ignore_ascii_case("deleted") {
        return Ok(DeletedEmails::Only);
    }
    Err(QueryError::Is { value: shown(value) })
}

fn date_of(operator: &'static str, value: &str) -> Result<Timestamp, QueryError> {
    date::parse(value).ok_or_else(|| QueryError::Date { operator, value: shown(value) })
}

/// Returns enough of an invalid value to recognise it in an error.
fn shown(value: &str) -> String {
    value.chars().take(40).collect()
}

/// Narrows the time: not before a moment is the same as after it.
fn bound(query: &mut SearchQuery, is_start: bool, time: Timestamp) {
    if is_start {
        query.after = query.after.max(Some(time));
    } else {
        query.before = Some(query.before.map_or(time, |before| before.min(time)));
    }
}

fn phrase(field: Option<SearchField>, term: &QueryTerm) -> Option<Phrase> {
    let found: Vec<_> = words(term.value).take(MAX_PHRASE_WORDS).collect();
    let (last, last_at) = found.last()?;
    let mut is_prefix = term.is_prefix && last_at.end == term.value.len();
    let mut count = found.len();

    let mut chars = last.chars();
    if chars.next().is_some_and(is_unspaced) && chars.next().is_none() {
        // The index has the last character of a run alone, but what is searched may go on there.
        let ends_a_pair =
            count > 1 && found[count - 2].1.end == last_at.end && found[count - 2].1.start < last_at.start;
        if ends_a_pair {
            count -= 1;
        } else {
            is_prefix = true;
        }
    }
    let words = found[..count].iter().map(|(word, _)| word);
    let tokens = words.map(|word| field.map_or_else(|| word.to_string(), |field| field.token(word))).collect();
    Some(Phrase { tokens, is_prefix })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    /// Formats phrases as text: `a b*`.
    fn shown(phrases: &[Phrase]) -> Vec<String> {
        phrases.iter().map(|phrase| phrase.tokens.join(" ") + if phrase.is_prefix { "*" } else { "" }).collect()
    }

    fn all_of(text: &str) -> Vec<String> {
        shown(&parse(text).unwrap().all_of)
    }

    #[test]
    fn words_and_phrases_must_all_be_there() {
        assert_eq!(all_of("Past \"due INVOICE\" well-known"), ["past", "due invoice", "well known"]);
        assert_eq!(
            all_of("“due invoice” invoi* \"past du*\" \"past du\"*"),
            ["due invoice", "invoi*", "past du*", "past du*"]
        );
    }

    #[test]
    fn a_minus_excludes() {
        let query = parse("-draft -\"on hold\" -from:bob -label:Spam -has:attachment").unwrap();

        assert_eq!(shown(&query.none_of), ["draft", "on hold", ":from:bob", ":has:attachment"]);
        assert_eq!(query.not_labels, ["Spam"]);
        assert!(query.all_of.is_empty());
    }

    #[test]
    fn operators_search_one_field() {
        assert_eq!(all_of("FROM:alice@example.com"), [":from:alice :from:example :from:com"]);
        assert_eq!(
            all_of("subject:\"past due\" to: bob filename:rep*"),
            [":subject:past :subject:due", ":to:bob", ":filename:rep*"]
        );
        assert_eq!(all_of("has:attachment"), [":has:attachment"]);
        assert_eq!(parse("label:\"To do\" label:work").unwrap().labels, ["To do", "work"]);
    }

    #[test]
    fn an_unknown_operator_is_a_word() {
        assert_eq!(all_of("http://x.test re:offer"), ["http x test", "re offer"]);
    }

    #[test]
    fn dates_narrow_the_time() {
        let query = parse("after:2024-01-31 after:2023 before:2024/02/01 -after:2025-01").unwrap();

        assert_eq!(query.after, Some("2024-01-31T00:00:00Z".parse().unwrap()));
        assert_eq!(query.before, Some("2024-02-01T00:00:00Z".parse().unwrap()));
    }

    #[test]
    fn is_deleted_asks_for_deleted_emails_only() {
        assert_eq!(parse("IS:Deleted invoice").unwrap().deleted, DeletedEmails::Only);
        assert_eq!(parse("-is:deleted").unwrap().deleted, DeletedEmails::Hidden);
        assert_eq!(parse("-is:deleted").unwrap().including_deleted().deleted, DeletedEmails::Included);
        assert_eq!(parse("is:deleted").unwrap().including_deleted().deleted, DeletedEmails::Only);
        assert_eq!(parse("is:read").unwrap_err().to_string(), "is: knows only is:deleted, not \"read\"");
    }

    #[test]
    fn a_wrong_date_is_told() {
        let told = parse("after:yesterday").unwrap_err().to_string();

        assert_eq!(told, "after: wants a date like 2024-01-31, not \"yesterday\"");
        assert!(parse("has:pdf").is_err());
    }

    #[test]
    fn scripts_without_spaces_are_found_inside_longer_runs() {
        assert_eq!(all_of("東京都 京 \"東京 tower\" ไทย"), ["東京 京都", "京*", "東京 京 tower", "ไท ทย"]);
    }

    #[test]
    fn text_without_words_is_ignored() {
        assert_eq!(parse("\"!!!\" - -\"\" * : \" 🎉 \0"), Ok(SearchQuery::default()));
        assert_eq!(parse("from: label:\"\""), Ok(SearchQuery::default()));
    }

    #[test]
    fn a_pasted_page_is_cut() {
        assert_eq!(all_of(&"word ".repeat(200_000)).len(), MAX_QUERY_TERMS);
        assert_eq!(parse(&"a.".repeat(500_000)).unwrap().all_of[0].tokens.len(), MAX_PHRASE_WORDS);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_text_is_safe_and_gives_tokens_only(text in r#"([a-z:*"\-東京 /é\x00]|from:|after:|has:|is:|label:|\PC){0,30}"#) {
            let Ok(query) = parse(&text) else { return Ok(()) };
            for phrase in query.all_of.iter().chain(&query.none_of) {
                prop_assert!(!phrase.tokens.is_empty());
                prop_assert!(phrase.tokens.iter().all(|token| token != ":" && !token.contains(char::is_whitespace)));
            }
        }
    }
}
