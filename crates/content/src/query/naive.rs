//! The reference matcher: reads every token, slow and simple. Tests compare the databases with it.

use domain::search::{DeletedEmails, Phrase, SearchQuery};
use jiff::Timestamp;

/// What the matcher looks at of an email.
#[derive(Debug)]
pub struct MatchedEmail<'a, L> {
    /// See `tokens::email_tokens`.
    pub tokens: &'a str,
    /// The names of its folders.
    pub labels: &'a [L],
    pub received_at: Timestamp,
    pub is_deleted: bool,
}

pub fn is_match<L: AsRef<str>>(query: &SearchQuery, email: &MatchedEmail<'_, L>) -> bool {
    let MatchedEmail { tokens, labels, received_at, is_deleted } = *email;
    let tokens: Vec<&str> = tokens.split(' ').collect();
    let is_looked_at = match query.deleted {
        DeletedEmails::Hidden => !is_deleted,
        DeletedEmails::Included => true,
        DeletedEmails::Only => is_deleted,
    };
    is_looked_at
        && query.all_of.iter().all(|phrase| has_phrase(&tokens, phrase))
        && !query.none_of.iter().any(|phrase| has_phrase(&tokens, phrase))
        && query.labels.iter().all(|wanted| has_label(labels, wanted))
        && !query.not_labels.iter().any(|wanted| has_label(labels, wanted))
        && query.after.is_none_or(|after| received_at >= after)
        && query.before.is_none_or(|before| received_at < before)
}

fn has_label<L: AsRef<str>>(labels: &[L], wanted: &str) -> bool {
    labels.iter().any(|label| is_label(label.as_ref(), wanted))
}

fn has_phrase(tokens: &[&str], phrase: &Phrase) -> bool {
    tokens.windows(phrase.tokens.len().max(1)).any(|window| starts_with(window, phrase))
}

fn starts_with(window: &[&str], phrase: &Phrase) -> bool {
    let Some((last, first)) = phrase.tokens.split_last() else { return true };
    let Some((window_last, window_first)) = window.split_last() else { return false };
    let fits_last = if phrase.is_prefix { window_last.starts_with(last.as_str()) } else { window_last == last };
    fits_last && window_first.iter().zip(first).all(|(found, wanted)| found == wanted)
}

/// Returns whether a folder's whole name or last segment is the wanted one, ignoring case.
fn is_label(label: &str, wanted: &str) -> bool {
    let (label, wanted) = (label.to_lowercase(), wanted.to_lowercase());
    label == wanted || label.rsplit('/').next() == Some(wanted.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::parse;

    fn finds(query: &str, tokens: &str) -> bool {
        matches(&parse(query).unwrap(), tokens, false)
    }

    fn matches(query: &SearchQuery, tokens: &str, is_deleted: bool) -> bool {
        let received_at = "2024-02-01T00:00:00Z".parse().unwrap();
        is_match(query, &MatchedEmail { tokens, labels: &["Work/To do"], received_at, is_deleted })
    }

    #[test]
    fn deleted_email_is_found_where_it_is_wanted() {
        let (hidden, only) = (parse("a").unwrap(), parse("a is:deleted").unwrap());
        let included = hidden.clone().including_deleted();

        assert_eq!([&hidden, &included, &only].map(|query| matches(query, "a", true)), [false, true, true]);
        assert_eq!([&hidden, &included, &only].map(|query| matches(query, "a", false)), [true, true, false]);
    }

    #[test]
    fn phrases_are_neighbours_and_cross_no_gap() {
        assert!(finds("\"b c\" a", "a b c"));
        assert!(!finds("\"a c\"", "a b c"));
        assert!(!finds("\"a b\"", "a : b"));
        assert!(finds("", ""));
    }

    #[test]
    fn a_prefix_finds_words_but_no_field_names() {
        assert!(finds("\"a fre*\"", "a fresh"));
        assert!(!finds("fr*", ":from:alice"));
        assert!(finds("from:al*", ":from:alice"));
    }

    #[test]
    fn exclusions_labels_and_times_narrow() {
        assert!(!finds("a -b", "a b"));
        assert!(finds("label:\"TO DO\" label:\"work/to do\"", ""));
        assert!(!finds("label:do", ""));
        assert!(!finds("-label:\"to do\"", ""));
        assert!(finds("after:2024-02-01", ""));
        assert!(!finds("before:2024-02-01", ""));
    }
}
